package poll

// Faults that other projects' event loops had, one test for each kind. The numbers
// are those of a collection of such reports; the addresses are where they are
// public. The faults of soft-RoCE and of verbs programs in general are in the
// bugs_test.go of packages cq, rxe and uverbs.

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// Arming says nothing of completions that are there already: whoever polls, arms and
// sleeps loses what came in between. (Discussed on the linux-rdma list in 2021.)
func TestBug01CompletionBeforeArm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		w, err := NewWaiter(Event{}, q)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		q.hook = func() {
			if !q.armed && q.arms == 0 { // polled, found empty, not armed yet
				q.hook = nil
				q.add(1)
			}
		}
		start := time.Now()
		time.AfterFunc(time.Hour, func() { q.add(2) })
		var wcs [4]cq.WC
		if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil || wcs[0].ID != 1 || time.Since(start) != 0 {
			t.Errorf("Wait: %d, %v, %+v after %v", n, err, wcs[0], time.Since(start))
		}
		if q.events != 0 {
			t.Errorf("%d events: the test says nothing", q.events)
		}
	})
}

// A caller whose buffer is smaller than what is in the queue leaves the rest behind,
// for which no event will come. https://github.com/ofiwg/libfabric/issues/796
func TestBug02WaitReturnsWhatASmallBufferLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for size := 1; size < 6; size++ {
			q := &fakeQueue{}
			w, err := NewWaiter(Event{}, q)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Second, func() {
				for i := range uint64(size + 1) {
					q.add(i)
				}
			})
			start := time.Now()
			wcs := make([]cq.WC, size)
			for i, want := range []int{size, 1} {
				n, err := w.Wait(t.Context(), wcs)
				if n != want || err != nil || wcs[n-1].ID != uint64(i*size+want-1) {
					t.Errorf("buffer of %d, Wait %d: %d, %v", size, i, n, err)
				}
			}
			if d := time.Since(start); d != time.Second {
				t.Errorf("buffer of %d: all were there after 1s, returned after %v", size, d)
			}
			w.Close()
		}
	})
}

// One event stands for any number of completions: a loop that takes one batch for
// each event falls asleep beside the rest. https://github.com/linux-rdma/perftest/pull/203
func TestBug03OneEventForSeventeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		w, err := NewWaiter(Event{}, q)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var wcs [16]cq.WC
		for round := range 3 {
			time.AfterFunc(time.Second, func() {
				var ids [17]uint64
				q.add(ids[:]...) // all at once: one event
			})
			start := time.Now()
			for seen := 0; seen < 17; {
				n, err := w.Wait(t.Context(), wcs[:])
				if err != nil {
					t.Fatal(err)
				}
				seen += n
			}
			if d := time.Since(start); d != time.Second {
				t.Errorf("round %d: the last of 17 came after %v, want 1s", round, d)
			}
		}
	})
}

// Whether arming reports what it missed or, as here, a second look has to find it:
// at whatever points of a wait the device adds its completions, the waiter does not
// sleep while one is there. Every schedule of up to three completions on one or two
// queues is tried. https://github.com/openucx/ucx/pull/1561
func TestBug04NoScheduleSleepsOnACompletion(t *testing.T) {
	for name, how := range map[string]Strategy{"event": Event{}, "adaptive": Adaptive{Spin: 1}} {
		t.Run(name, func(t *testing.T) { bug04Schedules(t, how) })
	}
}

func bug04Schedules(t *testing.T, how Strategy) {
	const last = 14 // points of a wait at which the device is tried, and one beyond
	schedules := 0
	for queues := 1; queues <= 2; queues++ {
		for a := range last {
			for b := a; b < last; b++ {
				for c := b; c < last; c++ {
					for size := 1; size <= 2; size++ {
						schedules++
						synctest.Test(t, func(t *testing.T) {
							bug04(t, how, [3]int{a, b, c}, queues, size)
						})
						if t.Failed() {
							t.Fatalf("completions at points %d, %d and %d, %d queues, buffer of %d", a, b, c, queues, size)
						}
					}
				}
			}
		}
	}
	t.Logf("%d schedules", schedules)
}

func bug04(t *testing.T, how Strategy, at [3]int, queues, size int) {
	var fakes []*fakeQueue
	var all []cq.Queue
	var mu sync.Mutex // the timer below has a goroutine of its own
	step, added := 0, 0
	add := func() {
		added++
		fakes[added%queues].add(uint64(added))
	}
	for range queues {
		q := &fakeQueue{}
		q.hook = func() {
			mu.Lock()
			defer mu.Unlock()
			for added < len(at) && at[added] <= step {
				add()
			}
			step++
		}
		fakes, all = append(fakes, q), append(all, q)
	}
	w, err := NewWaiter(how, all...)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	wcs := make([]cq.WC, size)
	for seen := 0; seen < len(at); {
		// What was to come at a point that the wait does not reach comes while
		// it sleeps: time passes only then.
		timer := time.AfterFunc(time.Second, func() {
			for i, q := range fakes {
				q.mu.Lock()
				n := len(q.ready)
				q.mu.Unlock()
				if n > 0 {
					t.Errorf("asleep beside %d completions of queue %d", n, i)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if added < len(at) {
				add()
			}
		})
		n, err := w.Wait(t.Context(), wcs)
		if err != nil {
			t.Fatal(err)
		}
		timer.Stop()
		seen += n
	}
}

// A queue that is flooded does not keep a poller from others, and is left only when
// it is empty. (Linux's SMC protocol tried to re-arm inside of its loop, and went
// back to a budget.)
func TestBug12FloodBesideAnotherQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flood, other := &fakeQueue{}, &fakeQueue{}
		flooding := true
		flood.hook = func() {
			if flooding && len(flood.ready) < 8 {
				flood.add(1, 1, 1, 1)
			}
		}
		w, err := NewWaiter(Event{}, flood, other)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var wcs [2]cq.WC // less than the flood brings
		for round := range 20 {
			other.add(2)
			waits := 0
			for seen := false; !seen; waits++ {
				n, err := w.Wait(t.Context(), wcs[:])
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range wcs[:n] {
					seen = seen || c.ID == 2
				}
			}
			if waits > 2 {
				t.Fatalf("round %d: a queue beside a flood was served after %d waits", round, waits)
			}
		}
		flooding = false
		start := time.Now()
		time.AfterFunc(time.Second, func() { other.add(3) })
		for wcs[0].ID != 3 {
			if _, err := w.Wait(t.Context(), wcs[:]); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(flood.ready); n != 0 || time.Since(start) != time.Second {
			t.Errorf("asleep for %v beside %d completions", time.Since(start), n)
		}
	})
}
