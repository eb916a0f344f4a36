package poll

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/cq"
)

// Waiter waits on one or several completion queues.
type Waiter struct {
	count  counters
	queues []cq.Queue
	next   int // where the next round begins, so that no queue starves another
	how    waiting

	word atomic.Uint32 // what a Wait that is under way has to know
	// turn takes the strategy that SetStrategy left into use, or, over, lets go of it.
	// It is nil before SetStrategy is called, so that who never does need not link it.
	turn func(over bool)

	mu       sync.Mutex // guards what follows, and how where the poller writes it
	strategy Strategy   // of how
	coming   waiting    // what SetStrategy left, for the poller to take over
	chosen   Strategy   // of coming
	bells    *bells     // nil while neither how nor coming sleeps
	num      uint64     // see Metrics; 0 until somebody asks
}

// The bits of a Waiter's word.
const (
	closed uint32 = 1 << iota
	turned        // there is another strategy to go on with
)

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
		return nil, errors.New("poll: NewWaiter without a strategy: choose poll.Adaptive, poll.Event or poll.Busy")
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
	w := &Waiter{queues: append([]cq.Queue(nil), queues...), strategy: s}
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
//
// Of several queues it looks at one after the other, beginning where the Wait before ran
// out of places. So however much comes to them, every queue is looked at within as many
// Waits as there are queues, and one that is flooded keeps the next one waiting for one
// Wait.
func (w *Waiter) Wait(ctx context.Context, wcs []cq.WC) (int, error) {
	if len(wcs) == 0 {
		return 0, errors.New("poll: Wait with an empty slice has no place for a completion")
	}
	w.count.waits.Add(1)
	for {
		switch err := w.ended(ctx); err {
		case nil:
		case errTurned:
			w.turn(false)
		default:
			return 0, err
		}
		if n, err := w.look(wcs); n > 0 || err != nil {
			return n, err
		}
		if n, err := w.how.wait(ctx, wcs); err != errTurned {
			return n, err
		}
	}
}

// errTurned ends the wait of a strategy that another one takes over from.
var errTurned = errors.New("poll: wait with another strategy")

// ended returns why not to wait any more, or not in this way.
func (w *Waiter) ended(ctx context.Context) error {
	word := w.word.Load()
	if word&closed != 0 {
		return fmt.Errorf("poll: wait: %w", os.ErrClosed)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("poll: wait: %w", context.Cause(ctx))
	}
	if word != 0 {
		return errTurned
	}
	return nil
}

// look polls every queue once, beginning after the one that filled the slice last,
// until wcs is full. An error waits until there is nothing else to deliver.
func (w *Waiter) look(wcs []cq.WC) (n int, err error) {
	w.count.looks.Add(1)
	k := w.next
	for range w.queues {
		m, e := w.queues[k].Poll(wcs[n:])
		if e != nil && err == nil {
			err = e
		}
		if k++; k == len(w.queues) {
			k = 0
		}
		if n += m; n == len(wcs) {
			w.next = k // it may have more than others ever have
			break
		}
	}
	if n > 0 {
		w.count.took(n)
		return n, nil
	}
	return 0, err
}

// Close ends a Wait that is under way and lets go of the queues, which stay
// open. A second Close returns os.ErrClosed.
func (w *Waiter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.word.Or(closed)&closed != 0 {
		return fmt.Errorf("poll: close waiter: %w", os.ErrClosed)
	}
	err := w.how.close()
	if w.turn != nil {
		w.turn(true)
	}
	if w.bells != nil {
		w.bells.detach()
	}
	return err
}
