package uverbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// pool is an SRQ with two servers, that complete on a CQ each, and their two

// clients.
type pool struct {
	*rig
	srq            *SRQ
	cqs            [2]*CQ // of the servers
	server, client [2]*QP
}

func newPool(t testing.TB, d fakekernel.Device) *pool {
	t.Helper()
	p := &pool{rig: newRig(t, false, d)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	p.srq, err = p.pd.NewSRQ(&SRQOptions{Depth: 8, SGE: 2})
	must(err)
	clients, err := p.dev.NewCQ(64, nil)
	must(err)
	for i := range p.server {
		p.cqs[i], err = p.dev.NewCQ(32, nil)
		must(err)
		p.server[i], err = p.pd.NewQP(RC, &QPOptions{CQ: p.cqs[i], SRQ: p.srq})
		must(err)
		p.client[i], err = p.pd.NewQP(RC, &QPOptions{CQ: clients, Inline: 64})
		must(err)
		must(join(p.server[i], p.client[i]))
	}
	return p
}

// join connects two queue pairs of one program.

func join(a, b *QP) error {
	ctx := context.Background()
	return errors.Join(a.Connect(ctx, b.Endpoint(), nil), b.Connect(ctx, a.Endpoint(), nil))
}

// post offers n receives of 64 bytes with the given ids, at 64 times the id.

func (p *pool) post(t testing.TB, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		p.srq.RecvQueue().Recv(id, p.mr.Span(int(id)*64, 64))
	}
	if err := p.srq.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
}

// send sends a quiet message from a client.

func (p *pool) send(t testing.TB, from int, text string) {
	t.Helper()
	p.client[from].SendQueue().SendInline(1, []byte(text))
	if err := p.client[from].SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	wait(t, p.client[from].sendCQ, 1)
}

func TestSRQ(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	if p.srq.Depth() != 8 || p.srq.RecvQueue().Room() != 8 {
		t.Fatalf("depth %d, room %d", p.srq.Depth(), p.srq.RecvQueue().Room())
	}
	next := uint64(1)
	for round := range 50 { // many laps of the ring
		p.post(t, next, next+1, next+2)
		// The receives are taken in order, by whoever gets a message.
		who := []int{round & 1, round >> 1 & 1, round >> 2 & 1}
		for i, from := range who {
			p.send(t, from, fmt.Sprintf("message %d", next+uint64(i)))
		}
		got := [2][]WC{}
		for i := range 2 {
			n := 0
			for _, w := range who {
				if w == i {
					n++
				}
			}
			got[i] = wait(t, p.cqs[i], n)
		}
		for i, to := range who {
			w, text := got[to][0], fmt.Sprintf("message %d", next+uint64(i))
			got[to] = got[to][1:]
			if want := (WC{ID: next + uint64(i), QPN: p.server[to].QPN(), Bytes: uint32(len(text)), Opcode: OpRecv, Side: RecvSide}); w != want {
				t.Fatalf("%+v, want %+v", w, want)
			}
			if b := p.mem.Bytes()[w.ID*64:][:len(text)]; string(b) != text {
				t.Fatalf("received %q, want %q", b, text)
			}
		}
		next = next%100 + 3
		if room := p.srq.RecvQueue().Room(); room != 8 {
			t.Fatalf("room %d after round %d", room, round)
		}
	}
	if s := p.cqs[0].Stats(); s != (CQStats{}) {
		t.Errorf("completions were dropped: %+v", s)
	}
	// All of 8, and not one more.
	p.post(t, 1, 2, 3, 4, 5, 6, 7, 8)
	p.srq.RecvQueue().Recv(9, p.mr.Span(0, 64))
	says(t, "a ninth", p.srq.RecvQueue().Flush(), ErrQueueFull, "8 receives", "SRQOptions.Depth", "on an SRQ")
	if n := p.srq.RecvQueue().Room(); n != 0 {
		t.Errorf("room %d", n)
	}
	// A queue pair that fails takes none with it.
	if err := p.server[0].Modify(StateErr); err != nil {
		t.Fatal(err)
	}
	p.send(t, 1, "still here")
	if w := wait(t, p.cqs[1], 1)[0]; w.ID != 1 || w.Bytes != 10 {
		t.Errorf("%+v", w)
	}
	// A message that is too long ends the receive as failed, with its id.
	p.client[1].SendQueue().Send(3, p.mr.Span(0, 65))
	if err := p.client[1].SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if w := wait(t, p.cqs[1], 1)[0]; w.ID != 2 || w.Status != cq.StatusLocalQPOperation || w.QPN != p.server[1].QPN() || w.Side != RecvSide || w.Bytes != 0 {
		t.Errorf("%+v", w)
	}
}

func TestSRQLimit(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	if n, err := p.srq.Limit(); n != 0 || err != nil {
		t.Errorf("limit %d, %v", n, err)
	}
	p.post(t, 1, 2, 3, 4)
	if err := p.srq.SetLimit(3); err != nil {
		t.Fatal(err)
	}
	if n, err := p.srq.Limit(); n != 3 || err != nil {
		t.Errorf("limit %d, %v", n, err)
	}
	event := func(want bool) {
		t.Helper()
		select {
		case e := <-p.dev.Events():
			if !want || e.Type != EventSRQLimitReached || e.SRQ != p.srq || !strings.Contains(e.String(), "SRQ limit reached on an SRQ of depth 8") {
				t.Errorf("event %v", e)
			}
		case <-time.After(map[bool]time.Duration{false: 10 * time.Millisecond, true: 10 * time.Second}[want]):
			if want {
				t.Error("no event")
			}
		}
	}
	p.send(t, 0, "three are left")
	event(false)
	p.send(t, 1, "two are left")
	event(true)
	p.send(t, 0, "one is left: that is no news")
	event(false)
	if n, err := p.srq.Limit(); n != 0 || err != nil {
		t.Errorf("limit %d, %v", n, err)
	}
	// Also at birth.
	s, err := p.pd.NewSRQ(&SRQOptions{Limit: 16})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Limit(); n != 16 || err != nil {
		t.Errorf("limit %d, %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	says(t, "limit of a closed one", s.SetLimit(1), os.ErrClosed)
	_, err = s.Limit()
	says(t, "limit of a closed one", err, os.ErrClosed)
	s.RecvQueue().Recv(1, p.mr.Span(0, 1))
	says(t, "flush of a closed one", s.RecvQueue().Flush(), os.ErrClosed, "1 request on an SRQ")
	says(t, "closed twice", s.Close(), os.ErrClosed)
}

// An SRQ counts once against each CQ that its receives may complete on, from the

// first queue pair to the last completion of the last one.

func TestSRQCredits(t *testing.T) {
	r := newRig(t, false)
	srq, err := r.pd.NewSRQ(&SRQOptions{Depth: 20})
	if err != nil {
		t.Fatal(err)
	}
	q, err := r.dev.NewCQ(31, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := &QPOptions{CQ: q, SRQ: srq, SendDepth: 2}
	var qps []*QP
	for range 5 { // 20 and 5 times 2
		qp, err := r.pd.NewQP(RC, opts)
		if err != nil {
			t.Fatal(err)
		}
		qps = append(qps, qp)
	}
	_, err = r.pd.NewQP(RC, opts)
	says(t, "one too many", err, ErrCQFull, "send", "asks for 2", "30 of the CQ's 31")
	for _, qp := range qps {
		if err := qp.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if q.committed != 0 {
		t.Errorf("%d completions are still claimed", q.committed)
	}
	_, err = r.pd.NewQP(RC, &QPOptions{CQ: q, SRQ: srq, SendDepth: 12})
	says(t, "the SRQ does not fit", err, ErrCQFull, "SRQ depth asks for 20", "12 of the CQ's 31")
	if q.committed != 0 || len(srq.claims) != 0 {
		t.Errorf("%d completions claimed, by %v", q.committed, srq.claims)
	}
	other, err := r.dev.NewCQ(31, nil)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := r.pd.NewQP(RC, &QPOptions{SendCQ: other, RecvCQ: q, SRQ: srq, SendDepth: 31})
	if err != nil {
		t.Fatal(err)
	}
	if q.committed != 20 || other.committed != 31 {
		t.Errorf("claimed %d and %d, want 20 and 31", q.committed, other.committed)
	}
	says(t, "SRQ in use", srq.Close(), ErrInUse, "1 QP")
	if err := qp.Close(); err != nil {
		t.Fatal(err)
	}
	if err := srq.Close(); err != nil {
		t.Fatal(err)
	}
	if err := srq.Close(); !isClosed(err) {
		t.Errorf("closed twice: %v", err)
	}
}

func TestSRQBadArguments(t *testing.T) {
	r := newRig(t, false)
	srq, err := r.pd.NewSRQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := r.dev.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	qp, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SRQ: srq, SendDepth: 4})
	if err != nil {
		t.Fatal(err)
	}
	if l := qp.Limits(); l.RecvDepth != 0 || l.RecvSGE != 0 {
		t.Errorf("limits %+v", l)
	}
	makeSRQ := func(o SRQOptions) func() error {
		return func() error { _, err := r.pd.NewSRQ(&o); return err }
	}
	for name, test := range map[string]struct {
		make  func() error
		is    error
		parts []string
	}{
		"depth < 0":          {makeSRQ(SRQOptions{Depth: -1}), ErrInvalid, []string{"Depth -1", "1 to 1048576"}},
		"depth":              {makeSRQ(SRQOptions{Depth: 1<<20 + 1}), ErrInvalid, []string{"Depth 1048577"}},
		"spans":              {makeSRQ(SRQOptions{SGE: 28}), ErrInvalid, []string{"SGE 28", "1 to 27"}},
		"limit":              {makeSRQ(SRQOptions{Limit: 17}), ErrInvalid, []string{"Limit 17", "0 to 16"}},
		"limit < 0":          {makeSRQ(SRQOptions{Depth: 4, Limit: -1}), ErrInvalid, []string{"Limit -1", "0 to 4"}},
		"set limit":          {func() error { return srq.SetLimit(17) }, ErrInvalid, []string{"17", "0 to 16"}},
		"set limit < 0":      {func() error { return srq.SetLimit(-1) }, ErrInvalid, []string{"-1"}},
		"another PD":         {func() error { _, err := pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SRQ: srq}); return err }, ErrInvalid, []string{"another protection domain"}},
		"close, in use":      {srq.Close, ErrInUse, []string{"1 QP"}},
		"receive of the QP":  {func() error { qp.RecvQueue().Recv(1, r.mr.Span(0, 1)); return qp.RecvQueue().Flush() }, ErrInvalid, []string{"SRQ.RecvQueue"}},
		"receives of the QP": {func() error { qp.RecvQueue().RecvV(1, nil); return qp.RecvQueue().Flush() }, ErrInvalid, []string{"SRQ.RecvQueue"}},
		"span":               {func() error { srq.RecvQueue().Recv(1, r.mr.Span(1<<16, 1)); return srq.RecvQueue().Flush() }, ErrBounds, []string{"offset 65536"}},
		"spans of a receive": {func() error { srq.RecvQueue().RecvV(1, make([]Span, 2)); return srq.RecvQueue().Flush() }, ErrInvalid, []string{"2 spans", "takes 1", "SRQOptions.SGE"}},
	} {
		says(t, name, test.make(), test.is, test.parts...)
	}
	if n := srq.RecvQueue().Room(); n != 16 {
		t.Errorf("room %d, want 16", n)
	}
	lacking := newRig(t, false, fakekernel.Device{Lacks: []fakekernel.Method{{Object: abi.UVERBS_OBJECT_SRQ, Method: abi.UVERBS_METHOD_SRQ_CREATE}}})
	_, err = lacking.pd.NewSRQ(nil)
	says(t, "a kernel without", err, ErrNotSupported, "kernel")
}

// Closing a queue pair gives the receives back that its unpolled completions

// hold, also when its number is used again at once; so does closing the CQ.

// A CQ that is resized in between still tells a queue pair from the one that had

// its number before.

// Beside a poller, a queue pair is closed and another made that gets the same

// number and shares the same SRQ and CQ, over and over. Every message that comes

// to a live one is heard once, with the id of its receive; no receive is lost.

//

// GOVERBS_ROUNDS sets how often.

// roundsOr is how often a test that costs much goes round: GOVERBS_ROUNDS in the

// environment, or usual.

// unposted is how many receives the device has not taken.

// Two pollers, one poster, many senders.

// A queue pair with an SRQ is shut down and made new; the SRQ's receives stay.

func TestShutdownSRQ(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	p.post(t, 1, 2, 3)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p.send(t, 0, "first")
	var ends []WC
	if err := p.server[0].Drain(ctx, func(w WC) { ends = append(ends, w) }); err != nil {
		t.Fatal(err)
	}
	if len(ends) != 1 || ends[0].ID != 1 {
		t.Errorf("ends %+v", ends)
	}
	if err := p.client[0].Shutdown(ctx); err != nil { // nothing of it is outstanding
		t.Fatal(err)
	}
	if err := errors.Join(p.server[0].Restart(), p.client[0].Restart(), join(p.server[0], p.client[0])); err != nil {
		t.Fatal(err)
	}
	p.send(t, 0, "second")
	if w := wait(t, p.cqs[0], 1)[0]; w.ID != 2 || !bytes.Equal(p.mem.Bytes()[2*64:][:6], []byte("second")) {
		t.Errorf("%+v", w)
	}
}

// Posting to an SRQ and polling its completions allocates nothing.

func TestSRQAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("declared skip: the race detector itself allocates")
	}
	p := newPool(t, fakekernel.Device{})
	rq, spans := p.srq.RecvQueue(), []Span{p.mr.Span(0, 8), p.mr.Span(8, 8)}
	if n := testing.AllocsPerRun(100, func() {
		rq.RecvV(1, spans)
		rq.ring.Rollback(rq.table.Staged())
		rq.table.Rollback(rq.table.Staged())
	}); n != 0 {
		t.Errorf("a receive allocates %v times", n)
	}
	// As many completions as a CQ holds are there before they are polled.
	var wcs [1]WC
	p.post(t, 1, 2, 3, 4, 5, 6, 7, 8)
	for range 8 {
		p.send(t, 0, "x")
	}
	if n := testing.AllocsPerRun(7, func() {
		if n, err := p.cqs[0].Poll(wcs[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		rq.Recv(1, p.mr.Span(0, 8))
		if err := rq.Flush(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a completion and a receive allocate %v times", n)
	}
}

// What the kernel refuses to destroy stays usable, and can be closed later.

func TestCloseRefused(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	ah, err := p.pd.NewAH(p.a.Endpoint(), nil)
	if err != nil {
		t.Fatal(err)
	}
	srq, err := p.pd.NewSRQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.k.Fail(func(c fakekernel.Call) error {
		switch c.Method {
		case fakekernel.Method{Object: abi.UVERBS_OBJECT_AH, Method: abi.UVERBS_METHOD_AH_DESTROY},
			fakekernel.Method{Object: abi.UVERBS_OBJECT_SRQ, Method: abi.UVERBS_METHOD_SRQ_DESTROY}:
			return syscall.EBUSY
		}
		return nil
	})
	says(t, "AH", ah.Close(), ErrInUse)
	says(t, "SRQ", srq.Close(), ErrInUse)
	p.k.Fail(nil)
	if err := ah.usable(p.pd); err != nil {
		t.Error(err)
	}
	srq.RecvQueue().Recv(1, p.mr.Span(0, 8))
	if err := errors.Join(srq.RecvQueue().Flush(), srq.SetLimit(1), ah.Close(), srq.Close()); err != nil {
		t.Error(err)
	}
}

// A life with datagrams and an SRQ, and an error at every call of it.

func TestSRQLifeWithAFailureAtEveryCall(t *testing.T) {
	live := func(r *rig) error {
		if err := r.open(false); err != nil {
			return err
		}
		srq, err := r.pd.NewSRQ(&SRQOptions{Depth: 4, Limit: 2})
		if err != nil {
			return err
		}
		qp, err := r.pd.NewQP(UD, &QPOptions{CQ: r.recvQ, SRQ: srq, SendDepth: 4, Inline: 8})
		if err != nil {
			return err
		}
		ah, err := r.pd.NewAH(qp.Endpoint(), nil)
		if err != nil {
			return err
		}
		group := GID{10: 0xff, 11: 0xff, 12: 239, 15: 1}
		if err := qp.AttachMulticast(group); err != nil {
			return err
		}
		srq.RecvQueue().Recv(1, r.mr.Span(0, 64))
		if err := srq.RecvQueue().Flush(); err != nil {
			return err
		}
		qp.SendQueue().SendToInline(2, Dest{AH: ah, QPN: qp.QPN()}, []byte("hello"))
		if err := qp.SendQueue().Flush(); err != nil {
			return err
		}
		var wcs [4]WC
		for n, end := 0, time.Now().Add(5*time.Second); n < 2; {
			k, err := r.recvQ.Poll(wcs[:])
			if err != nil {
				return err
			}
			for _, w := range wcs[:k] {
				if w.Err() != nil {
					return w.Err()
				}
			}
			if n += k; time.Now().After(end) {
				return errors.New("no completions")
			}
		}
		if _, err := srq.Limit(); err != nil {
			return err
		}
		return errors.Join(srq.SetLimit(1), qp.DetachMulticast(group), qp.AttachMulticast(group))
	}
	whole := &rig{k: fakekernel.New(fakekernel.Device{})}
	if err := live(whole); err != nil {
		t.Fatal(err)
	}
	calls := whole.k.Calls()
	whole.close(t)
	whole.clean(t)
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EIO, syscall.EINVAL, syscall.EPROTONOSUPPORT} {
		for n := 1; n <= calls; n++ {
			r := &rig{k: fakekernel.New(fakekernel.Device{})}
			var failed fakekernel.Call
			r.k.Fail(func(c fakekernel.Call) error {
				if c.N != n {
					return nil
				}
				failed = c
				return errno
			})
			err := live(r)
			r.k.Fail(nil)
			r.close(t)
			r.clean(t)
			if t.Failed() {
				t.Fatalf("%v at call %d (%v): the life ended with %v", errno, n, failed, err)
			}
		}
	}
}
