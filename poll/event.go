package poll

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/cq"
)

func (e Event) newWait(w *Waiter) (waiting, error) {
	v, err := newEvent(w, e)
	if err != nil {
		return nil, err // not v, which would be a waiting that is not nil
	}
	return v, nil
}

func newEvent(w *Waiter, e Event) (*event, error) {
	b := w.bells
	if b == nil {
		var err error
		if b, err = hang(w.queues); err != nil {
			return nil, err
		}
	}
	p, err := newParker(append([]int(nil), b.fds...), e.Thread)
	if err != nil {
		if w.bells == nil {
			b.detach()
		}
		return nil, err
	}
	w.bells = b
	v := &event{w: w, bells: b, solicited: e.Solicited, sleep: p}
	if w.how == nil {
		v.begin()
	}
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
	bells     *bells
	solicited bool

	sleep parker
	// The Done channel of the context whose end wakes this waiter. Most
	// programs wait with the same context each time: then there is nothing
	// to register.
	done <-chan struct{}
	stop func() bool // takes the watch on the context back; guarded by bells.mu
}

// begin makes this the strategy that the bells wake. The poller calls it.
func (v *event) begin() {
	b := v.bells
	if b.solicited != v.solicited {
		clear(b.armed) // for other completions than those to wait for
		b.solicited = v.solicited
	}
	b.mu.Lock()
	b.park = v.sleep
	b.mu.Unlock()
}

// watch makes the end of ctx wake the waiter.
func (v *event) watch(ctx context.Context) {
	done := ctx.Done()
	if done == v.done {
		return
	}
	v.done = done
	v.bells.mu.Lock()
	defer v.bells.mu.Unlock()
	v.unwatch()
	if done != nil && v.bells.park != nil {
		v.stop = context.AfterFunc(ctx, v.bells.wake)
	}
}

// unwatch forgets the context. bells.mu is held.
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
		v.w.count.parks.Add(1)
		start := time.Now()
		err = v.sleep.park()
		v.w.count.slept.Add(uint64(time.Since(start)))
		if err != nil {
			return 0, err
		}
		taken, terr := v.take()
		if taken {
			v.w.count.events.Add(1)
		} else {
			// Nobody reported, so who knows what became of the arms: an event may be
			// late, or lost.
			clear(v.bells.armed)
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
		v.w.count.spurious.Add(1)
	}
}

// arm arms the queues that are not, and says whether there were any.
func (v *event) arm() (fresh bool, err error) {
	for i, q := range v.w.queues {
		if v.bells.armed[i] {
			continue
		}
		if err := q.Arm(v.solicited); err != nil {
			return fresh, err
		}
		v.bells.armed[i], fresh = true, true
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
			v.bells.armed[i], taken = false, true
		}
	}
	return taken, errs
}

// close ends a park that is under way. The bells stay.
func (v *event) close() error {
	b := v.bells
	b.mu.Lock()
	v.unwatch()
	if b.park == v.sleep {
		b.park = nil
	}
	b.mu.Unlock()
	v.sleep.wake()
	return v.sleep.close()
}
