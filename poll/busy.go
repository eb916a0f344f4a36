package poll

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/cq"
)

// busyWaiters counts the open waiters that spin.
var busyWaiters atomic.Int32

func (Busy) newWait(w *Waiter) (waiting, error) {
	procs := runtime.GOMAXPROCS(0)
	if n := int(busyWaiters.Add(1)); n >= procs {
		busyWaiters.Add(-1)
		return nil, fmt.Errorf("poll: %d busy waiters on GOMAXPROCS=%d would leave no processor for the rest of the program: raise GOMAXPROCS or wait with poll.Event", n, procs)
	}
	return &busy{w}, nil
}

type busy struct{ w *Waiter }

// spins is how many looks go by between two looks at the context, which cost
// more.
const spins = 64

func (b *busy) wait(ctx context.Context, wcs []cq.WC) (int, error) {
	for {
		for range spins {
			if n, err := b.w.look(wcs); n > 0 || err != nil {
				return n, err
			}
		}
		if err := b.w.ended(ctx); err != nil {
			return 0, err
		}
	}
}

func (b *busy) close() error {
	busyWaiters.Add(-1)
	return nil
}
