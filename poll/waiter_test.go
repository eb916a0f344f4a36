package poll

import (
	"context"
	"errors"
	"math/bits"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
)

func TestNewWaiterRefuses(t *testing.T) {
	q := &fakeQueue{}
	for name, make := range map[string]func() (*Waiter, error){
		"no strategy": func() (*Waiter, error) { return NewWaiter(nil, q) },
		"no queue":    func() (*Waiter, error) { return NewWaiter(Busy{}) },
		"nil queue":   func() (*Waiter, error) { return NewWaiter(Busy{}, q, nil) },
		"twice":       func() (*Waiter, error) { return NewWaiter(Event{}, q, q) },
		"thread":      func() (*Waiter, error) { return NewWaiter(Event{Thread: true}, q) },
	} {
		if w, err := make(); err == nil {
			w.Close()
			t.Errorf("%s: accepted", name)
		}
		if q.attached != 0 {
			t.Fatalf("%s: the queue still has a waiter", name)
		}
	}
}

// As many busy waiters as processors would starve the program.
func TestBusyLimit(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	var open []*Waiter
	for range 2 {
		w, err := NewWaiter(Busy{}, &fakeQueue{})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, w)
	}
	_, err := NewWaiter(Busy{}, &fakeQueue{})
	if err == nil || !strings.Contains(err.Error(), "3 busy waiters on GOMAXPROCS=3") {
		t.Errorf("a third busy waiter on 3 processors: %v", err)
	}
	open[0].Close()
	w, err := NewWaiter(Busy{}, &fakeQueue{})
	if err != nil {
		t.Errorf("after one was closed: %v", err)
	}
	open[0] = w
	for _, w := range open {
		w.Close()
	}
}

func TestWaitRefuses(t *testing.T) {
	w, err := NewWaiter(Event{}, &fakeQueue{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Wait(t.Context(), nil); err == nil {
		t.Error("an empty slice was accepted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var wcs [1]cq.WC
	if _, err := w.Wait(ctx, wcs[:]); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
	w.Close()
	if _, err := w.Wait(t.Context(), wcs[:]); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := w.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
}

// A busy queue does not starve another one.
func TestFair(t *testing.T) {
	a, b := &fakeQueue{}, &fakeQueue{}
	w, err := NewWaiter(Event{}, a, b)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range uint64(20) {
		a.add(i)
	}
	b.add(100)
	var wcs [1]cq.WC
	for i := range 3 {
		if _, err := w.Wait(t.Context(), wcs[:]); err != nil {
			t.Fatal(err)
		}
		if wcs[0].ID == 100 {
			return
		}
		if i == 2 {
			t.Fatal("queue b waits behind queue a")
		}
	}
}

// Whatever floods come, a queue waits for one Wait for each flooded queue, and one more,
// at most, and never for more than there are queues.
func TestFairAmongFloods(t *testing.T) {
	for queues := 1; queues <= 6; queues++ {
		for floods := range 1 << queues { // a set of queues
			for size := 1; size <= 4; size++ {
				fairAmongFloods(t, queues, floods, size)
			}
		}
	}
}

func fairAmongFloods(t *testing.T, queues, floods, size int) {
	fakes := make([]*fakeQueue, queues)
	all := make([]cq.Queue, queues)
	for i := range fakes {
		q := &fakeQueue{}
		if floods>>i&1 == 1 {
			q.hook = func() {
				for len(q.ready) < 2*size {
					q.add(uint64(i))
				}
			}
		}
		fakes[i], all[i] = q, q
	}
	w, err := NewWaiter(Event{}, all...)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	limit := bits.OnesCount(uint(floods)) + 1
	wcs := make([]cq.WC, size)
	late := make([]int, queues)
	for range 50 * queues {
		for i, q := range fakes {
			if len(q.ready) == 0 {
				q.add(uint64(i))
			}
		}
		n, err := w.Wait(t.Context(), wcs)
		if err != nil {
			t.Fatal(err)
		}
		for i := range late {
			late[i]++
		}
		for _, c := range wcs[:n] {
			late[c.ID] = 0
		}
		for i := range late {
			// Where others have one completion each, a small slice may be full
			// with those.
			if most := min(limit+(queues-1)/size, queues); late[i] >= most {
				t.Fatalf("%d queues, flooded %b, slice of %d: queue %d has waited for %d Waits, want less than %d", queues, floods, size, i, late[i], most)
			}
		}
	}
}

func TestBusyEndsWithContext(t *testing.T) {
	w, err := NewWaiter(Busy{}, &fakeQueue{})
	if err != nil {
		t.Skip("declared skip: one processor:", err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var wcs [1]cq.WC
	if n, err := w.Wait(ctx, wcs[:]); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait: %d, %v", n, err)
	}
}

// The slice of queues is the caller's: what it does with it later is no matter.
func TestNewWaiterKeepsNoSlice(t *testing.T) {
	q := &fakeQueue{}
	queues := []cq.Queue{q}
	w, err := NewWaiter(Event{}, queues...)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	queues[0] = nil
	q.add(1)
	var wcs [2]cq.WC
	if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
