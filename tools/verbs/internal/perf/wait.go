package perf

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// A wait is how a loop waits in a phase. Nothing in it allocates.
type wait struct {
	cq     *uverbs.CQ
	waiter *poll.Waiter // nil: poll
	yield  bool         // let other goroutines run: the other side is one
	looks  int          // how many polls go by between two looks at whether to stop
	phase  *phase

	ctx  context.Context // soft, or hard when that has ended
	stop *atomic.Bool    // its end

	rested      time.Time
	every, left int // turns from one rest to the next, and until that
}

// Of another goroutine that waits for its turn one thinks more often.
const (
	looks      = 256
	looksYield = 32
)

// newWait makes ready to wait. Call release when done.
func (s *Side) newWait(p *phase) (w *wait, release func(), err error) {
	w = &wait{cq: s.cq, yield: s.cfg.Together, looks: looks, phase: p, ctx: p.soft, stop: &p.softly}
	if w.yield {
		w.looks = looksYield
	}
	switch s.cfg.Wait {
	case Event:
		w.waiter, err = poll.NewWaiter(poll.Event{Thread: !s.cfg.Together}, s.cq)
	case Adaptive:
		w.waiter, err = poll.NewWaiter(poll.Adaptive{Thread: !s.cfg.Together}, s.cq)
	}
	if err != nil {
		return nil, nil, err
	}
	// A goroutine that polls keeps no thread to itself: every 10 ms the scheduler interrupts
	// it, to go on with it at once, and to go on with one that does takes two switches of
	// threads.
	return w, func() {
		if w.waiter != nil {
			w.waiter.Close()
		}
	}, nil
}

// next takes completions: at least one, or there is an error. That the other side has sent
// everything is errPeerSent, once; from then on only the end of the phase is an error.
func (w *wait) next(wcs []uverbs.WC) (int, error) {
	if w.waiter != nil {
		n, err := w.waiter.Wait(w.ctx, wcs)
		if err != nil && w.ctx.Err() != nil {
			err = w.harden()
		}
		return n, err
	}
	// Not poll.Busy, which refuses to spin where there is no other processor.
	for !w.stop.Load() {
		for range w.looks {
			if n, err := w.cq.Poll(wcs); n > 0 || err != nil {
				return n, err
			}
		}
		w.pause()
	}
	return 0, w.harden()
}

// pause lets the other side run, where it may need the same processor.
func (w *wait) pause() {
	if w.yield {
		runtime.Gosched()
	}
}

// restEvery is how long a loop goes without a rest. The scheduler looks every 10 ms, and
// interrupts what has had no rest since.
const restEvery = 8 * time.Millisecond

// rest comes after each turn of a loop, and now and then lets other goroutines run, of which
// there are hardly any. Who does not do so of his own accord is interrupted, by a signal:
// on an emulated machine that costs one message in twenty-five.
func (w *wait) rest() {
	if w.left--; w.left > 0 {
		return
	}
	runtime.Gosched()
	now := time.Now() // too long a call for every turn
	if took := now.Sub(w.rested); took > restEvery {
		w.every /= 2
	} else if took < restEvery/2 {
		w.every = 2*w.every + 1
	}
	w.left, w.rested = w.every, now
}

// harden is the error of a context that has ended. After the soft one's comes the hard
// one's.
func (w *wait) harden() error {
	if w.phase.hard.Err() != nil {
		return context.Cause(w.phase.hard)
	}
	w.ctx, w.stop = w.phase.hard, &w.phase.hardly
	return errPeerSent
}

// graceTime is how long messages may take that were sent where they may get lost.
const graceTime = time.Second

// grace takes completions as long as they come. 0 says that none came for graceTime.
func (w *wait) grace(wcs []uverbs.WC) (int, error) {
	for end := time.Now().Add(graceTime); ; {
		late := time.Now().After(end) // before the look: one that stood still has not looked
		n, err := w.cq.Poll(wcs)
		switch {
		case n > 0 || err != nil:
			return n, err
		case w.phase.hardly.Load():
			return 0, context.Cause(w.phase.hard)
		case late:
			return 0, nil
		}
		runtime.Gosched()
	}
}

// until waits until an eight-byte word, of which one byte counts, has a value there.
func (w *wait) until(word *atomic.Uint64, shift int, value byte) error {
	for !w.stop.Load() {
		for range w.looks {
			if byte(word.Load()>>shift) == value {
				return nil
			}
		}
		w.pause()
	}
	return w.harden()
}
