package main

import (
	"context"
	"fmt"
	"time"
)

// patience is how long no completion may come before a step fails: a library that
// lost one would otherwise wait for ever.
const patience = time.Minute

// watched runs a step with a context that ends also when nothing comes to either end
// any more. The step then returns the cause.
func (p *pair) watched(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		tick := time.NewTicker(patience)
		defer tick.Stop()
		for seen := int64(-1); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := p.completions.Load()
			if now == seen {
				cancel(fmt.Errorf("no completion came for %v", patience))
			}
			seen = now
		}
	}()
	defer func() { cancel(nil); <-watching }()
	return run(ctx)
}
