package poll

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// every is each strategy that there is, those that need descriptors included.
var every = []Strategy{Busy{}, Event{}, Event{Solicited: true}, Event{Thread: true}, Adaptive{}, Adaptive{Spin: time.Hour}, Adaptive{Spin: time.Microsecond, Thread: true}}

// leavesNothing checks that the waiters on the queues are gone.
func leavesNothing(t *testing.T, queues ...*fakeQueue) {
	t.Helper()
	if b, a := busyWaiters.Load(), adaptiveSpinners.Load(); b != 0 || a != 0 {
		t.Errorf("%d busy waiters, %d spinning ones are left", b, a)
	}
	for _, q := range queues {
		q.mu.Lock()
		if q.attached != 0 || q.wake != nil {
			t.Errorf("%d waiters are left on a queue", q.attached)
		}
		q.mu.Unlock()
	}
}

// From each strategy to each other one, while a Wait is under way and between two: the
// Wait goes on in the new way, and what comes after the switch arrives.
func TestSetStrategy(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, from := range every {
		for _, to := range every {
			for _, channel := range []bool{false, true} {
				t.Run(fmt.Sprintf("%T%+v to %T%+v, descriptor %v", from, from, to, to, channel), func(t *testing.T) {
					if !channel && (threads(from) || threads(to)) {
						return // which need descriptors
					}
					setStrategy(t, from, to, channel)
				})
			}
		}
	}
}

func setStrategy(t *testing.T, from, to Strategy, channel bool) {
	q := &fakeQueue{}
	if channel && !withPipe(t, q) {
		return
	}
	w, err := NewWaiter(from, q)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	var wcs [4]cq.WC
	wait := func() {
		n, err := w.Wait(t.Context(), wcs[:])
		if err == nil && (n != 1 || wcs[0].ID != 7) {
			err = fmt.Errorf("%d completions, first %d", n, wcs[0].ID)
		}
		got <- err
	}
	for range 2 {
		go wait()
		for _, s := range []Strategy{to, from, to} {
			if err := w.SetStrategy(s); err != nil {
				t.Fatal(err)
			}
			// Promptly: it does not take a completion.
			until(t, func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.strategy == s && w.coming == nil
			})
		}
		q.add(7)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		// With nobody waiting: there and back, and there.
		for _, s := range []Strategy{from, to, from} {
			if err := w.SetStrategy(s); err != nil {
				t.Fatal(err)
			}
		}
		q.add(7)
		go wait()
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		attached := q.attached
		if _, sleeps := w.how.(sleeper); attached != 0 && !sleeps && w.coming == nil || attached == 0 && sleeps || attached > 1 {
			t.Errorf("%T has the queue attached %d times", w.how, attached)
		}
		w.mu.Unlock()
	}
	// Close ends what is at work and what is to come.
	if err := w.SetStrategy(to); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.SetStrategy(from); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	leavesNothing(t, q)
}

// until waits for a condition.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("it does not come about")
		}
	}
}

// What cannot be leaves what is.
func TestSetStrategyRefuses(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	none := errors.New("made without events")
	q, other := &fakeQueue{noEvents: none}, &fakeQueue{}
	w, err := NewWaiter(Busy{}, q)
	if err != nil {
		t.Fatal(err)
	}
	sleeps, err := NewWaiter(Event{}, other)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range every[1:] {
		if err := w.SetStrategy(s); !errors.Is(err, none) {
			t.Errorf("%T%+v on a queue without events: %v", s, s, err)
		}
	}
	if err := w.SetStrategy(nil); err == nil {
		t.Error("no strategy was accepted")
	}
	if err := w.SetStrategy(Busy{}); err != nil {
		t.Errorf("busy as before: %v", err)
	}
	if err := sleeps.SetStrategy(Busy{}); err == nil || !strings.Contains(err.Error(), "GOMAXPROCS=2") {
		t.Errorf("a second busy waiter on two processors: %v", err)
	}
	for _, s := range []Strategy{Event{Thread: true}, Adaptive{Spin: -1}} {
		if err := sleeps.SetStrategy(s); err == nil {
			t.Errorf("%+v was accepted", s)
		}
	}
	var wcs [1]cq.WC
	for w, q := range map[*Waiter]*fakeQueue{w: q, sleeps: other} {
		time.AfterFunc(time.Millisecond, func() { q.add(3) })
		if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
			t.Error(n, err)
		}
		w.Close()
	}
	leavesNothing(t, q, other)
}

// A switch at any point of a Wait, with completions at any other: none is slept on.
func TestSetStrategyAnywhere(t *testing.T) {
	strategies := []Strategy{Event{}, Event{Solicited: true}, Adaptive{Spin: 1}}
	for _, from := range strategies {
		for _, to := range strategies {
			for switchAt := range 14 {
				for addAt := range 14 {
					synctest.Test(t, func(t *testing.T) { setStrategyAt(t, from, to, switchAt, addAt) })
				}
			}
		}
	}
}

func setStrategyAt(t *testing.T, from, to Strategy, switchAt, addAt int) {
	q := &fakeQueue{}
	w, err := NewWaiter(from, q)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	step, sent := 0, false
	q.hook = func() {
		if step++; step == switchAt {
			if err := w.SetStrategy(to); err != nil {
				t.Error(err)
			}
		}
		if step >= addAt && !sent {
			sent = true
			q.add(1, 2)
		}
	}
	timer := time.AfterFunc(time.Second, func() { // all sleep
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.ready) != 0 {
			t.Errorf("%+v to %+v at %d, completions at %d: asleep", from, to, switchAt, addAt)
		}
		if !sent {
			sent = true
			time.AfterFunc(0, func() { q.add(1, 2) })
		}
	})
	var wcs [1]cq.WC
	for i := range uint64(2) {
		if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil || wcs[0].ID != i+1 {
			t.Fatalf("%+v to %+v at %d, completions at %d: %d, %v", from, to, switchAt, addAt, n, err)
		}
	}
	timer.Stop()
	// And the next one wakes it as well.
	q.hook = nil
	time.AfterFunc(time.Second, func() { q.add(3) })
	if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil || wcs[0].ID != 3 {
		t.Fatal(n, err)
	}
}

// Switches, completions, cancellations, signals and readers of the statistics at the same
// time.
// Nothing is lost, doubled or left behind. GOVERBS_ROUNDS sets how many completions.
func TestSetStrategyUnderFire(t *testing.T) {
	defer storm(t)()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(3, runtime.GOMAXPROCS(0))))
	for _, channel := range []bool{false, true} {
		q := &fakeQueue{}
		strategies := []Strategy{Busy{}, Event{}, Adaptive{}, Event{Solicited: true}, Adaptive{Spin: 1}}
		if channel {
			if !withPipe(t, q) {
				continue
			}
			strategies = every
		}
		w, err := NewWaiter(Event{}, q)
		if err != nil {
			t.Fatal(err)
		}
		total := uint64(roundsOr(t, 5000))
		var others sync.WaitGroup
		var over atomic.Bool
		others.Go(func() {
			for i := 0; !over.Load(); i++ {
				if err := w.SetStrategy(strategies[i*i%7%len(strategies)]); err != nil {
					t.Error(err)
				}
				if s := w.Stats(); s.Completions > total || s.EmptyLooks > s.Looks || s.Events > s.Parks {
					t.Errorf("%+v", s)
				}
				time.Sleep(time.Duration(i%5) * 10 * time.Microsecond)
			}
		})
		var taken atomic.Uint64
		others.Go(func() {
			for i := range total {
				q.add(i)
				if i%32 == 31 { // let it fall asleep
					for taken.Load() < i && !over.Load() {
						time.Sleep(50 * time.Microsecond)
					}
				}
			}
		})
		var wcs [3]cq.WC
		next := uint64(0)
		for next < total && !t.Failed() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+next%5)*time.Millisecond)
			n, err := w.Wait(ctx, wcs[:])
			cancel()
			if err != nil && ctx.Err() == nil || err == nil && n == 0 {
				t.Error(n, err)
			}
			for _, c := range wcs[:n] {
				if c.ID != next {
					t.Errorf("completion %d, want %d", c.ID, next)
				}
				next++
			}
			taken.Store(next)
		}
		over.Store(true)
		others.Wait()
		if s := w.Stats(); s.Completions != total {
			t.Errorf("%+v, want %d completions", s, total)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		leavesNothing(t, q)
	}
}
