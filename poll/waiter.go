package poll

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/goverbs/goverbs/cq"
)

// Waiter waits on one or several completion queues.
type Waiter struct {
	queues []cq.Queue
	next   int // where the next round begins, so that no queue starves another
	how    waiting
	closed atomic.Bool
}

// waiting is a strategy at work.
type waiting interface {
	// wait returns when there is something to deliver. The first look has
	// been made and found nothing.
	wait(ctx context.Context, wcs []cq.WC) (int, error)
	// close ends a parked wait, once.
	close() error
}

// NewWaiter makes a Waiter on the queues, whose poller it becomes. Close it when
// done.
func NewWaiter(s Strategy, queues ...cq.Queue) (*Waiter, error) {
	if s == nil {
		return nil, errors.New("poll: NewWaiter without a strategy: choose poll.Busy or poll.Event")
	}
	if len(queues) == 0 {
		return nil, errors.New("poll: NewWaiter without a completion queue")
	}
	for i, q := range queues {
		if q == nil {
			return nil, fmt.Errorf("poll: NewWaiter: completion queue %d is nil", i)
		}
		for _, p := range queues[:i] {
			if p == q {
				return nil, fmt.Errorf("poll: NewWaiter: completion queue %d is given twice", i)
			}
		}
	}
	w := &Waiter{queues: queues}
	how, err := s.newWait(w)
	if err != nil {
		return nil, err
	}
	w.how = how
	return w, nil
}

// Wait takes up to len(wcs) completions and returns how many, at least one, or
// an error. It waits until there is one, ctx ends, or a queue fails. When ctx
// ends the error wraps its cause, which is ctx.Err() unless ctx was cancelled
// with another.
func (w *Waiter) Wait(ctx context.Context, wcs []cq.WC) (int, error) {
	if len(wcs) == 0 {
		return 0, errors.New("poll: Wait with an empty slice has no place for a completion")
	}
	if err := w.ended(ctx); err != nil {
		return 0, err
	}
	if n, err := w.look(wcs); n > 0 || err != nil {
		return n, err
	}
	return w.how.wait(ctx, wcs)
}

// ended returns why not to wait any more.
func (w *Waiter) ended(ctx context.Context) error {
	if w.closed.Load() {
		return fmt.Errorf("poll: wait: %w", os.ErrClosed)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("poll: wait: %w", context.Cause(ctx))
	}
	return nil
}

// look polls every queue once, beginning with another one each time, until wcs
// is full. An error waits until there is nothing else to deliver.
func (w *Waiter) look(wcs []cq.WC) (n int, err error) {
	first := w.next
	w.next++
	if w.next >= len(w.queues) {
		w.next = 0
	}
	for i := range w.queues {
		k := first + i
		if k >= len(w.queues) {
			k -= len(w.queues)
		}
		m, e := w.queues[k].Poll(wcs[n:])
		if e != nil && err == nil {
			err = e
		}
		if n += m; n == len(wcs) {
			break
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// Close ends a Wait that is under way and lets go of the queues, which stay
// open.
func (w *Waiter) Close() error {
	if w.closed.Swap(true) {
		return fmt.Errorf("poll: close waiter: %w", os.ErrClosed)
	}
	return w.how.close()
}
