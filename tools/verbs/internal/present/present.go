// Package present is for programs that wait for something else than the device while they have it
// open, such as for a peer to connect: the device may go meanwhile.
//
//	err := present.While(ctx, dev, func(ctx context.Context) (err error) {
//		conn, err = listen(ctx)
//		return err
//	})
//
// It reads the events of the device, which nobody else may do at the same time.
package present

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// While waits with a context that ends also when the device goes. Then it returns an error that
// wraps uverbs.ErrDeviceGone.
func While(ctx context.Context, dev *uverbs.Device, wait func(context.Context) error) error {
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	gone := make(chan bool, 1)
	go func() {
		defer cancel()
		for {
			select {
			case e, ok := <-dev.Events():
				if !ok || e.Type == uverbs.EventDeviceGone {
					gone <- ok
					return
				}
			case <-own.Done():
				gone <- false
				return
			}
		}
	}()
	err := wait(own)
	cancel()
	if <-gone {
		return fmt.Errorf("%s: %w", dev.Name(), uverbs.ErrDeviceGone)
	}
	return err
}

// Explain adds to an error that the device is gone, if it is and the error does not say so: what
// was under way ends flushed then, as after any failure.
func Explain(dev *uverbs.Device, err error) error {
	for err != nil && !errors.Is(err, uverbs.ErrDeviceGone) {
		select {
		case e, ok := <-dev.Events():
			if !ok {
				return err
			}
			if e.Type == uverbs.EventDeviceGone {
				return fmt.Errorf("%w: %w", uverbs.ErrDeviceGone, err)
			}
		default:
			return err
		}
	}
	return err
}
