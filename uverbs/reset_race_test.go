package uverbs

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// What a reset leaves to the library to end is what was posted before it: when the
// queue pair is used again while the poller has not come to that mail, the new
// requests are the device's.
func TestResetEndsNothingPostedLater(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(64, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := &QPOptions{CQ: q, SendDepth: 4, RecvDepth: 4, Inline: 8}
	var qps [2]*QP
	for i := range qps {
		if qps[i], err = r.pd.NewQP(RC, opts); err != nil {
			t.Fatal(err)
		}
		if err := qps[i].Connect(t.Context(), qps[i].Endpoint(), nil); err != nil {
			t.Fatal(err)
		}
	}
	write := func(qp *QP, id uint64) {
		t.Helper()
		qp.SendQueue().WriteInline(id, r.mr.Remote().At(0), []byte("x"))
		if err := qp.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	// The queue is not empty when the poller finds the mail of the reset, and
	// not when the queue pair is in use again.
	a, other := qps[0], qps[1]
	write(a, 1)
	write(other, 2)
	if err := a.Modify(StateReset); err != nil {
		t.Fatal(err)
	}
	if w := wait(t, q, 1)[0]; w.ID != 1 {
		t.Fatalf("completion %+v", w)
	}
	if err := errors.Join(a.Restart(), a.Connect(t.Context(), a.Endpoint(), nil)); err != nil {
		t.Fatal(err)
	}
	a.RecvQueue().Recv(3, r.mr.Span(0, 8))
	if err := a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	var wcs [4]WC
	n, err := q.Poll(wcs[:])
	if n != 1 || err != nil || wcs[0].ID != 2 {
		t.Errorf("Poll: %d, %v, %+v: want the other queue pair's completion alone", n, err, wcs[:n])
	}
	if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
		t.Errorf("Poll: %d, %v, %+v: the receive is outstanding", n, err, wcs[:n])
	}
	if err := a.Modify(StateErr); err != nil {
		t.Fatal(err)
	}
	if w := wait(t, q, 1)[0]; w.ID != 3 || w.Flags&cq.FlagSynthetic != 0 {
		t.Errorf("completion %+v, want the device's own end of the receive", w)
	}
	if s := q.Stats(); s != (CQStats{}) {
		t.Errorf("%+v", s)
	}
}

// slowRecvRing holds one Publish back.
type slowRecvRing struct {
	cq.RecvRing
	entered, goOn chan struct{}
	taken         atomic.Bool
}

func (s *slowRecvRing) Publish() {
	if !s.taken.Swap(true) {
		close(s.entered)
		<-s.goOn
	}
	s.RecvRing.Publish()
}

// A reset waits for a Flush that is under way, which so has said the truth: its
// requests come to their ends.
func TestResetWaitsForFlush(t *testing.T) {
	t.Setenv("GOVERBS_NOWRITE", "1") // so that the doorbell is an ioctl
	for _, side := range []Side{SendSide, RecvSide} {
		t.Run(side.String(), func(t *testing.T) {
			r := newRig(t, false)
			var entered, goOn chan struct{}
			var q *CQ
			var flush func() error
			if side == SendSide {
				s := newSlowFile(r.dev, abi.IB_USER_VERBS_CMD_POST_SEND)
				entered, goOn, q, flush = s.entered, s.goOn, r.sendQ, r.a.SendQueue().Flush
				r.a.SendQueue().Write(7, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
			} else {
				s := &slowRecvRing{RecvRing: r.a.rq.ring, entered: make(chan struct{}), goOn: make(chan struct{})}
				r.a.rq.ring = s
				entered, goOn, q, flush = s.entered, s.goOn, r.recvQ, r.a.RecvQueue().Flush
				r.a.RecvQueue().Recv(7, r.mr.Span(0, 8))
			}
			flushed, reset := make(chan error, 1), make(chan error, 1)
			go func() { flushed <- flush() }()
			<-entered
			go func() { reset <- r.a.Modify(StateReset) }()
			select {
			case err := <-reset:
				t.Errorf("the reset did not wait: %v", err)
				reset <- err
			case <-time.After(20 * time.Millisecond):
			}
			close(goOn)
			if err := errors.Join(<-flushed, <-reset); err != nil {
				t.Fatal(err)
			}
			if w := wait(t, q, 1)[0]; w.ID != 7 {
				t.Errorf("completion %+v", w)
			}
			if err := r.a.Restart(); err != nil {
				t.Error(err)
			}
		})
	}
}

// So does a shutdown, also beyond the time that a turn takes.
func TestShutdownWaitsForFlush(t *testing.T) {
	r := newRig(t, false)
	s := &slowRecvRing{RecvRing: r.a.rq.ring, entered: make(chan struct{}), goOn: make(chan struct{})}
	r.a.rq.ring = s
	r.a.RecvQueue().Recv(7, r.mr.Span(0, 8))
	flushed, drained := make(chan error, 1), make(chan error, 1)
	go func() { flushed <- r.a.RecvQueue().Flush() }()
	<-s.entered
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []WC
	go func() { drained <- r.a.Drain(ctx, func(w WC) { got = append(got, w) }) }()
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if s := r.a.State(); s != StateRTS {
			t.Errorf("it went to %v beside a Flush", s)
			break
		}
	}
	close(s.goOn)
	if err := errors.Join(<-flushed, <-drained); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].ID != 7 {
		t.Errorf("ends %+v", got)
	}
}

// What was staged before a reset is void after it: the device has wiped the ring
// that it stands in.
func TestResetVoidsWhatIsStaged(t *testing.T) {
	r := newRig(t, false)
	sq, rq := r.a.SendQueue(), r.a.RecvQueue()
	stage := func(id uint64) {
		sq.Write(id, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
		rq.Recv(id, r.mr.Span(0, 8))
	}
	stage(1)
	if err := r.a.Modify(StateReset); err != nil {
		t.Fatal(err)
	}
	says(t, "in RESET", rq.Flush(), ErrState, "reset since")
	rq.Recv(1, r.mr.Span(0, 8)) // in RESET
	if err := errors.Join(r.a.Restart(), r.b.Modify(StateReset), r.b.Restart(), r.connect()); err != nil {
		t.Fatal(err)
	}
	says(t, "sends", sq.Flush(), ErrState, "reset since")
	if err := rq.Flush(); err != nil {
		t.Errorf("receives that were staged in RESET: %v", err)
	}
	stage(2)
	if err := errors.Join(sq.Flush(), rq.Flush()); err != nil {
		t.Fatal(err)
	}
	if w := wait(t, r.sendQ, 1)[0]; w.ID != 2 || w.Status != StatusSuccess || w.Bytes != 8 {
		t.Errorf("completion %+v", w)
	}
	// An empty Flush after a reset, and a reset that fails, void nothing for good.
	says(t, "reset with attributes", r.a.Modify(StateReset, AttrQKey(1)), syscall.EINVAL)
	if err := errors.Join(sq.Flush(), rq.Flush()); err != nil {
		t.Error(err)
	}
	stage(3)
	if err := errors.Join(sq.Flush(), rq.Flush()); err != nil {
		t.Error(err)
	}
	stage(4)
	says(t, "reset with attributes", r.a.Modify(StateReset, AttrQKey(1)), syscall.EINVAL)
	if err := errors.Join(sq.Flush(), rq.Flush()); err != nil {
		t.Errorf("staged before a reset that failed: %v", err)
	}
	for _, w := range wait(t, r.sendQ, 2) {
		if w.Err() != nil || w.ID != 3 && w.ID != 4 {
			t.Errorf("completion %+v", w)
		}
	}
}
