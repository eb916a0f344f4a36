package poll

import (
	"context"
	"errors"
	"sync"

	"github.com/goverbs/goverbs/cq"
)

func (e Event) newWait(w *Waiter) (waiting, error) {
	v := &event{w: w, solicited: e.Solicited, armed: make([]bool, len(w.queues))}
	fds := make([]int, 0, len(w.queues))
	wake := func() { v.wake() }
	for _, q := range w.queues {
		fd, detach, err := q.Attach(wake)
		if err != nil {
			v.detach()
			return nil, err
		}
		v.detachers = append(v.detachers, detach)
		fds = append(fds, fd)
	}
	p, err := newParker(fds, e.Thread)
	if err != nil {
		v.detach()
		return nil, err
	}
	v.mu.Lock()
	v.sleep, v.park = p, p
	v.mu.Unlock()
	return v, nil
}

// parker puts the goroutine to sleep.
type parker interface {
	// park returns when one of the queues' descriptors is readable, or after
	// wake. It may return for no reason.
	park() error
	// wake makes the park under way, or the next one, return. Any goroutine
	// may call it.
	wake()
	close() error
}

type event struct {
	w         *Waiter
	solicited bool
	armed     []bool // by queue: armed, and no event taken since
	detachers []func()

	sleep parker
	// The Done channel of the context whose end wakes this waiter. Most
	// programs wait with the same context each time: then there is nothing
	// to register.
	done <-chan struct{}

	mu   sync.Mutex
	park parker      // sleep while it may be woken: not before it stands, nor after close
	stop func() bool // takes the watch on the context back
}

func (v *event) wake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.park != nil {
		v.park.wake()
	}
}

// watch makes the end of ctx wake the waiter.
func (v *event) watch(ctx context.Context) {
	done := ctx.Done()
	if done == v.done {
		return
	}
	v.done = done
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unwatch()
	if done != nil && v.park != nil {
		v.stop = context.AfterFunc(ctx, v.wake)
	}
}

// unwatch forgets the context. v.mu is held.
func (v *event) unwatch() {
	if v.stop != nil {
		v.stop()
		v.stop = nil
	}
}

func (v *event) wait(ctx context.Context, wcs []cq.WC) (int, error) {
	v.watch(ctx)
	for {
		// A completion that is in a queue before it is armed raises no
		// event; hence the look after arming. One that comes later does.
		// A queue that stayed armed since an earlier look needs neither.
		fresh, err := v.arm()
		if fresh || err != nil {
			if n, perr := v.w.look(wcs); n > 0 || perr != nil {
				return n, perr
			}
			if err != nil {
				return 0, err
			}
		}
		if err := v.w.ended(ctx); err != nil {
			return 0, err
		}
		if err := v.sleep.park(); err != nil {
			return 0, err
		}
		taken, terr := v.take()
		if !taken {
			// Nobody reported, so who knows what became of the arms: an event may be
			// late, or lost.
			clear(v.armed)
		}
		if n, err := v.w.look(wcs); n > 0 || err != nil {
			return n, err
		}
		if terr != nil {
			return 0, terr
		}
		if err := v.w.ended(ctx); err != nil {
			return 0, err
		}
	}
}

// arm arms the queues that are not, and says whether there were any.
func (v *event) arm() (fresh bool, err error) {
	for i, q := range v.w.queues {
		if v.armed[i] {
			continue
		}
		if err := q.Arm(v.solicited); err != nil {
			return fresh, err
		}
		v.armed[i], fresh = true, true
	}
	return fresh, nil
}

// take consumes one event of each queue that has one, and says whether there were any.
func (v *event) take() (taken bool, errs error) {
	for i, q := range v.w.queues {
		ok, err := q.TakeEvent()
		if err != nil {
			errs = errors.Join(errs, err)
		}
		if ok {
			v.armed[i], taken = false, true
		}
	}
	return taken, errs
}

func (v *event) detach() {
	for _, d := range v.detachers {
		d()
	}
}

func (v *event) close() error {
	v.detach()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unwatch()
	v.park = nil
	v.sleep.wake()
	return v.sleep.close()
}
