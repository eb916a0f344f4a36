package uverbs_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// The faults of bugs_test.go that soft-RoCE's kernels decide about, on the kernel
// itself. What is known to differ between the guest's kernels has a name here.
type kernelFacts struct {
	series string
	// staleKey is how a send ends whose local memory is registered no more.
	staleKey cq.Status
	// wrongKey is how a write ends whose rkey is wrong.
	wrongKey cq.Status
	// deaf: a queue pair that has failed by itself does not look at its send
	// queue any more; what is posted then ends with Drain, Shutdown, or when
	// the program takes it to ERR or RESET.
	deaf bool
	// hasty: the responder's RNR timer is not waited for, and the failure that
	// comes of it is faster than a program is.
	hasty bool
}

func factsOf(t *testing.T) kernelFacts {
	t.Helper()
	guestDevice(t) // or skip: the host's kernel may be any
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	for _, f := range []kernelFacts{
		{series: "5.10", staleKey: cq.StatusLocalProtection, wrongKey: cq.StatusRetryExceeded, deaf: true, hasty: true},
		{series: "6.1", staleKey: cq.StatusLocalQPOperation, wrongKey: cq.StatusRemoteAccess},
		{series: "6.12", staleKey: cq.StatusFlushed, wrongKey: cq.StatusRemoteAccess},
	} {
		if strings.HasPrefix(release, f.series+".") {
			return f
		}
	}
	t.Fatalf("Linux %s is not one of the guest's kernels: find out what it does, and say it here", release)
	return kernelFacts{}
}

// eventSoon waits for an event of the queue.
func eventSoon(t testing.TB, q *uverbs.CQ) bool {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
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

// Completions that are there when a queue is armed raise no event.
func TestGuestBug01CompletionBeforeArm(t *testing.T) {
	e := newEar(t)
	for round := range uint64(3) {
		e.say(t, round)
		if err := e.q.Arm(false); err != nil {
			t.Fatal(err)
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
	case <-time.After(time.Minute):
		t.Fatal("Close waits for events")
	}
	if err := e.q.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}

// What closed queue pairs left in a queue does not stay there, also if there are no
// others: it would be full after the second round.
func TestGuestBug19QueueWithoutQPs(t *testing.T) {
	p := newPair(t, false)
	q, err := p.dev.NewCQ(15, nil)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 8 {
		var qp *uverbs.QP
		for end := time.Now().Add(30 * time.Second); ; {
			if qp, err = p.pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SendDepth: 5, RecvDepth: 10}); err == nil {
				break
			}
			var wcs [4]uverbs.WC
			if n, perr := q.Poll(wcs[:]); n != 0 || perr != nil || !errors.Is(err, uverbs.ErrCQFull) || time.Now().After(end) {
				t.Fatalf("round %d: %v; poll: %d, %v", round, err, n, perr)
			}
		}
		for i := range uint64(10) {
			qp.RecvQueue().Recv(i, p.mr.Span(0, 8))
		}
		if err := errors.Join(qp.RecvQueue().Flush(), qp.Modify(uverbs.StateErr), qp.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if s := q.Stats(); s.Stray != 0 {
		t.Errorf("%+v", s)
	}
}

// Rings of the kernel keep what they say, also after a resize, and what is one too
// many is said once, after all the others.
func TestGuestBug27RingOfNKeepsN(t *testing.T) {
	for _, over := range []int{0, 3} {
		for _, resized := range []bool{false, true} {
			p := newPair(t, false)
			q, err := p.dev.NewCQ(15, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resized {
				if err := errors.Join(q.ResizeOwned(300), q.ResizeOwned(15)); err != nil {
					t.Fatal(err)
				}
			}
			n := q.Depth()
			p.rewire(t, &uverbs.QPOptions{SendCQ: q, RecvCQ: p.q, SendDepth: n + over, RecvDepth: 1, AllowOverrun: true}, &uverbs.QPOptions{CQ: p.q})
			for i := range uint64(n + over) {
				p.a.SendQueue().Write(i, p.peer.Regions[0].At(0), p.mr.Span(4096, 8))
			}
			if err := p.a.SendQueue().Flush(); err != nil {
				t.Fatal(err)
			}
			if over > 0 {
				for said := false; !said; {
					select {
					case e := <-p.dev.Events():
						said = e.Type == uverbs.EventCQError && e.CQ == q
					case <-time.After(30 * time.Second):
						t.Fatal("the overrun was not reported")
					}
				}
			}
			hear := pair{q: q}
			for i, w := range hear.wait(t, n) {
				if w.ID != uint64(i) || w.Err() != nil {
					t.Errorf("resized %v: completion %d is %+v", resized, i, w)
				}
			}
			var wcs [2]uverbs.WC
			for range 2 {
				if k, err := q.Poll(wcs[:]); k != 0 || errors.Is(err, uverbs.ErrOverrun) != (over > 0) {
					t.Errorf("resized %v, %d too many: %d, %v", resized, over, k, err)
				}
			}
		}
	}
}

// Requests whose memory is registered no more, and those behind them: each has one
// end, in which only the id, side, status and queue pair mean anything; the kernel
// says "send" of flushed receives. What the first one ends with is the kernel's.
func TestGuestBug40NothingElseOnError(t *testing.T) {
	facts := factsOf(t)
	p := newPair(t, false)
	mr, err := p.pd.Register(p.mem.Bytes()[8192:12288], uverbs.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	p.a.SendQueue().Send(21, mr.Span(0, 100))
	p.a.SendQueue().WriteImm(22, 7, p.peer.Regions[0].At(0), p.mr.Span(0, 100), uverbs.Unsignaled)
	p.a.RecvQueue().Recv(23, p.mr.Span(0, 100))
	if err := errors.Join(mr.Close(), p.a.RecvQueue().Flush()); err != nil {
		t.Fatal(err)
	}
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	got := map[uint64]uverbs.WC{}
	for _, w := range p.wait(t, 3) {
		got[w.ID] = w
	}
	for id, want := range map[uint64]uverbs.WC{
		21: {ID: 21, QPN: p.a.QPN(), Status: facts.staleKey},
		22: {ID: 22, QPN: p.a.QPN(), Status: uverbs.StatusFlushed},
		23: {ID: 23, QPN: p.a.QPN(), Status: uverbs.StatusFlushed, Side: uverbs.RecvSide},
	} {
		if got[id] != want {
			t.Errorf("Linux %s: request %d ended as %+v, want %+v", facts.series, id, got[id], want)
		}
	}
}

// After a wrong rkey every request that follows, one by one, has its end.
func TestGuestBug41EveryBadRequestEnds(t *testing.T) {
	facts := factsOf(t)
	p := newPair(t, false)
	bad := p.peer.Regions[0]
	bad.RKey ^= 0x5500
	const n = 5
	for i := range uint64(n) {
		flags := []uverbs.SendFlags{}
		if i%2 == 1 {
			flags = append(flags, uverbs.Unsignaled)
		}
		p.a.SendQueue().Write(i, bad.At(0), p.mr.Span(0, 8), flags...)
		if err := p.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		if i > 0 && facts.deaf {
			continue
		}
		want := uverbs.WC{ID: i, QPN: p.a.QPN(), Status: uverbs.StatusFlushed}
		if i == 0 {
			want.Status = facts.wrongKey
		}
		if w := p.wait(t, 1)[0]; w != want {
			t.Errorf("request %d ended as %+v, want %+v", i, w, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	drained := 0
	if err := p.a.Drain(ctx, func(w uverbs.WC) {
		drained++
		if w.ID != uint64(drained) || w.Status != uverbs.StatusFlushed {
			t.Errorf("drained %+v", w)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if want := map[bool]int{true: n - 1}[facts.deaf]; drained != want {
		t.Errorf("%d requests ended with Drain, want %d", drained, want)
	}
}

// A queue pair that fails with sends and receives outstanding on two queues: each
// ends once, on its own queue; what is posted later is refused, since soft-RoCE does
// not flush late receives.
func TestGuestBug42ErrorEndsAll(t *testing.T) {
	facts := factsOf(t)
	const sends, recvs = 9, 13
	p := newPair(t, false)
	q, err := p.dev.NewCQ(63, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.pd.NewQP(uverbs.RC, &uverbs.QPOptions{SendCQ: q, RecvCQ: p.q})
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: p.q})
	if err != nil {
		t.Fatal(err)
	}
	// The peer has no receive, so that sends stay outstanding for seconds.
	slow := &uverbs.ConnectOptions{MinRNRTimer: 491 * time.Millisecond}
	if err := errors.Join(a.Connect(t.Context(), b.Endpoint(), slow), b.Connect(t.Context(), a.Endpoint(), slow)); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(sends) {
		flags := []uverbs.SendFlags{}
		if i%3 == 0 {
			flags = append(flags, uverbs.Unsignaled)
		}
		a.SendQueue().Send(100+i, p.mr.Span(0, 8), flags...)
	}
	for i := range uint64(recvs) {
		a.RecvQueue().Recv(200+i, p.mr.Span(0, 8))
	}
	if err := errors.Join(a.SendQueue().Flush(), a.RecvQueue().Flush(), a.Modify(uverbs.StateErr)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		q    *uverbs.CQ
		side uverbs.Side
		id   uint64
		n    int
	}{{q, uverbs.SendSide, 100, sends}, {p.q, uverbs.RecvSide, 200, recvs}} {
		hear := pair{q: test.q}
		for i, w := range hear.wait(t, test.n) {
			want := uverbs.WC{ID: test.id + uint64(i), QPN: a.QPN(), Side: test.side, Status: uverbs.StatusFlushed}
			if facts.hasty && test.side == uverbs.SendSide && i == 0 && w.Status == cq.StatusRNRRetryExceeded {
				want.Status = w.Status
			}
			if w != want {
				t.Errorf("%+v, want %+v", w, want)
			}
		}
	}
	a.RecvQueue().Recv(1, p.mr.Span(0, 8))
	if err := a.RecvQueue().Flush(); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("a receive in ERR: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := a.Drain(ctx, func(w uverbs.WC) { t.Errorf("drained %+v", w) }); err != nil {
		t.Error(err)
	}
}

// The length in the receiver's completion of a write with immediate data is the
// write's, also when it is nothing.
func TestGuestBug43LengthOfWriteWithImmediate(t *testing.T) {
	p := newPair(t, false)
	for _, n := range []int{100, 0, 1, 4096, 5000} {
		p.b.RecvQueue().RecvV(5, nil)
		p.a.SendQueue().WriteImm(6, 0x01020304, p.peer.Regions[0].At(1<<19), p.mr.Span(0, n))
		if err := errors.Join(p.b.RecvQueue().Flush(), p.a.SendQueue().Flush()); err != nil {
			t.Fatal(err)
		}
		want := uverbs.WC{ID: 5, QPN: p.b.QPN(), Side: uverbs.RecvSide, Opcode: uverbs.OpRecvWriteImm, Bytes: uint32(n)}
		want.SetImm(0x01020304)
		if w := find(t, p.wait(t, 2), uverbs.RecvSide); w != want {
			t.Errorf("a write of %d: %+v, want %+v", n, w, want)
		}
	}
}

// The opcode of a completion is that of its request, whatever number the kernel
// gives it: a write with immediate data and a write have one there.
func TestGuestBug45OpcodeIsTheRequests(t *testing.T) {
	p := newPair(t, false)
	sq, to := p.a.SendQueue(), p.peer.Regions[0].At(1<<19)
	for op, post := range map[uverbs.Opcode]func(){
		uverbs.OpSend:     func() { sq.Send(1, p.mr.Span(0, 8)) },
		uverbs.OpSendImm:  func() { sq.SendImm(1, 2, p.mr.Span(0, 8)) },
		uverbs.OpWrite:    func() { sq.Write(1, to, p.mr.Span(0, 8)) },
		uverbs.OpWriteImm: func() { sq.WriteImm(1, 2, to, p.mr.Span(0, 8)) },
		uverbs.OpRead:     func() { sq.Read(1, p.mr.Span(0, 8), to) },
	} {
		hears := op == uverbs.OpSend || op == uverbs.OpSendImm || op == uverbs.OpWriteImm
		ends := 1
		if hears {
			ends = 2
			p.b.RecvQueue().Recv(2, p.mr.Span(8192, 8))
			if err := p.b.RecvQueue().Flush(); err != nil {
				t.Fatal(err)
			}
		}
		post()
		if err := sq.Flush(); err != nil {
			t.Fatal(err)
		}
		wcs := p.wait(t, ends)
		if w := find(t, wcs, uverbs.SendSide); w.Opcode != op || w.Err() != nil || w.Bytes != 8 {
			t.Errorf("%v ended as %+v", op, w)
		}
	}
}

// After a reset nothing is left over, and the first request of each side is heard of
// as itself.
func TestGuestBug48CountersAfterReset(t *testing.T) {
	p := newPair(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	id := uint64(0)
	for round := range 8 {
		for range 1 + round%7 { // leave the rings in the middle
			id++
			p.a.RecvQueue().Recv(id, p.mr.Span(0, 8))
			p.a.SendQueue().Write(id, p.peer.Regions[0].At(0), p.mr.Span(4096, 8), uverbs.Unsignaled)
		}
		if err := errors.Join(p.a.RecvQueue().Flush(), p.a.SendQueue().Flush()); err != nil {
			t.Fatal(err)
		}
		to := []uverbs.QPState{uverbs.StateErr, uverbs.StateReset}[round%2]
		if err := p.a.Modify(to); err != nil {
			t.Fatal(err)
		}
		ignore := func(uverbs.WC) {}
		if err := errors.Join(p.a.Drain(ctx, ignore), p.b.Drain(ctx, ignore), p.a.Restart(), p.b.Restart()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if p.a.SendQueue().Room() != 32 || p.a.RecvQueue().Room() != 32 {
			t.Fatalf("round %d: room for %d sends and %d receives, want 32", round, p.a.SendQueue().Room(), p.a.RecvQueue().Room())
		}
		p.connect(t)
		id++
		p.a.RecvQueue().Recv(id, p.mr.Span(0, 8))
		p.b.SendQueue().Send(id, p.mr.Span(4096, 8))
		p.a.SendQueue().Write(id, p.peer.Regions[0].At(1<<19), p.mr.Span(4096, 8))
		if err := errors.Join(p.a.RecvQueue().Flush(), p.b.SendQueue().Flush(), p.a.SendQueue().Flush()); err != nil {
			t.Fatal(err)
		}
		for _, w := range p.wait(t, 3) {
			if w.ID != id || w.Err() != nil {
				t.Fatalf("round %d: %+v, want %d", round, w, id)
			}
		}
	}
	if s := p.q.Stats(); s != (uverbs.CQStats{}) {
		t.Errorf("dropped %+v", s)
	}
}
