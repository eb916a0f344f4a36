package poll

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// Adaptive spins while the next completion is near, and sleeps as [Event] does while it
// is not. The queues need CQOptions.Events.
//
// How near it is the waiter learns from the gaps between recent completions. It spins
// where they are shorter than what a sleep costs, and no longer than that, nor than
// Spin; else it sleeps at once. A waiter that idles costs nothing, and after a pause it
// takes some ten completions that come fast to make it spin again. Where it sleeps for
// short times it tries a spin now and then, as a thread that wakes late cannot tell how
// late it woke.
//
// At most GOMAXPROCS-1 waiters spin at a time, those with Busy included; more of them
// sleep at once, as Event does. With GOMAXPROCS=1 none spins: each lets the other
// goroutines run and looks again a few times before it sleeps. So there may be any
// number of adaptive waiters. Which of them spin is left to chance: who began to may
// until it sleeps.
type Adaptive struct {
	// Spin is the longest that a Wait spins before it sleeps. The zero value means
	// 20 microseconds. Where it takes longer to wake a sleeper, as in virtual
	// machines, and latency is worth the processor's time, more may pay.
	Spin time.Duration
	// Solicited sleeps through completions that are not solicited; one that comes
	// while the waiter spins is returned all the same. It is for receive queues.
	Solicited bool
	// Thread parks the operating-system thread, as with Event.
	Thread bool
}

// defaultSpin is the meaning of Adaptive.Spin = 0.
const defaultSpin = 20 * time.Microsecond

func (s Adaptive) check() error {
	if s.Spin < 0 {
		return fmt.Errorf("poll: Adaptive.Spin is %v: it must not be negative; poll.Event sleeps at once", s.Spin)
	}
	return nil
}

func (s Adaptive) newWait(w *Waiter) (waiting, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if s.Spin == 0 {
		s.Spin = defaultSpin
	}
	v, err := newEvent(w, Event{Solicited: s.Solicited, Thread: s.Thread})
	if err != nil {
		return nil, err
	}
	most := int64(s.Spin)
	return &adaptive{event: v, forecast: newForecast(most)}, nil
}

type adaptive struct {
	*event
	forecast
	seat atomic.Bool // held: it may spin
}

const (
	// stride is how many polls of queues go by before a spin reads the clock for
	// the first time, which costs as much as several of them. A poller that finds
	// its completions so soon reads no clock at all; whether they took half a
	// microsecond or a whole one changes nothing.
	stride = 64
	// step is how many do between any two readings after that, about, with pauses
	// between the looks.
	step = 16
	// mostPauses is how many there are between two looks at most: enough to leave
	// the core to its other thread, and less than a spin gains.
	mostPauses = 4
	// leastLook is less than a look with a pause takes. It bounds a spin where the
	// clock stands still, as it does in a bubble of testing/synctest.
	leastLook = 10
	// yields is how often a waiter that has the only processor lets others run.
	yields = 4
)

func (a *adaptive) wait(ctx context.Context, wcs []cq.WC) (int, error) {
	spun := int64(0)
	if budget := a.budget(); budget > 0 {
		var n int
		var err error
		if a.sit() {
			n, spun, err = a.spin(ctx, wcs, budget)
			a.w.count.spun.Add(uint64(spun))
			if n > 0 {
				a.came(spun)
			}
		} else if runtime.GOMAXPROCS(0) == 1 {
			n, err = a.yield(ctx, wcs)
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	a.stand()
	before := a.w.count.slept.Load()
	n, err := a.event.wait(ctx, wcs)
	if slept := a.w.count.slept.Load() - before; slept > 0 {
		a.slept(spun, int64(slept))
	} else {
		a.came(spun)
	}
	return n, err
}

// spin looks until something comes or the budget is spent, and says what it spent.
func (a *adaptive) spin(ctx context.Context, wcs []cq.WC, budget int64) (n int, spun int64, err error) {
	look := onePoll * int64(len(a.w.queues))
	for range min(stride*onePoll, budget)/look + 1 {
		if n, err = a.w.look(wcs); n > 0 || err != nil {
			return n, spun, err
		}
		spun += look
	}
	start := time.Now().Add(-time.Duration(spun))
	pauses := uint32(1)
	for range budget/(step*leastLook) + 1 {
		if err = a.w.ended(ctx); err != nil {
			return 0, spun, err
		}
		if spun = max(int64(time.Since(start)), 0); spun >= budget {
			break
		}
		for range step/len(a.w.queues) + 1 {
			pause(pauses)
			if n, err = a.w.look(wcs); n > 0 || err != nil {
				return n, spun, err
			}
		}
		pauses = min(2*pauses, mostPauses)
	}
	return 0, spun, nil
}

// yield lets other goroutines run, which may be those that bring completions.
func (a *adaptive) yield(ctx context.Context, wcs []cq.WC) (int, error) {
	for range yields {
		runtime.Gosched()
		if err := a.w.ended(ctx); err != nil {
			return 0, err
		}
		if n, err := a.w.look(wcs); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// adaptiveSpinners counts the waiters that have a seat.
var adaptiveSpinners atomic.Int32

// sit says whether this waiter may spin. It keeps its seat from one Wait to the next
// until it sleeps: a poller that finds its completions by spinning writes nothing that
// others write.
func (a *adaptive) sit() bool {
	if a.seat.Load() {
		return true
	}
	if int(adaptiveSpinners.Add(1)+busyWaiters.Load()) >= runtime.GOMAXPROCS(0) {
		adaptiveSpinners.Add(-1)
		return false
	}
	a.seat.Store(true)
	if a.w.word.Load()&closed != 0 {
		a.stand() // Close may have come before there was a seat to give back
		return false
	}
	return true
}

// stand gives the seat to whoever wants it.
func (a *adaptive) stand() {
	if a.seat.Load() && a.seat.Swap(false) {
		adaptiveSpinners.Add(-1)
	}
}

func (a *adaptive) close() error {
	a.stand()
	return a.event.close()
}
