package poll

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
)

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
		// The last event is left for the next Wait.
		if s := w.Stats(); s.Parks != 20 || s.Events != 19 || s.Spurious != 0 || s.Slept != 20*time.Hour {
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
