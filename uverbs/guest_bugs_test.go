package uverbs_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// The faults of bugs_test.go that soft-RoCE's kernels decide about, on the kernel
// itself.

// eventSoon waits for an event of the queue.
func eventSoon(t testing.TB, q *uverbs.CQ) bool {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		ok, err := q.TakeEvent()
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return true
		}
	}
	return false
}

// noEvent fails the test on an event that should not be.
func noEvent(t testing.TB, q *uverbs.CQ, when string) {
	t.Helper()
	time.Sleep(30 * time.Millisecond)
	if ok, err := q.TakeEvent(); ok || err != nil {
		t.Errorf("%s: an event: %v, %v", when, ok, err)
	}
}

// ear is a pair whose b hears on a queue with events, where nothing else completes.
type ear struct {
	*pair
	q *uverbs.CQ
}

func newEar(t testing.TB) *ear {
	t.Helper()
	e := &ear{pair: newPair(t, false)}
	var err error
	if e.q, err = e.dev.NewCQ(255, &uverbs.CQOptions{Events: true}); err != nil {
		t.Fatal(err)
	}
	e.rewire(t, &uverbs.QPOptions{CQ: e.pair.q}, &uverbs.QPOptions{SendCQ: e.pair.q, RecvCQ: e.q})
	return e
}

// rewire makes both queue pairs anew and connects them.
func (p *pair) rewire(t testing.TB, a, b *uverbs.QPOptions) {
	t.Helper()
	var err error
	if err := errors.Join(p.a.Close(), p.b.Close()); err != nil {
		t.Fatal(err)
	}
	if p.a, err = p.pd.NewQP(uverbs.RC, a); err != nil {
		t.Fatal(err)
	}
	if p.b, err = p.pd.NewQP(uverbs.RC, b); err != nil {
		t.Fatal(err)
	}
	p.connect(t)
}

// say sends a message. When it returns the receive's completion is in e.q: the
// responder adds it before it acknowledges.
func (e *ear) say(t testing.TB, id uint64, flags ...uverbs.SendFlags) {
	t.Helper()
	e.b.RecvQueue().Recv(id, e.mr.Span(4096, 8))
	e.a.SendQueue().Send(id, e.mr.Span(0, 8), flags...)
	if err := errors.Join(e.b.RecvQueue().Flush(), e.a.SendQueue().Flush()); err != nil {
		t.Fatal(err)
	}
	if w := e.pair.wait(t, 1)[0]; w.Err() != nil {
		t.Fatal(w.Err())
	}
}

// heard takes n completions of messages.
func (e *ear) heard(t testing.TB, n int) {
	t.Helper()
	hear := pair{q: e.q}
	for _, w := range hear.wait(t, n) {
		if w.Err() != nil || w.Side != uverbs.RecvSide {
			t.Errorf("heard %+v", w)
		}
	}
}

// Completions that are there when a queue is armed raise no event on soft-RoCE, and
// one on a ConnectX, which compares what was polled to what it wrote. The next one
// raises one anyway.
func TestGuestBug01CompletionBeforeArm(t *testing.T) {
	e := newEar(t)
	facts := factsOf(t, e.dev)
	for round := range uint64(3) {
		e.say(t, round)
		if err := e.q.Arm(false); err != nil {
			t.Fatal(err)
		}
		if facts.armSeesOld {
			if !eventSoon(t, e.q) {
				t.Fatalf("round %d: no event for the completion that is there", round)
			}
			e.heard(t, 1)
			if err := e.q.Arm(false); err != nil {
				t.Fatal(err)
			}
			e.say(t, round)
			if !eventSoon(t, e.q) {
				t.Fatalf("round %d: no event for the next completion", round)
			}
			e.heard(t, 1)
			noEvent(t, e.q, "not armed again")
			continue
		}
		noEvent(t, e.q, "armed beside a completion")
		e.heard(t, 1)
		e.say(t, round)
		if !eventSoon(t, e.q) {
			t.Fatalf("round %d: no event for the next completion", round)
		}
		e.heard(t, 1)
		noEvent(t, e.q, "not armed again")
	}
}

// Arming more than once before an event neither loses it nor makes two of it, though
// the kernels differ in how they remember it: up to 6.1 an arm for any completion
// stays, on 6.12 the arms add up.
func TestGuestBug06ArmedMoreThanOnce(t *testing.T) {
	const solicited, any = true, false
	e := newEar(t)
	for _, test := range []struct {
		name string
		arms []bool
		flag []uverbs.SendFlags
		want bool
	}{
		{"solicited, any, any", []bool{solicited, any, any}, nil, true},
		{"any, solicited", []bool{any, solicited}, nil, true},
		{"any, any", []bool{any, any}, nil, true},
		{"solicited, and it is", []bool{solicited, solicited}, []uverbs.SendFlags{uverbs.Solicited}, true},
		{"solicited, and it is not", []bool{solicited}, nil, false},
	} {
		for _, s := range test.arms {
			if err := e.q.Arm(s); err != nil {
				t.Fatal(err)
			}
		}
		e.say(t, 1, test.flag...)
		if test.want && !eventSoon(t, e.q) {
			t.Errorf("%s: no event", test.name)
		}
		e.say(t, 2)
		noEvent(t, e.q, test.name)
		e.heard(t, 2)
	}
	e.say(t, 3, uverbs.Solicited) // for the last one
	if !eventSoon(t, e.q) {
		t.Error("no event for a solicited message")
	}
}

// No event is lost where two queue pairs may raise it at the same time.
func TestGuestBug08NoEventIsLost(t *testing.T) {
	p := newPair(t, true)
	w, err := poll.NewWaiter(poll.Event{}, p.q)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const total = 400
	var posters sync.WaitGroup
	credit := make(chan struct{}, 32)
	for range cap(credit) {
		credit <- struct{}{}
	}
	for _, qp := range []*uverbs.QP{p.a, p.b} {
		posters.Go(func() {
			for i := range uint64(total) {
				select {
				case <-credit:
				case <-ctx.Done():
					return
				}
				qp.SendQueue().Write(i, p.mr.Remote().At(0), p.mr.Span(4096, 8))
				if err := qp.SendQueue().Flush(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var wcs [3]uverbs.WC
	for seen := 0; seen < 2*total; {
		n, err := w.Wait(ctx, wcs[:])
		if err != nil {
			t.Fatalf("after %d of %d: %v", seen, 2*total, err)
		}
		seen += n
		for range n {
			credit <- struct{}{}
		}
	}
	posters.Wait()
}

// An idle queue pair can be drained of sends that nobody reports.
func TestGuestBug11DrainAnIdleQueue(t *testing.T) {
	p := newPair(t, false)
	for i := range uint64(5) {
		flags := []uverbs.SendFlags{uverbs.Unsignaled}
		if i == 3 {
			flags = nil
		}
		p.a.SendQueue().Write(i, p.peer.Regions[0].At(0), p.mr.Span(4096, 8), flags...)
	}
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var ends []uverbs.WC
	if err := p.a.Drain(ctx, func(w uverbs.WC) { ends = append(ends, w) }); err != nil {
		t.Fatal(err)
	}
	if len(ends) != 1 || ends[0].ID != 3 || ends[0].Err() != nil || p.a.SendQueue().Room() != 32 {
		t.Errorf("ends %+v, room %d", ends, p.a.SendQueue().Room())
	}
}

// A queue closes though events of it were read by nobody.
func TestGuestBug14EventsNotTaken(t *testing.T) {
	e := newEar(t)
	for i := range uint64(3) {
		if err := e.q.Arm(false); err != nil {
			t.Fatal(err)
		}
		e.say(t, i)
		e.heard(t, 1)
	}
	if !eventSoon(t, e.q) {
		t.Fatal("no event")
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(e.a.Close(), e.b.Close(), e.q.Close()) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("Close waits for events")
	}
	if err := e.q.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}
