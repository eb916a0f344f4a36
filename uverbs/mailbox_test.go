package uverbs

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
)

// lateRing lets something happen right after the poller has looked at the ring,
// and before it looks at its mail.
type lateRing struct {
	cq.CompletionRing
	after func()
}

func (l *lateRing) Poll(wcs []WC) (int, bool) {
	n, drained := l.CompletionRing.Poll(wcs)
	if f := l.after; f != nil {
		l.after = nil
		f()
	}
	return n, drained
}

// pollThen polls q, which finds nothing, while after happens. Other mail is
// there already.
func pollThen(t *testing.T, q *CQ, after func()) {
	t.Helper()
	q.ring = &lateRing{q.ring, after}
	q.state.Set(cq.Mail)
	var wcs [4]WC
	if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
		t.Errorf("Poll of a ring that was empty: %d, %v, %+v", n, err, wcs[0])
	}
}

// A queue pair that is closed while the poller is between ring and mail leaves
// its credits and its index where they are until its completions were read.
func TestClosedBetweenRingAndMail(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := &QPOptions{CQ: q, SendDepth: 1, RecvDepth: q.Depth() - 1}
	qp, err := r.pd.NewQP(RC, opts)
	if err != nil {
		t.Fatal(err)
	}
	qp.RecvQueue().Recv(1, r.mr.Span(0, 8))
	if err := qp.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	pollThen(t, q, func() {
		if err := errors.Join(qp.Modify(StateErr), qp.Close()); err != nil {
			t.Error(err)
		}
	})
	if _, err := r.pd.NewQP(RC, opts); !errors.Is(err, ErrCQFull) {
		t.Errorf("a new queue pair before the ring was read: %v", err)
	}
	var wcs [4]WC
	if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
		t.Errorf("Poll: %d, %v", n, err)
	}
	if s := q.Stats(); s != (CQStats{Late: 1}) {
		t.Errorf("%+v, want one late completion", s)
	}
	if s := q.state.Load(); s != 0 {
		t.Errorf("state %#x: polls stay slow after all mail is read", s)
	}
}

// A reset while the poller is between ring and mail: the device's own end of a
// request comes before those that the library makes up.
func TestResetBetweenRingAndMail(t *testing.T) {
	r := newRig(t, false)
	for id := range uint64(2) {
		r.a.RecvQueue().Recv(id, r.mr.Span(0, 8))
	}
	if err := r.a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	pollThen(t, r.recvQ, func() {
		r.b.SendQueue().Send(9, r.mr.Span(8, 8))
		if err := errors.Join(r.b.SendQueue().Flush(), r.a.Modify(StateReset)); err != nil {
			t.Error(err)
		}
	})
	wcs := wait(t, r.recvQ, 2)
	if wcs[0].ID != 0 || wcs[0].Status != StatusSuccess || wcs[1].ID != 1 || wcs[1].Status != StatusFlushed {
		t.Errorf("completions %+v", wcs)
	}
	if s := r.recvQ.Stats(); s != (CQStats{}) {
		t.Errorf("%+v", s)
	}
}

// A queue that dies while the poller is between ring and mail: the completions
// come before the error.
func TestDeadBetweenRingAndMail(t *testing.T) {
	r := newRig(t, false)
	pollThen(t, r.sendQ, func() {
		r.a.SendQueue().Write(5, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
		if err := r.a.SendQueue().Flush(); err != nil {
			t.Error(err)
		}
		r.sendQ.mailbox.kill(r.sendQ, ErrOverrun)
	})
	if w := wait(t, r.sendQ, 1)[0]; w.ID != 5 {
		t.Errorf("completion %+v", w)
	}
	var wcs [1]WC
	if n, err := r.sendQ.Poll(wcs[:]); n != 0 || !errors.Is(err, ErrOverrun) {
		t.Errorf("Poll: %d, %v", n, err)
	}
}

// A ring that is never empty does not hold back the ends of a queue pair that
// was reset for longer than a lap.
func TestResetBesideTraffic(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(40, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 2, RecvDepth: 2})
	if err != nil {
		t.Fatal(err)
	}
	other.RecvQueue().Recv(77, r.mr.Span(0, 8))
	if err := other.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	s := rig{k: r.k, dev: r.dev, pd: r.pd, mem: r.mem, mr: r.mr, b: r.b}
	if s.a, err = r.pd.NewQP(RC, &QPOptions{CQ: q}); err != nil {
		t.Fatal(err)
	}
	if s.b, err = r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 1, RecvDepth: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.connect(); err != nil {
		t.Fatal(err)
	}
	write := func() {
		s.a.SendQueue().Write(1, s.peer.Regions[0].At(0), r.mr.Span(0, 8))
		if err := s.a.SendQueue().Flush(); err != nil {
			t.Error(err)
		}
	}
	write()
	if err := other.Modify(StateReset); err != nil {
		t.Fatal(err)
	}
	ring := &lateRing{CompletionRing: q.ring}
	q.ring = ring
	for range 200 {
		ring.after = write
		var wcs [4]WC
		n, err := q.Poll(wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wcs[:n] {
			if w.ID == 77 && w.Status == StatusFlushed {
				return
			}
		}
	}
	t.Error("the receive of the queue pair that was reset did not end")
}

// A batch that was read while the queue was closed is thrown away: its memory
// may have been replaced in the middle.
func TestClosedInsidePoll(t *testing.T) {
	for _, mail := range []uint32{0, cq.Mail} {
		r := newRig(t, false)
		r.a.SendQueue().Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
		if err := r.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		r.sendQ.ring = &lateRing{r.sendQ.ring, func() {
			if err := errors.Join(r.a.Close(), r.b.Close(), r.sendQ.Close()); err != nil {
				t.Error(err)
			}
		}}
		r.sendQ.state.Set(mail)
		var wcs [4]WC
		if n, err := r.sendQ.Poll(wcs[:]); n != 0 || !errors.Is(err, os.ErrClosed) {
			t.Errorf("Poll: %d, %v, %+v, want %v", n, err, wcs[0], os.ErrClosed)
		}
	}
}

// A waiter that sleeps wakes for ends that the library makes up.
func TestResetWakesWaiter(t *testing.T) {
	r := newRig(t, true)
	w, err := poll.NewWaiter(poll.Event{}, r.recvQ)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
	if err := r.a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, func() {
		if err := r.a.Modify(StateReset); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wcs [4]WC
	// The end of the context would wake it too.
	if n, err := w.Wait(ctx, wcs[:]); ctx.Err() != nil || n != 1 || err != nil || wcs[0].ID != 1 || wcs[0].Status != StatusFlushed {
		t.Errorf("Wait: %d, %v, %+v", n, err, wcs[0])
	}
}
