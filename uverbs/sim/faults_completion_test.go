package sim_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

// A completion that is held back lets its waiter sleep, and those behind it wait for it.
func TestFaultHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		a.Fault("completion 2 device=sim0: hold 10ms")
		start := time.Now()
		for range 3 {
			a.receive(a.B)
		}
		sends := [3]uint64{a.send(a.A), a.send(a.A), a.send(a.A)}
		a.take(a.A, sends[0], uverbs.StatusSuccess)
		a.none(a.A)
		for i := range uint64(3) {
			a.take(a.B, i+1, uverbs.StatusSuccess) // the messages have come
		}
		took(t, start, 0)
		a.take(a.A, sends[1], uverbs.StatusSuccess)
		a.take(a.A, sends[2], uverbs.StatusSuccess)
		took(t, start, 10*time.Millisecond)
		a.settle(0)
	})
}

// A completion that is held back without end ends no wait but those with an end of their
// own, until it is released.
func TestFaultHoldUntilRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		a.Fault("completion device=sim0: hold")
		a.receive(a.B)
		send := a.send(a.A)
		w, err := poll.NewWaiter(poll.Event{}, a.A.CQ)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		var wcs [4]uverbs.WC
		if n, err := w.Wait(ctx, wcs[:]); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %d, %v", n, err)
		}
		took(t, start, time.Second)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
				t.Errorf("Wait: %d, %v", n, err)
			}
		})
		time.Sleep(time.Hour)
		a.Model().Release()
		waiting.Wait()
		took(t, start, time.Second+time.Hour)
		if wcs[0].ID != send || wcs[0].Status != uverbs.StatusSuccess {
			t.Errorf("%+v", wcs[0])
		}
		a.end(a.A, wcs[0])
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		a.settle(0)
	})
}

// The end of a queue pair comes although completions are held back: no later than with the
// reset they are written, and none disturbs what comes after.
func TestShutdownWithHeldCompletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		a.Fault("completion: hold")
		a.receive(a.B)
		a.receive(a.A)
		a.send(a.A)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, e := range []*uverbstest.End{a.A, a.B} {
			if err := e.QP.Drain(ctx, func(w uverbs.WC) { a.end(e, w) }); err != nil {
				t.Errorf("%s: %v", e.Name, err)
			}
		}
		a.Model().Release()
		a.none(a.A)
		a.none(a.B)
		for _, qp := range a.all {
			if err := qp.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		for i, qp := range a.all {
			if err := qp.Connect(t.Context(), a.all[1-i].Endpoint(), nil); err != nil {
				t.Fatal(err)
			}
		}
		receive, send := a.receive(a.B), a.send(a.A)
		a.take(a.A, send, uverbs.StatusSuccess)
		a.take(a.B, receive, uverbs.StatusSuccess)
		a.settle(0)
	})
}

// Whoever shuts down while the device is silent waits as long as it says.
func TestShutdownEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		a.Fault("request device=sim0: delay 10s")
		a.receive(a.B)
		send := a.send(a.A)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if err := a.A.QP.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		took(t, start, 3*time.Second)
		if err := a.A.QP.SendQueue().Flush(); !errors.Is(err, uverbs.ErrState) {
			a.A.QP.SendQueue().Send(99, a.A.MR.Span(0, 64))
			if err := a.A.QP.SendQueue().Flush(); !errors.Is(err, uverbs.ErrState) {
				t.Errorf("posted during the end: %v", err)
			}
		}
		a.none(a.A)
		// Nothing was lost by that, and the end can be had later.
		if err := a.A.QP.Drain(context.Background(), func(w uverbs.WC) {
			if w.ID != send || w.Status != uverbs.StatusSuccess {
				t.Errorf("%+v", w)
			}
			a.end(a.A, w)
		}); err != nil {
			t.Error(err)
		}
		a.settle(0)
	})
}

// A queue that overruns gives what it has, then its error for good. Who sleeps on it
// wakes, the program is told, and all can be closed.
func TestFaultOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		w, err := poll.NewWaiter(poll.Event{}, a.A.CQ)
		if err != nil {
			t.Fatal(err)
		}
		a.Fault("completion 3 device=sim0: overrun")
		var waiting sync.WaitGroup
		var got []uverbs.WC
		waiting.Go(func() {
			var wcs [8]uverbs.WC
			for {
				n, err := w.Wait(context.Background(), wcs[:])
				if err != nil {
					if !errors.Is(err, uverbs.ErrOverrun) || len(got) != 2 {
						t.Errorf("after %d completions: %v", len(got), err)
					}
					return
				}
				got = append(got, wcs[:n]...)
			}
		})
		synctest.Wait() // it sleeps
		for range 5 {
			a.receive(a.B)
		}
		for range 5 {
			a.send(a.A)
		}
		waiting.Wait()
		for i, c := range got {
			if c.ID != uint64(6+i) || c.Status != uverbs.StatusSuccess {
				t.Errorf("%+v", c)
			}
			a.end(a.A, c)
		}
		var seen []uverbs.EventType
		synctest.Wait()
		for len(a.A.Device.Events()) > 0 {
			e := <-a.A.Device.Events()
			seen = append(seen, e.Type)
			if e.Type == uverbs.EventCQError && e.CQ != a.A.CQ || e.Type == uverbs.EventQPFatal && e.QP != a.A.QP {
				t.Errorf("event of another object: %v", e)
			}
		}
		if len(seen) != 2 || seen[0] != uverbs.EventCQError || seen[1] != uverbs.EventQPFatal {
			t.Errorf("events %v", seen)
		}
		for range 2 {
			var wcs [2]uverbs.WC
			if n, err := a.A.CQ.Poll(wcs[:]); n != 0 || !errors.Is(err, uverbs.ErrOverrun) {
				t.Errorf("Poll: %d, %v", n, err)
			}
			if n, err := w.Wait(t.Context(), wcs[:]); n != 0 || !errors.Is(err, uverbs.ErrOverrun) {
				t.Errorf("Wait: %d, %v", n, err)
			}
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := a.A.QP.Drain(ctx, func(w uverbs.WC) { t.Errorf("%+v", w) }); !errors.Is(err, uverbs.ErrOverrun) {
			t.Errorf("Drain: %v", err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("Drain took %v", d)
		}
		if err := errors.Join(w.Close(), a.A.QP.Close(), a.A.CQ.Close()); err != nil {
			t.Error(err)
		}
		// The peer is whole: its receives end.
		if err := a.B.QP.Drain(ctx, func(w uverbs.WC) { a.end(a.B, w) }); err != nil {
			t.Error(err)
		}
		if len(a.open) != 3 || a.ended != 7 {
			t.Errorf("%d ended, open are %v; the overrun costs three completions of sends", a.ended, a.open)
		}
	})
}

// A queue that really is too small for what was asked of it.
func TestOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, &uverbstest.PairOptions{CQDepth: 15, QP: uverbs.QPOptions{SendDepth: 64, RecvDepth: 64, AllowOverrun: true}})
		depth := a.A.CQ.Depth()
		for range depth + 5 {
			a.A.QP.SendQueue().WriteInline(1, a.A.Peer.At(0), []byte("x"))
		}
		a.A.Flush()
		var wcs [64]uverbs.WC
		n, err := a.A.CQ.Poll(wcs[:])
		if n < depth || n > depth+1 || err != nil {
			t.Errorf("%d completions of a queue of %d, %v", n, depth, err)
		}
		synctest.Wait() // the event is read
		for range 3 {
			if n, err := a.A.CQ.Poll(wcs[:]); n != 0 || !errors.Is(err, uverbs.ErrOverrun) {
				t.Errorf("%d, %v", n, err)
			}
		}
	})
}
