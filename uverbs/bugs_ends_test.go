package uverbs

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// flushed posts n receives to a queue pair in INIT, with ids from id on, and lets
// them end as flushed.
func flushed(t testing.TB, r *rig, qp *QP, id uint64, n int) {
	t.Helper()
	for i := range n {
		qp.RecvQueue().Recv(id+uint64(i), r.mr.Span(0, 8))
	}
	if err := errors.Join(qp.RecvQueue().Flush(), qp.Modify(StateErr)); err != nil {
		t.Fatal(err)
	}
}

// A queue pair that is destroyed in the middle of a batch of its completions was
// still used by the next look at them. https://github.com/linux-rdma/rdma-core/pull/1526
func TestBug17QPClosedInABatch(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(31, nil)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		qp, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 1, RecvDepth: 8})
		if err != nil {
			t.Fatal(err)
		}
		flushed(t, r, qp, 100, 5)
		var wcs [2]WC
		if n, err := q.Poll(wcs[:]); n != 2 || err != nil || q.QP(wcs[1].QPN) != qp {
			t.Fatalf("Poll: %d, %v, %+v", n, err, wcs)
		}
		if err := qp.Close(); err != nil {
			t.Fatal(err)
		}
		if q.QP(wcs[1].QPN) != nil {
			t.Error("a closed queue pair is found by its number")
		}
		if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
			t.Errorf("after Close: %d, %v, %+v", n, err, wcs[0])
		}
		if s := q.Stats(); s != (CQStats{Late: uint64(3 * (round + 1))}) || q.committed != 0 {
			t.Errorf("dropped %+v, %d completions are claimed", s, q.committed)
		}
	}
}

// Completions of a destroyed queue pair were taken for those of a new one that had
// got its number. https://github.com/ofiwg/libfabric/pull/11405
// https://github.com/ofiwg/libfabric/pull/9973
func TestBug18NewQPWithTheOldNumber(t *testing.T) {
	r := newRig(t, false, fakekernel.Device{ReuseQPN: true})
	q, err := r.dev.NewCQ(127, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := &QPOptions{CQ: q, SendDepth: 1, RecvDepth: 4}
	number := uint32(0)
	for round := range 200 {
		old, err := r.pd.NewQP(RC, opts)
		if err != nil {
			t.Fatal(err)
		}
		if number == 0 {
			number = old.QPN()
		}
		flushed(t, r, old, 0, 3)
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		fresh, err := r.pd.NewQP(RC, opts)
		if err != nil {
			t.Fatal(err)
		}
		if fresh.QPN() != number || old.QPN() != number {
			t.Fatalf("numbers %d and %d, want %d for both", old.QPN(), fresh.QPN(), number)
		}
		flushed(t, r, fresh, 1000, 2)
		for i, w := range wait(t, q, 2) {
			if w.ID != 1000+uint64(i) {
				t.Fatalf("round %d: the new queue pair got %+v", round, w)
			}
		}
		var wcs [4]WC
		if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
			t.Fatalf("round %d: one more: %d, %v, %+v", round, n, err, wcs[0])
		}
		if err := fresh.Close(); err != nil {
			t.Fatal(err)
		}
		if s := q.Stats(); s.Late != uint64(3*(round+1)) || s.Stray != 0 {
			t.Fatalf("round %d: dropped %+v", round, s)
		}
	}
}

// A queue whose last queue pair is gone was not looked at any more: what was in it
// stayed for ever. https://github.com/linux-rdma/rdma-core/pull/1616
func TestBug19QueueWithoutQPs(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(15, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := &QPOptions{CQ: q, SendDepth: 1, RecvDepth: 14}
	for round := range 10 { // it would be full after the second
		qp, err := r.pd.NewQP(RC, opts)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		flushed(t, r, qp, 1, 10)
		if round%2 == 0 { // what came to its end in good order is there to be read
			if err := qp.Modify(StateReset); err != nil {
				t.Fatal(err)
			}
			if wcs := wait(t, q, 10); wcs[9].ID != 10 || wcs[9].Status != StatusFlushed {
				t.Errorf("round %d: %+v", round, wcs)
			}
		}
		if err := qp.Close(); err != nil {
			t.Fatal(err)
		}
		var wcs [4]WC
		for q.committed > 0 {
			if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
				t.Fatalf("round %d: without a queue pair: %d, %v, %+v", round, n, err, wcs[0])
			}
		}
		if !q.ring.Empty() || q.ring.Consumed() != uint32(10*(round+1)) {
			t.Errorf("round %d: empty %v after %d were read", round, q.ring.Empty(), q.ring.Consumed())
		}
	}
}

// A ring for n completions keeps n, and says so once if there was one more; also
// when it was resized to n. (rdma_rxe drops what does not fit; the resize test of
// rdma-core missed one in 2025.)
func TestBug27RingOfNKeepsN(t *testing.T) {
	for _, depth := range []int{1, 3, 4, 15, 16, 100} {
		for _, over := range []int{0, 1, 3} {
			for _, resized := range []bool{false, true} {
				r := newRig(t, false)
				q, err := r.dev.NewCQ(depth, nil)
				if err != nil {
					t.Fatal(err)
				}
				if resized {
					if err := errors.Join(q.ResizeOwned(500), q.ResizeOwned(depth)); err != nil {
						t.Fatal(err)
					}
				}
				n := q.Depth()
				if n < depth {
					t.Fatalf("depth %d, asked for %d", n, depth)
				}
				qp, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 1, RecvDepth: n + over, AllowOverrun: true})
				if err != nil {
					t.Fatal(err)
				}
				flushed(t, r, qp, 1, n+over)
				if over > 0 {
					if e := event(t, r.dev); e.Type != EventCQError || e.CQ != q {
						t.Errorf("event %v", e)
					}
				}
				for i, w := range wait(t, q, n) {
					if w.ID != uint64(i+1) {
						t.Errorf("depth %d: completion %d is %+v", n, i, w)
					}
				}
				var wcs [2]WC
				for range 2 {
					if k, err := q.Poll(wcs[:]); k != 0 || errors.Is(err, ErrOverrun) != (over > 0) || over == 0 && err != nil {
						t.Errorf("depth %d and %d more: %d, %v", n, over, k, err)
					}
				}
			}
		}
	}
}

// Devices differ in what they resize: some cannot, which a program printed as
// "errno 0: Success", and some go below what is in the queue.
// https://github.com/linux-rdma/rdma-core/pull/1315
// https://github.com/spdk/spdk/issues/1747
func TestBug30ResizeRefused(t *testing.T) {
	for name, test := range map[string]struct {
		device fakekernel.Device
		fail   error // of the command
		depth  int
		is     error
	}{
		"driver cannot":         {fakekernel.Device{LacksCommands: []uint32{abi.IB_USER_VERBS_CMD_RESIZE_CQ}}, nil, 100, ErrNotSupported},
		"no memory":             {fakekernel.Device{}, syscall.ENOMEM, 100, syscall.ENOMEM},
		"refused":               {fakekernel.Device{}, syscall.EINVAL, 100, syscall.EINVAL},
		"below what is pending": {fakekernel.Device{}, nil, 9, ErrCQFull},
	} {
		r := newRig(t, false, test.device)
		q, err := r.dev.NewCQ(30, nil)
		if err != nil {
			t.Fatal(err)
		}
		qp, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 1, RecvDepth: 10})
		if err != nil {
			t.Fatal(err)
		}
		flushed(t, r, qp, 1, 10)
		r.k.Fail(func(c fakekernel.Call) error {
			if c.Command == abi.IB_USER_VERBS_CMD_RESIZE_CQ {
				return test.fail
			}
			return nil
		})
		err = q.ResizeOwned(test.depth)
		says(t, name, err, test.is, "resize CQ")
		if strings.Contains(strings.ToLower(err.Error()), "success") || strings.Contains(err.Error(), "errno 0") {
			t.Errorf("%s: %v", name, err)
		}
		if q.Depth() != 31 {
			t.Errorf("%s: depth %d", name, q.Depth())
		}
		for i, w := range wait(t, q, 10) {
			if w.ID != uint64(i+1) {
				t.Errorf("%s: completion %d is %+v", name, i, w)
			}
		}
	}
}

// More requests than the queue holds completions overrun it, and end the queue
// pairs with codes that say little. https://github.com/ofiwg/libfabric/pull/11337
// Here it cannot happen by accident; also receives that writes with immediate data
// end count. With AllowOverrun it ends in one error, which stays, and in waiters
// that wake.
func TestBug31Overrun(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(31, &CQOptions{Events: true})
	if err != nil {
		t.Fatal(err)
	}
	var qps [2]*QP
	for i, opts := range []*QPOptions{{CQ: q, SendDepth: 7, RecvDepth: 8}, {CQ: q, SendDepth: 6, RecvDepth: 10}} {
		if qps[i], err = r.pd.NewQP(RC, opts); err != nil {
			t.Fatal(err)
		}
	}
	_, err = r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 1, RecvDepth: 1})
	says(t, "one more", err, ErrCQFull, "2 completions", "31 of the CQ's 31")
	if err := join(qps[0], qps[1]); err != nil {
		t.Fatal(err)
	}
	// All that fits is outstanding at the same time: 31 completions.
	for i, qp := range qps {
		for n := qp.RecvQueue().Room(); n > 0; n-- {
			qp.RecvQueue().Recv(uint64(n), r.mr.Span(0, 8))
		}
		if err := qp.RecvQueue().Flush(); err != nil {
			t.Fatal(i, err)
		}
	}
	for _, qp := range qps {
		for n := qp.SendQueue().Room(); n > 0; n-- {
			qp.SendQueue().WriteImm(uint64(n), 7, r.mr.Remote().At(0), r.mr.Span(0, 8))
		}
		if err := qp.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for _, qp := range qps { // and what was not received is flushed
		if err := qp.Modify(StateErr); err != nil {
			t.Fatal(err)
		}
	}
	if wcs := wait(t, q, 31); len(wcs) != 31 {
		t.Errorf("%d completions", len(wcs))
	}
	select {
	case e := <-r.dev.Events():
		t.Errorf("event %v", e)
	default:
	}

	over, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 1, RecvDepth: 40, AllowOverrun: true})
	if err != nil {
		t.Fatal(err)
	}
	w, err := poll.NewWaiter(poll.Event{}, q)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	asleep, overrun := make(chan error, 1), make(chan struct{})
	got := 0
	go func() {
		var wcs [8]WC
		for {
			n, err := w.Wait(t.Context(), wcs[:])
			if err != nil {
				asleep <- err
				return
			}
			got += n
			<-overrun // it is busy meanwhile
		}
	}()
	flushed(t, r, over, 1, 40)
	close(overrun)
	if e := event(t, r.dev); e.Type != EventCQError || e.CQ != q {
		t.Errorf("event %v", e)
	}
	select {
	case err := <-asleep:
		says(t, "Wait", err, ErrOverrun, "poll CQ of depth 31", "deeper")
	case <-time.After(patience):
		t.Fatal("the waiter sleeps")
	}
	if got < 31 || got >= 40 {
		t.Errorf("%d completions before the error, want at least 31 of 40", got)
	}
	var wcs [1]WC
	if n, err := q.Poll(wcs[:]); n != 0 || !errors.Is(err, ErrOverrun) {
		t.Errorf("the error did not stay: %d, %v", n, err)
	}
}

// After a wrong key the next requests had no completion, or an odd one, and programs
// waited for ever. https://github.com/pmem/rpma/issues/1142
func TestBug41EveryBadRequestEnds(t *testing.T) {
	r := newRig(t, false)
	bad := r.peer.Regions[0]
	bad.RKey ^= 0x5500
	for i := range uint64(6) { // one by one: from the second on the queue pair is in ERR
		flags := []SendFlags{}
		if i%2 == 1 {
			flags = append(flags, Unsignaled)
		}
		r.a.SendQueue().Write(i, bad.At(0), r.mr.Span(0, 8), flags...)
		if err := r.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		want := WC{ID: i, QPN: r.a.QPN(), Status: StatusFlushed}
		if i == 0 {
			want.Status = StatusRemoteAccess
		}
		if w := wait(t, r.sendQ, 1)[0]; w != want {
			t.Errorf("request %d ended as %+v, want %+v", i, w, want)
		}
	}
	var wcs [4]WC
	if n, err := r.sendQ.Poll(wcs[:]); n != 0 || err != nil {
		t.Errorf("one more: %d, %v, %+v", n, err, wcs[0])
	}
}

// Not all that was posted ended when a queue pair failed, or on the wrong queue, or
// with an id of nobody's. (A question about rdma_rxe in 2022; irdma.)
func TestBug42ErrorEndsAll(t *testing.T) {
	const sends, recvs = 9, 13
	r := newRig(t, false)
	var qps [2]*QP
	for i, opts := range []*QPOptions{{SendCQ: r.sendQ, RecvCQ: r.recvQ}, {CQ: r.sendQ, SendDepth: 1, RecvDepth: 1}} {
		var err error
		if qps[i], err = r.pd.NewQP(RC, opts); err != nil {
			t.Fatal(err)
		}
	}
	// The peer never offers a receive, so that sends stay outstanding.
	if err := errors.Join(qps[0].Connect(t.Context(), qps[1].Endpoint(), &ConnectOptions{RNRRetries: RetryForever}), qps[1].Connect(t.Context(), qps[0].Endpoint(), nil)); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(sends) {
		flags := []SendFlags{}
		if i%3 == 0 {
			flags = append(flags, Unsignaled)
		}
		qps[0].SendQueue().Send(100+i, r.mr.Span(0, 8), flags...)
	}
	for i := range uint64(recvs) {
		qps[0].RecvQueue().Recv(200+i, r.mr.Span(0, 8))
	}
	if err := errors.Join(qps[0].SendQueue().Flush(), qps[0].RecvQueue().Flush(), qps[0].Modify(StateErr)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		q    *CQ
		side Side
		id   uint64
		n    int
	}{"sends": {r.sendQ, SendSide, 100, sends}, "receives": {r.recvQ, RecvSide, 200, recvs}} {
		for i, w := range wait(t, test.q, test.n) {
			if want := (WC{ID: test.id + uint64(i), QPN: qps[0].QPN(), Side: test.side, Status: StatusFlushed}); w != want {
				t.Errorf("%s: %+v, want %+v", name, w, want)
			}
		}
		var wcs [4]WC
		if n, err := test.q.Poll(wcs[:]); n != 0 || err != nil {
			t.Errorf("%s: one more: %d, %v, %+v", name, n, err, wcs[0])
		}
	}
	ctx := t.Context()
	if err := qps[0].Drain(ctx, func(w WC) { t.Errorf("drained %+v", w) }); err != nil {
		t.Error(err)
	}
}

// The same where the device does not look at the queue of a queue pair any more once
// it has failed, as soft-RoCE of Linux 5.10 does not: a drain ends what is there.
func TestBug42FailedQueueIsNotLookedAt(t *testing.T) {
	r := newRig(t, false)
	if err := r.a.Modify(StateErr); err != nil {
		t.Fatal(err)
	}
	r.dev.noWrite.Store(false)
	r.dev.file = silentFile{r.dev.file}
	for i := range uint64(6) {
		flags := []SendFlags{}
		if i%2 == 1 {
			flags = append(flags, Unsignaled)
		}
		r.a.SendQueue().Write(i, r.peer.Regions[0].At(0), r.mr.Span(0, 8), flags...)
	}
	if err := r.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e := newEnds(t)
	if err := r.a.Drain(ctx, func(w WC) {
		if w.Status != StatusFlushed || w.Flags != FlagSynthetic {
			t.Errorf("%+v", w)
		}
		e.add(w)
	}); err != nil {
		t.Fatal(err)
	}
	e.want(6, 0)
}

// A recovery from an error set back one of two counters and not the other: from then
// on the wrong request was said to have ended. (A driver's software rings.)
func TestBug48CountersAfterReset(t *testing.T) {
	r := newRig(t, false)
	id := uint64(0)
	for round := range 40 {
		// Leave it in the middle of both rings, with requests outstanding.
		for range 1 + round%7 {
			id++
			r.a.RecvQueue().Recv(id, r.mr.Span(0, 8))
			r.a.SendQueue().Write(id, r.peer.Regions[0].At(0), r.mr.Span(0, 8), Unsignaled)
		}
		if err := errors.Join(r.a.RecvQueue().Flush(), r.a.SendQueue().Flush()); err != nil {
			t.Fatal(err)
		}
		to := []QPState{StateErr, StateReset}[round/2%2]
		if err := r.a.Modify(to); err != nil {
			t.Fatal(err)
		}
		if to != StateReset {
			if err := r.a.Modify(StateReset); err != nil {
				t.Fatal(err)
			}
		}
		var wcs [8]WC
		for end := time.Now().Add(patience); !r.a.sq.requests.Idle() || !r.a.rq.requests.Idle(); {
			for _, q := range []*CQ{r.sendQ, r.recvQ} {
				if _, err := q.Poll(wcs[:]); err != nil || time.Now().After(end) {
					t.Fatalf("round %d: outstanding after a reset: %v", round, err)
				}
			}
		}
		if !r.a.sq.ring.Empty() || !r.a.rq.ring.Empty() || r.a.SendQueue().Room() != 16 || r.a.RecvQueue().Room() != 16 {
			t.Fatalf("round %d: rings empty: %v, %v; room %d, %d", round, r.a.sq.ring.Empty(), r.a.rq.ring.Empty(), r.a.SendQueue().Room(), r.a.RecvQueue().Room())
		}
		if err := r.b.Modify(StateReset); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.a.Restart(), r.b.Restart(), r.connect()); err != nil {
			t.Fatal(err)
		}
		id++
		r.a.RecvQueue().Recv(id, r.mr.Span(64, 8))
		r.b.SendQueue().Send(id, r.mr.Span(0, 8))
		if err := errors.Join(r.a.RecvQueue().Flush(), r.b.SendQueue().Flush()); err != nil {
			t.Fatal(err)
		}
		if w := wait(t, r.recvQ, 1)[0]; w.ID != id || w.QPN != r.a.QPN() || w.Err() != nil {
			t.Fatalf("round %d: the first receive is %+v, want %d", round, w, id)
		}
		r.a.SendQueue().Write(id, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
		if err := r.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		got := map[uint32]uint64{}
		for _, w := range wait(t, r.sendQ, 2) {
			got[w.QPN] = w.ID
		}
		if got[r.a.QPN()] != id || got[r.b.QPN()] != id {
			t.Fatalf("round %d: the first sends are %v, want %d", round, got, id)
		}
	}
	if s := r.sendQ.Stats(); s != (CQStats{}) || r.recvQ.Stats() != (CQStats{}) {
		t.Errorf("dropped %+v and %+v", s, r.recvQ.Stats())
	}
}
