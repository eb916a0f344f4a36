package poll

import (
	"context"
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
	v := &event{w: w, bells: b, solicited: e.Solicited, epoch: time.Now(), sleep: p}
	if w.how == nil {
		v.begin()
	}
	return v, nil
}

// parker puts the goroutine to sleep.
type parker interface {
	// park returns when one of the queues' descriptors is readable, or after
	// wake. It may return for no reason. now is the time since any moment.
	park(now time.Duration) error
	// wake makes the park under way, or the next one, return. Any goroutine
	// may call it.
	wake()
	close() error
}

type event struct {
	w         *Waiter
	bells     *bells
	solicited bool
	epoch     time.Time // any: what passed since takes one look at a clock, and time.Now two

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
	b := v.bells
	var err error
	if b.rang {
		err = v.take()
	}
	for {
		// A completion that is in a queue before it is armed raises no
		// event; hence the look after arming. One that comes later does.
		// A queue that stayed armed since an earlier look needs neither.
		fresh := false
		if err == nil {
			fresh, err = v.arm()
		}
		if fresh || err != nil {
			if n, perr := v.w.look(wcs); n > 0 || perr != nil {
				return n, perr
			}
			if err != nil {
				return 0, err
			}
		}
		if err = v.w.ended(ctx); err != nil {
			return 0, err
		}
		v.w.count.parks.Add(1)
		start := time.Since(v.epoch)
		err = v.sleep.park(start)
		v.w.count.slept.Add(uint64(time.Since(v.epoch) - start))
		if err != nil {
			return 0, err
		}
		// Who slept is late already. What is to be taken can wait until it waits
		// again, when who waits for its answer has that.
		b.rang = true
		if b.first {
			err = v.take()
		}
		if n, perr := v.w.look(wcs); n > 0 || perr != nil {
			return n, perr
		}
		if b.rang {
			err = v.take()
		}
		if err == nil {
			if err = v.w.ended(ctx); err != nil {
				return 0, err
			}
			v.w.count.spurious.Add(1)
		}
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

// take consumes one event of each queue that has one, after a park. The error is the
// first queue's that fails.
func (v *event) take() (failed error) {
	b, taken := v.bells, false
	b.rang = false
	for i, q := range v.w.queues {
		ok, err := q.TakeEvent()
		if failed == nil {
			failed = err
		}
		if ok {
			b.armed[i], taken = false, true
		}
	}
	if taken {
		v.w.count.events.Add(1)
	} else {
		// Nobody reported, so who knows what became of the arms: an event may be
		// late, or lost.
		clear(b.armed)
	}
	return failed
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
