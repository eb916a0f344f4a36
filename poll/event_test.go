package poll

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// No interleaving of a device that adds completions with poll, arm, take and
// wait sleeps while a completion is there. A sleep that nobody ends is a deadlock
// of the synctest bubble; one that the next completion ends is looked into then.
func TestNeverSleepsOnACompletion(t *testing.T) {
	for name, s := range map[string]Strategy{"event": Event{}, "adaptive": Adaptive{Spin: 1}} {
		t.Run(name, func(t *testing.T) { neverSleepsOnACompletion(t, s) })
	}
}

func neverSleepsOnACompletion(t *testing.T, s Strategy) {
	const perRun, runs = 20, 3000
	for seed := range uint64(runs) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			queues := make([]*fakeQueue, 1+rng.IntN(3))
			all := make([]cq.Queue, len(queues))
			added, busy := 0, false
			for i := range queues {
				q := &fakeQueue{}
				// The device works whenever the waiter comes up for air,
				// and only then: if the waiter sleeps, nothing else comes
				// but what the goroutine below adds at the very end.
				q.hook = func() {
					if busy || added >= perRun || rng.IntN(4) > 0 {
						return
					}
					busy = true
					k := queues[rng.IntN(len(queues))]
					for n := 1 + rng.IntN(3); n > 0 && added < perRun; n-- {
						k.add(uint64(added))
						added++
					}
					busy = false
				}
				queues[i], all[i] = q, q
			}
			w, err := NewWaiter(s, all...)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			seen := map[uint64]bool{}
			wcs := make([]cq.WC, 1+rng.IntN(4))
			for len(seen) < perRun {
				if len(seen) == added {
					// All was delivered: the device adds one while the
					// waiter sleeps.
					id := uint64(added)
					added++
					q := queues[rng.IntN(len(queues))]
					time.AfterFunc(time.Second, func() {
						// Time passes in the bubble only while all sleep.
						for i, k := range queues {
							k.mu.Lock()
							n := len(k.ready)
							k.mu.Unlock()
							if n > 0 {
								t.Errorf("seed %d: asleep beside %d completions in queue %d", seed, n, i)
							}
						}
						q.add(id)
					})
				}
				n, err := w.Wait(context.Background(), wcs)
				if err != nil || n == 0 {
					t.Fatalf("Wait: %d, %v", n, err)
				}
				for _, c := range wcs[:n] {
					if seen[c.ID] {
						t.Fatalf("completion %d twice", c.ID)
					}
					seen[c.ID] = true
				}
			}
		})
	}
}

// A wait that is cancelled at any point has taken no completion.
func TestCancelledAnywhere(t *testing.T) {
	for _, s := range []Strategy{Event{}, Adaptive{Spin: 1}} {
		cancelledAnywhere(t, s)
	}
}

func cancelledAnywhere(t *testing.T, s Strategy) {
	for cancelAt := range 12 {
		synctest.Test(t, func(t *testing.T) {
			q := &fakeQueue{}
			ctx, cancel := context.WithCancelCause(context.Background())
			why := errors.New("enough")
			step := 0
			q.hook = func() {
				if step == cancelAt {
					cancel(why)
				}
				step++
			}
			w, err := NewWaiter(s, q)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			timer := time.AfterFunc(time.Second, func() { cancel(why) })
			defer timer.Stop()
			var wcs [4]cq.WC
			if n, err := w.Wait(ctx, wcs[:]); n != 0 || !errors.Is(err, why) {
				t.Fatalf("%+v cancelled at step %d: %d, %v", s, cancelAt, n, err)
			}
			q.hook = nil
			q.add(7)
			if n, err := w.Wait(context.Background(), wcs[:]); n != 1 || err != nil || wcs[0].ID != 7 {
				t.Fatalf("after a cancelled wait: %d, %v, %+v", n, err, wcs[0])
			}
		})
	}
}

// Completions come before the error of a queue, and the error stays.
func TestErrorComesLast(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	broken := errors.New("queue broke")
	for name, s := range map[string]Strategy{"busy": Busy{}, "event": Event{}, "adaptive": Adaptive{}} {
		t.Run(name, func(t *testing.T) {
			a, b := &fakeQueue{}, &fakeQueue{}
			w, err := NewWaiter(s, a, b)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			a.add(1, 2)
			b.add(3)
			a.fail(broken)
			var wcs [1]cq.WC
			for range 3 {
				if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
					t.Fatalf("Wait: %d, %v", n, err)
				}
			}
			for range 2 {
				if n, err := w.Wait(t.Context(), wcs[:]); n != 0 || !errors.Is(err, broken) {
					t.Fatalf("Wait: %d, %v, want the queue's error", n, err)
				}
			}
		})
	}
}

// A queue that failed does not stand before another one's completions.
func TestErrorBesideCompletions(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	broken := errors.New("queue broke")
	for name, s := range map[string]Strategy{"busy": Busy{}, "event": Event{}, "adaptive": Adaptive{}} {
		for i := range 2 {
			queues := [2]*fakeQueue{{}, {}}
			w, err := NewWaiter(s, queues[0], queues[1])
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			queues[i].fail(broken)
			queues[1-i].add(1, 2)
			var wcs [4]cq.WC
			if n, err := w.Wait(t.Context(), wcs[:]); n != 2 || err != nil {
				t.Errorf("%s: queue %d failed: %d, %v, want the other's completions", name, i, n, err)
			}
			if n, err := w.Wait(t.Context(), wcs[:]); n != 0 || !errors.Is(err, broken) {
				t.Errorf("%s: queue %d failed: %d, %v, want the error", name, i, n, err)
			}
			w.Close()
		}
	}
}

// A channel that fails ends a wait, after the completions that are there.
func TestTakeError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("cannot read")
		q := &fakeQueue{}
		w, err := NewWaiter(Event{}, q)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		time.AfterFunc(time.Second, func() {
			q.mu.Lock()
			q.takeErr = broken
			q.mu.Unlock()
			q.add(1)
		})
		var wcs [4]cq.WC
		if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
			t.Errorf("Wait: %d, %v, want a completion", n, err)
		}
		time.AfterFunc(time.Second, q.poke)
		if n, err := w.Wait(t.Context(), wcs[:]); n != 0 || !errors.Is(err, broken) {
			t.Errorf("Wait: %d, %v, want %v", n, err, broken)
		}
	})
}

// watchedContext counts the functions that wait for its end.
type watchedContext struct {
	context.Context
	done chan struct{}
	made int
	open int
}

func (c *watchedContext) Done() <-chan struct{} { return c.done }

func (c *watchedContext) AfterFunc(func()) func() bool {
	c.made++
	c.open++
	return func() bool { c.open--; return true }
}

// A waiter watches a context once, as long as it waits with that one.
func TestWatchesOneContext(t *testing.T) {
	q := &fakeQueue{}
	w, err := NewWaiter(Event{}, q)
	if err != nil {
		t.Fatal(err)
	}
	contexts := [2]*watchedContext{}
	for i := range contexts {
		contexts[i] = &watchedContext{Context: context.Background(), done: make(chan struct{})}
	}
	var wcs [1]cq.WC
	for i, ctx := range contexts {
		for range 3 {
			q.hook = func() {
				if q.armed { // so that it gets as far as to look after arming
					q.hook = nil
					q.add(1)
				}
			}
			if n, err := w.Wait(ctx, wcs[:]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if ctx.made != 1 || ctx.open != 1 {
			t.Errorf("context %d: %d watches made, %d open, want 1", i, ctx.made, ctx.open)
		}
	}
	if contexts[0].open != 0 {
		t.Error("the context before is still watched")
	}
	w.Close()
	if contexts[1].open != 0 {
		t.Error("a closed waiter still watches its context")
	}
}

// A queue that fails, and a waiter that is closed, end a wait that sleeps.
func TestSleepEnds(t *testing.T) {
	for name, end := range map[string]func(w *Waiter, q *fakeQueue){
		"queue closed":  func(w *Waiter, q *fakeQueue) { q.fail(os.ErrClosed) },
		"waiter closed": func(w *Waiter, q *fakeQueue) { w.Close() },
	} {
		for how, channel := range map[string]bool{"wakes": false, "descriptor": true} {
			t.Run(name+", "+how, func(t *testing.T) {
				for _, e := range []Strategy{Event{}, Event{Thread: true}, Adaptive{}, Adaptive{Thread: true}} {
					if threads(e) && !channel {
						continue
					}
					q := &fakeQueue{}
					if channel && !withPipe(t, q) {
						continue
					}
					w, err := NewWaiter(e, q)
					if err != nil {
						t.Fatal(err)
					}
					time.AfterFunc(20*time.Millisecond, func() { end(w, q) })
					var wcs [1]cq.WC
					if n, err := w.Wait(t.Context(), wcs[:]); n != 0 || !errors.Is(err, os.ErrClosed) {
						t.Errorf("%+v: Wait: %d, %v", e, n, err)
					}
					w.Close()
					if q.attached != 0 {
						t.Errorf("the queue still has %d waiters", q.attached)
					}
				}
			})
		}
	}
}

func TestArmError(t *testing.T) {
	broken := errors.New("cannot arm")
	q := &fakeQueue{armErr: broken}
	w, err := NewWaiter(Event{}, q)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var wcs [1]cq.WC
	if n, err := w.Wait(t.Context(), wcs[:]); n != 0 || !errors.Is(err, broken) {
		t.Fatalf("Wait: %d, %v", n, err)
	}
}

// A queue that is armed is not armed again before its event came.
func TestArmsOncePerEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		w, err := NewWaiter(Event{}, q)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var wcs [4]cq.WC
		for i := range uint64(10) {
			time.AfterFunc(time.Second, func() { q.add(i) })
			if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if q.arms != 10 {
			t.Errorf("armed %d times for 10 events", q.arms)
		}
	})
}

// A wait that ended without an event, of which nobody knows whether it was lost, does not
// trust the arm of before.
func TestArmsAgainWithoutEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		w, err := NewWaiter(Event{}, q)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var wcs [1]cq.WC
		for i := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if n, err := w.Wait(ctx, wcs[:]); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d, %v", n, err)
			}
			cancel()
			if q.arms != i+1 {
				t.Errorf("armed %d times in %d waits", q.arms, i+1)
			}
		}
	})
}

// threads says whether a strategy parks threads, for which it needs descriptors.
func threads(s Strategy) bool {
	switch s := s.(type) {
	case Event:
		return s.Thread
	case Adaptive:
		return s.Thread
	}
	return false
}
