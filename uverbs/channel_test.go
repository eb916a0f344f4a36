package uverbs

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/poll"
)

// Several queues on one channel, each with its own waiter: whoever reads the
// event of another hands it on, and nobody sleeps on a completion.
func TestSharedChannel(t *testing.T) {
	r := newRig(t, false)
	c, err := r.dev.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	const queues, each = 4, 200
	var wg sync.WaitGroup
	var qs []*CQ
	for i := range queues {
		q, err := r.dev.NewCQ(64, &CQOptions{Channel: c})
		if err != nil {
			t.Fatal(err)
		}
		qs = append(qs, q)
		opts := &QPOptions{CQ: q, SendDepth: 8, RecvDepth: 8}
		s := rig{k: r.k, dev: r.dev, pd: r.pd, mem: r.mem, mr: r.mr}
		if s.a, err = r.pd.NewQP(RC, opts); err != nil {
			t.Fatal(err)
		}
		if s.b, err = r.pd.NewQP(RC, opts); err != nil {
			t.Fatal(err)
		}
		if err := s.connect(); err != nil {
			t.Fatal(err)
		}
		w, err := poll.NewWaiter(poll.Event{Thread: i%2 == 0}, q)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		wg.Go(func() {
			var wcs [2]WC
			for k := range uint64(each) {
				s.a.SendQueue().Write(k, s.peer.Regions[0].At(0), s.mr.Span(0, 8))
				if err := s.a.SendQueue().Flush(); err != nil {
					t.Error(err)
					return
				}
				n, err := w.Wait(t.Context(), wcs[:])
				if err != nil || n != 1 || wcs[0].ID != k {
					t.Errorf("queue %d: %d, %v, %+v", i, n, err, wcs[0])
					return
				}
			}
		})
	}
	wg.Wait()
	says(t, "close in use", c.Close(), ErrInUse, "4 CQs")
	if err := r.dev.Close(); err != nil {
		t.Fatal(err)
	}
	for _, q := range qs {
		says(t, "closed already", q.Close(), os.ErrClosed)
	}
	says(t, "channel closed already", c.Close(), os.ErrClosed)
}

// One waiter on several queues of one channel.
func TestSharedChannelOneWaiter(t *testing.T) {
	r := newRig(t, false)
	c, err := r.dev.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	sendQ, err := r.dev.NewCQ(64, &CQOptions{Channel: c})
	if err != nil {
		t.Fatal(err)
	}
	recvQ, err := r.dev.NewCQ(64, &CQOptions{Channel: c})
	if err != nil {
		t.Fatal(err)
	}
	opts := &QPOptions{SendCQ: sendQ, RecvCQ: recvQ}
	for _, qp := range []**QP{&r.a, &r.b} {
		if *qp, err = r.pd.NewQP(RC, opts); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.connect(); err != nil {
		t.Fatal(err)
	}
	w, err := poll.NewWaiter(poll.Event{}, sendQ, recvQ)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var wcs [1]WC
	for range 100 {
		r.b.RecvQueue().Recv(1, r.mr.Span(0, 8))
		if err := r.b.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		r.a.SendQueue().Send(2, r.mr.Span(8, 8))
		if err := r.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
}

// A shared queue may be polled by many.
func TestSharedCQ(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(256, &CQOptions{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, qp := range []**QP{&r.a, &r.b} {
		if *qp, err = r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 32}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.connect(); err != nil {
		t.Fatal(err)
	}
	e := newEnds(t)
	const total = 2000
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var wcs [4]WC
			for {
				select {
				case <-done:
					return
				default:
				}
				n, err := q.Poll(wcs[:])
				if err != nil {
					t.Error(err)
					return
				}
				for _, w := range wcs[:n] {
					e.add(w)
				}
			}
		})
	}
	for i := uint64(0); i < total; {
		if r.a.SendQueue().Room() == 0 {
			continue
		}
		r.a.SendQueue().Write(i, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
		if err := r.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		i++
	}
	for !r.a.sq.requests.Idle() {
	}
	close(done)
	wg.Wait()
	e.want(total, 0)
}

// Who reads the event of another queue wakes that queue's waiter: the descriptor
// that it sleeps on may be silent again before it has looked.
func TestSharedChannelWakesOwner(t *testing.T) {
	r := newRig(t, false)
	c, err := r.dev.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	var queues [2]*CQ
	for i := range queues {
		if queues[i], err = r.dev.NewCQ(8, &CQOptions{Channel: c}); err != nil {
			t.Fatal(err)
		}
	}
	reader, owner := queues[0], queues[1]
	qp, err := r.pd.NewQP(RC, &QPOptions{CQ: owner, SendDepth: 1, RecvDepth: 1})
	if err != nil {
		t.Fatal(err)
	}
	qp.RecvQueue().Recv(1, r.mr.Span(0, 8))
	if err := qp.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	woken := 0
	_, detach, err := owner.Attach(func() { woken++ })
	if err != nil {
		t.Fatal(err)
	}
	defer detach()
	if err := owner.Arm(false); err != nil {
		t.Fatal(err)
	}
	if err := qp.Modify(StateErr); err != nil {
		t.Fatal(err)
	}
	if ok, err := reader.TakeEvent(); ok || err != nil || woken != 1 {
		t.Errorf("the other queue's event: %v, %v; %d wakes, want 1", ok, err, woken)
	}
	for _, want := range []bool{true, false} {
		if ok, err := owner.TakeEvent(); ok != want || err != nil {
			t.Errorf("its own event: %v, %v, want %v", ok, err, want)
		}
	}
	if err := errors.Join(qp.Close(), owner.Close(), reader.Close()); err != nil {
		t.Fatal(err)
	}
	if n := len(c.queues); n != 0 {
		t.Errorf("the channel still knows %d closed queues", n)
	}
}
