package poll

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// What a waiter makes of the gaps that it sees, without a clock.
func TestForecast(t *testing.T) {
	const most, sleep = 20_000, 9_000
	f := forecast{most: most, price: most}
	if b := f.budget(); b != most {
		t.Errorf("knowing nothing it spins for %d, want %d", b, most)
	}
	// wait is one completion after a gap, with what spinning and waking make of it.
	wait := func(gap int64) (spun int64) {
		if spun = f.budget(); gap <= spun {
			f.came(gap)
			return gap
		}
		f.slept(spun, gap-spun+sleep)
		return spun
	}
	for range 3 {
		// Far apart: it spins no more than a few times, then never.
		spun, before := int64(0), f.budget()
		for range 1000 {
			spun += wait(1_000_000)
		}
		if spun > 4*before || f.budget() != 0 {
			t.Errorf("a thousand gaps of 1ms: spun for %d ns in all, next budget %d", spun, f.budget())
		}
		// Near again: after some ten it finds all by spinning.
		waits := 1
		for ; f.budget() == 0; waits++ {
			wait(2_000)
			if waits > 20 {
				t.Fatalf("sleeps still after %d gaps of 2us", waits)
			}
		}
		for range 1000 {
			wait(2_000)
			if f.budget() == 0 {
				t.Fatal("sleeps between completions 2us apart")
			}
		}
		// One pause among many short gaps does not stop it, many do.
		if wait(1_000_000); f.budget() == 0 {
			t.Error("one pause is the end of spinning")
		}
		for range 100 {
			wait(2_000)
		}
	}
	// It has learnt what a sleep costs, and does not spin for longer than that, for
	// gaps beyond it neither.
	for range 200 {
		f.slept(0, sleep)
	}
	if f.price < sleep*9/10 || f.price > sleep*11/10 || f.budget() != f.price {
		t.Errorf("sleeps of %d have the price %d, budget %d", sleep, f.price, f.budget())
	}
	for range 200 {
		f.came(sleep * 3 / 2)
	}
	if b := f.budget(); b != 0 {
		t.Errorf("spins for %d where gaps are longer than a sleep", b)
	}
}

// Whatever it sees, the numbers stay in their bounds.
func TestForecastBounds(t *testing.T) {
	for _, most := range []int64{1, 3, 100, leastPrice, 20_000, int64(time.Second), int64(time.Hour)} {
		rng := rand.New(rand.NewPCG(uint64(most), 1))
		f := forecast{most: most, price: most}
		for range 10_000 {
			a, b := rng.Int64()>>rng.IntN(63), rng.Int64()>>rng.IntN(63)
			if rng.IntN(2) == 0 {
				f.came(a / 2)
			} else {
				f.slept(a/2, b/2)
			}
			if f.gap < 0 || f.gap > farGaps*most || f.price < min(most, leastPrice) || f.price > most || f.budget() > most {
				t.Fatalf("most %d: after %d and %d: %+v, budget %d", most, a, b, f, f.budget())
			}
		}
	}
}

// A waiter that sleeps does not poll, and after a pause it does not begin with a spin.
func TestAdaptiveIdle(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		w, err := NewWaiter(Adaptive{}, q)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var wcs [4]cq.WC
		polls := func() int {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.polls
		}
		for i := range uint64(20) {
			before := polls()
			var asleep atomic.Int64
			time.AfterFunc(time.Second, func() { asleep.Store(int64(polls())) })
			time.AfterFunc(time.Hour, func() {
				if n := polls() - int(asleep.Load()); n != 0 {
					t.Errorf("%d polls in an hour of sleep", n)
				}
				q.add(i)
			})
			if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil || wcs[0].ID != i {
				t.Fatalf("%d, %v, %+v", n, err, wcs[0])
			}
			// One look on entry, one after arming, one that finds it.
			if n := polls() - before; i >= 5 && n != 3 {
				t.Errorf("wait %d polled %d times, want 3", i, n)
			}
		}
		if s := w.Stats(); s.Parks != 20 || s.Events != 20 || s.Spurious != 0 || s.Slept != 20*time.Hour {
			t.Errorf("%+v", s)
		}
	})
}

// While completions come fast, no Wait sleeps or arms, and after one that did, it
// gives its seat back.
func TestAdaptiveSpins(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	q := &fakeQueue{}
	w, err := NewWaiter(Adaptive{Spin: time.Minute}, q)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var wcs [4]cq.WC
	for i := range 100 {
		left := i * 7
		q.hook = func() {
			if left--; left == 0 {
				q.add(1)
			}
		}
		if left == 0 {
			q.add(1)
		}
		if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if s := w.Stats(); q.arms != 0 || s.Parks != 0 || s.Slept != 0 || s.Spun == 0 || s.Completions != 100 || s.Waits != 100 {
		t.Errorf("armed %d times, %+v", q.arms, s)
	}
	if n := adaptiveSpinners.Load(); n != 1 {
		t.Errorf("%d seats taken, want 1", n)
	}
	w.Close()
	if n := adaptiveSpinners.Load(); n != 0 {
		t.Errorf("%d seats taken after Close", n)
	}
}

// No more waiters spin than leave a processor to the program. The others sleep, and
// spin when there is a seat again.
func TestAdaptiveSeats(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	var all []*Waiter
	var queues []*fakeQueue
	add := func(s Strategy) {
		q := &fakeQueue{}
		w, err := NewWaiter(s, q)
		if err != nil {
			t.Fatal(err)
		}
		all, queues = append(all, w), append(queues, q)
	}
	for range 4 {
		add(Adaptive{Spin: time.Minute})
	}
	// spins waits once, for something that comes after many looks, and says whether
	// the waiter spun until then or armed.
	spins := func(i int) bool {
		q := queues[i]
		looks, arms := 0, q.arms
		q.hook = func() {
			if looks++; looks == 1000 || q.arms > arms {
				q.hook = nil
				q.add(1)
			}
		}
		var wcs [1]cq.WC
		if n, err := all[i].Wait(t.Context(), wcs[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		return q.arms == arms
	}
	want := func(what string, want ...bool) {
		t.Helper()
		for i, w := range want {
			if got := spins(i); got != w {
				t.Errorf("%s: waiter %d spins: %v, want %v", what, i, got, w)
			}
		}
	}
	want("two seats", true, true, false, false)
	all[0].Close()
	all, queues = all[1:], queues[1:]
	want("one was closed", true, true, false)
	all[0].Close()
	all[1].Close()
	all, queues = all[2:], queues[2:]
	add(Busy{})
	add(Adaptive{Spin: time.Minute})
	if !spins(0) || spins(2) {
		t.Error("one busy and two adaptive waiters: want the first to spin and the other not")
	}
	for _, w := range all {
		w.Close()
	}
	if n := adaptiveSpinners.Load(); n != 0 {
		t.Errorf("%d seats taken after all were closed", n)
	}
}

// With one processor, what brings the completion needs it.
func TestAdaptiveOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	q := &fakeQueue{}
	w, err := NewWaiter(Adaptive{Spin: time.Minute}, q)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	start := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range start {
			q.add(1)
		}
	}()
	var wcs [1]cq.WC
	for range 100 {
		start <- struct{}{}
		if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	close(start)
	<-done
	if n := adaptiveSpinners.Load(); n != 0 {
		t.Errorf("%d seats taken where there is none", n)
	}
	if s := w.Stats(); s.Looks > s.Waits*(yields+3)+s.Parks {
		t.Errorf("it spun: %+v", s)
	}
}

func TestAdaptiveRefuses(t *testing.T) {
	if w, err := NewWaiter(Adaptive{Spin: -1}, &fakeQueue{}); err == nil || !strings.Contains(err.Error(), "-1ns") {
		t.Error(w, err)
	}
}
