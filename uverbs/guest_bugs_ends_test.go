package uverbs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

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
		for end := time.Now().Add(patience); ; {
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

// Rings of the kernel keep what they say, also after a resize, and that some were too
// many is said once, after all the others, however often the device tells of it.
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
				events := 1
				if factsOf(t, p.dev) == &softRoCE {
					events = over // one for each that it drops
				}
				for said := 0; said < events; {
					select {
					case e := <-p.dev.Events():
						if e.Type == uverbs.EventCQError && e.CQ == q {
							said++
						}
					case <-time.After(patience):
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
			_, first := q.Poll(wcs[:])
			for range 2 {
				if k, err := q.Poll(wcs[:]); k != 0 || errors.Is(err, uverbs.ErrOverrun) != (over > 0) || err != first {
					t.Errorf("resized %v, %d too many: %d, %v, before %v", resized, over, k, err, first)
				}
			}
		}
	}
}

// Requests whose memory is registered no more, and those behind them: each has one
// end, in which only the id, side, status and queue pair mean anything; the kernel
// says "send" of flushed receives. What the first one ends with is the kernel's.
func TestGuestBug40NothingElseOnError(t *testing.T) {
	p := newPair(t, false)
	facts, kernel := factsOf(t, p.dev), kernelFactsOf(t, p.dev)
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
		21: {ID: 21, QPN: p.a.QPN(), Status: kernel.staleKey},
		22: {ID: 22, QPN: p.a.QPN(), Status: uverbs.StatusFlushed},
		23: {ID: 23, QPN: p.a.QPN(), Status: uverbs.StatusFlushed, Side: uverbs.RecvSide},
	} {
		if want := facts.wc(want); got[id] != want {
			t.Errorf("%s: request %d ended as %+v, want %+v", kernel.series, id, got[id], want)
		}
	}
}

// After a wrong rkey every request that follows, one by one, has its end.
func TestGuestBug41EveryBadRequestEnds(t *testing.T) {
	p := newPair(t, false)
	facts, kernel := factsOf(t, p.dev), kernelFactsOf(t, p.dev)
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
		if i > 0 && kernel.deaf {
			continue
		}
		want := uverbs.WC{ID: i, QPN: p.a.QPN(), Status: uverbs.StatusFlushed}
		if i == 0 {
			want.Status = kernel.wrongKey
		}
		want = facts.wc(want)
		if w := p.wait(t, 1)[0]; w != want {
			t.Errorf("request %d ended as %+v, want %+v", i, w, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	if want := map[bool]int{true: n - 1}[kernel.deaf]; drained != want {
		t.Errorf("%d requests ended with Drain, want %d", drained, want)
	}
}

// A queue pair that fails with sends and receives outstanding on two queues: each
// ends once, on its own queue; what is posted later is refused, since soft-RoCE does
// not flush late receives.
func TestGuestBug42ErrorEndsAll(t *testing.T) {
	const sends, recvs = 9, 13
	p := newPair(t, false)
	facts, kernel := factsOf(t, p.dev), kernelFactsOf(t, p.dev)
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
			if kernel.hasty && test.side == uverbs.SendSide && i == 0 && w.Status == cq.StatusRNRRetryExceeded {
				want.Status = w.Status
			}
			if want = facts.wc(want); w != want {
				t.Errorf("%+v, want %+v", w, want)
			}
		}
	}
	a.RecvQueue().Recv(1, p.mr.Span(0, 8))
	if err := a.RecvQueue().Flush(); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("a receive in ERR: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
