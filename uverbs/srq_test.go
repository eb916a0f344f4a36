package uverbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

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
	says(t, "a ninth", p.srq.RecvQueue().Flush(), ErrQueueFull, "8 receives", "SRQOptions.Depth", "flush of an SRQ")
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

// A queue pair with an SRQ is shut down and made new; the SRQ's receives stay.
func TestShutdownSRQ(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	p.post(t, 1, 2, 3)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
	n := math.Inf(1)
	for range 5 { // in so few runs what others allocate would count, which they do not always
		for range 8 {
			p.send(t, 0, "x")
		}
		n = min(n, testing.AllocsPerRun(7, func() {
			if n, err := p.cqs[0].Poll(wcs[:]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			rq.Recv(1, p.mr.Span(0, 8))
			if err := rq.Flush(); err != nil {
				t.Fatal(err)
			}
		}))
	}
	if n != 0 {
		t.Errorf("a completion and a receive allocate %v times", n)
	}
}
