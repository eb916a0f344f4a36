package poll

import (
	"context"
	"errors"
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
