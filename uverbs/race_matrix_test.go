package uverbs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// race is something that is done while something else goes on.
type race struct {
	name   string
	victim victim
	// What Flush on the first track, and Poll and Wait, may say meanwhile,
	// besides nothing. all says that it hits the bystander too.
	flush, poll error
	all         bool
	shared      bool // the queue may have several pollers
	receive     bool // receives are posted, too
	carried     bool // no send may be flushed
	// loses says that what was accepted may be lost, by track.
	loses [tracks]bool
	// What act leaves unusable and is made again before each round: the
	// device, the CQ, the first queue pair. Otherwise it is made once.
	device, cq, qp bool
	act            func(a *arena, rng *rand.Rand)
	dear           bool // it takes milliseconds
}

type victim int

const (
	polling victim = iota
	waiting
	flushing
)

func (v victim) String() string { return [...]string{"Poll", "Wait", "Flush"}[v] }

// races are the deeds.
var races = []race{
	{
		name: "Close of the queue pair", flush: os.ErrClosed, receive: true, loses: [tracks]bool{true, false}, qp: true,
		act: func(a *arena, _ *rand.Rand) { a.try(a.qps[0].Close()) },
	},
	{
		name: "Close of the CQ", flush: os.ErrClosed, poll: os.ErrClosed, all: true, receive: true, loses: [tracks]bool{true, true}, cq: true,
		act: func(a *arena, _ *rand.Rand) {
			a.try(errors.Join(a.qps[0].Close(), a.qps[1].Close(), a.q.Close()))
			a.closed.Store(true)
		},
	},
	{
		name: "Resize", carried: true, act: func(a *arena, rng *rand.Rand) {
			for range 1 + rng.IntN(2) {
				a.try(a.q.Resize(a.ctx, 2*tracks*trackDepth+rng.IntN(100)))
			}
		},
	},
	{
		name: "Reset", flush: ErrState, receive: true, act: func(a *arena, _ *rand.Rand) {
			a.try(a.qps[0].Modify(StateReset))
			a.again()
		},
	},
	{
		name: "Shutdown", flush: ErrState, receive: true, carried: true, dear: true, act: func(a *arena, _ *rand.Rand) {
			a.try(a.qps[0].Shutdown(a.ctx))
			a.again()
		},
	},
	{
		name: "Device.Close", flush: os.ErrClosed, poll: os.ErrClosed, all: true, receive: true, loses: [tracks]bool{true, true}, device: true,
		act: func(a *arena, _ *rand.Rand) {
			a.try(a.dev.Close())
			a.closed.Store(true)
		},
	},
	{
		name: "a second poller", shared: true, carried: true, act: func(a *arena, rng *rand.Rand) {
			if a.waiter != nil {
				if w, err := poll.NewWaiter(poll.Event{}, a.q); !errors.Is(err, ErrBusy) {
					a.t.Errorf("a second waiter: %v, %v", w, err)
				}
			}
			left := 1 + rng.IntN(6)
			a.try(a.poller(nil, &a.tallies[1], rng, func() bool { left--; return left >= 0 }))
		},
	},
}

func (a *arena) try(err error) {
	if err != nil {
		a.t.Error(err)
	}
}

// again makes a queue pair that was reset as it was. It leaves RESET only when
// the poller has seen the ends of all that was posted before.
func (a *arena) again() {
	for {
		err := a.qps[0].Restart()
		if err == nil {
			break
		}
		if !errors.Is(err, ErrState) {
			a.t.Errorf("restart: %v", err)
		}
		if a.stuck.Load() {
			return
		}
		runtime.Gosched()
	}
	a.connect(0)
}

// Every deed, beside everybody who may be in the middle of something: no fault,
// the documented errors, nothing twice, nothing lost that was promised, nothing
// left behind.
//
// GOVERBS_ROUNDS sets how often; the full number is 100000.
func TestRaces(t *testing.T) {
	for _, r := range races {
		for _, v := range []victim{polling, waiting, flushing} {
			r.victim = v
			t.Run(fmt.Sprintf("%s beside %v", r.name, v), func(t *testing.T) {
				usual := 60
				if r.dear || raceDetector {
					usual = 15
				}
				runRace(t, r, roundsOr(t, usual))
			})
		}
	}
}

// runRace holds a race so many times on fake kernels.
func runRace(t *testing.T, r race, rounds int) {
	const perKernel = 500
	for done := 0; done < rounds; {
		k := fakekernel.New(fakekernel.Device{ReuseQPN: true})
		n := min(perKernel, rounds-done)
		holdRaces(t, &r, n, uint64(done), place{
			open:  func() (*Device, error) { return on(k).open("rxe0", nil) },
			alloc: func() (*Memory, error) { return allocOn(k, 4096, nil) },
		})
		done += n
		for _, l := range append(k.Leaks(), k.Violations()...) {
			t.Error(l)
		}
		if t.Failed() {
			t.Fatalf("in the first %d rounds", done)
		}
	}
}

// place is where an arena is.
type place struct {
	open  func() (*Device, error)
	alloc func() (*Memory, error)
	// noThreads: completion channels have no descriptors.
	noThreads bool
}

// holdRaces holds a race so many times in one arena.
func holdRaces(t *testing.T, r *race, rounds int, seed uint64, where place) {
	a := newArena(t, CQOptions{Events: true, Shared: r.shared}, seed)
	defer a.watch.Stop()
	a.receive, a.carried, a.noThreads = r.receive, r.carried, where.noThreads
	wait := r.victim == waiting || r.victim == flushing && a.rng.IntN(2) == 0
	mem, err := where.alloc()
	a.must(err)
	for n := range rounds {
		if n == 0 || r.device {
			dev, err := where.open()
			a.must(err)
			a.useDevice(dev, mem)
		}
		if n == 0 || r.device || r.cq {
			a.makeCQ(wait)
			a.makeQP(1)
		}
		if n == 0 || r.device || r.cq || r.qp {
			a.makeQP(0)
		}
		a.round(r)
		if r.qp {
			a.qps[0].Close()
		}
		if r.cq || r.device {
			a.afterClose()
		}
		if t.Failed() {
			t.Fatalf("in round %d of seed %d", n, seed)
		}
	}
	if !r.cq && !r.device {
		if r.qp {
			a.makeQP(0)
		}
		a.settle()
	}
	if a.waiter != nil && !r.cq && !r.device {
		a.must(a.waiter.Close())
	}
	if s := a.q.Stats(); s.Stray != 0 || s.Late != 0 && !r.loses[0] {
		t.Errorf("dropped %+v", s)
	}
	a.audit(r.loses)
	if !r.device {
		a.must(a.dev.Close())
	}
	a.must(mem.Close())
}

// afterClose sees that the queue stays closed.
func (a *arena) afterClose() {
	var wcs [1]WC
	if n, err := a.q.Poll(wcs[:]); n != 0 || !errors.Is(err, os.ErrClosed) {
		a.t.Errorf("Poll after Close: %d, %v", n, err)
	}
	if a.waiter != nil {
		if n, err := a.waiter.Wait(a.ctx, wcs[:]); n != 0 || !errors.Is(err, os.ErrClosed) {
			a.t.Errorf("Wait after Close: %d, %v", n, err)
		}
		a.must(a.waiter.Close())
	}
}
