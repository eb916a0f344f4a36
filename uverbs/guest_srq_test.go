package uverbs_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// pool is an SRQ with two servers, that complete on a CQ each, and their two
// clients.
type pool struct {
	*pair
	srq            *uverbs.SRQ
	cqs            [2]*uverbs.CQ
	server, client [2]*uverbs.QP
}

func newPool(t testing.TB) *pool {
	t.Helper()
	p := &pool{pair: newPair(t, false)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	p.srq, err = p.pd.NewSRQ(&uverbs.SRQOptions{Depth: 8, SGE: 2})
	must(err)
	for i := range p.server {
		p.cqs[i], err = p.dev.NewCQ(64, nil)
		must(err)
		p.server[i], err = p.pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: p.cqs[i], SRQ: p.srq})
		must(err)
		p.client[i], err = p.pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: p.q, Inline: 64})
		must(err)
		must(p.server[i].Connect(t.Context(), p.client[i].Endpoint(), nil))
		must(p.client[i].Connect(t.Context(), p.server[i].Endpoint(), nil))
	}
	return p
}

// post offers receives of 4096 bytes in two pieces, at 4096 times their ids.
func (p *pool) post(t testing.TB, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		p.srq.RecvQueue().RecvV(id, []uverbs.Span{p.mr.Span(int(id)*4096, 10), p.mr.Span(int(id)*4096+10, 4086)})
	}
	if err := p.srq.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
}

// collect polls the CQ of a server for n completions.
func (p *pool) collect(t testing.TB, server, n int) []uverbs.WC {
	t.Helper()
	q := pair{q: p.cqs[server]}
	return q.wait(t, n)
}

// Receives are taken in order by whoever gets a message, and complete on that
// one's CQ, with its number.
func TestGuestSRQ(t *testing.T) {
	p := newPool(t)
	buf := p.mem.Bytes()
	id := uint64(1)
	for round := range 40 { // several laps of the ring
		ids := []uint64{id, id + 1, id + 2, id + 3}
		p.post(t, ids...)
		for i, id := range ids {
			from := (round >> i) & 1
			// From nothing to several packets.
			n := []int{0, 9, 11, 3000}[(round+i)%4]
			for j := range n {
				buf[j] = byte(round + i*5 + j*3)
			}
			clear(buf[id*4096:][:4096])
			sq := p.client[from].SendQueue()
			want := uverbs.WC{ID: id, QPN: p.server[from].QPN(), Bytes: uint32(n), Opcode: uverbs.OpRecv, Side: uverbs.RecvSide}
			if i == 0 {
				sq.SendImm(7, uint32(round), p.mr.Span(0, n))
				want.SetImm(uint32(round))
			} else {
				sq.Send(7, p.mr.Span(0, n))
			}
			if err := sq.Flush(); err != nil {
				t.Fatal(err)
			}
			if w := p.wait(t, 1)[0]; w.ID != 7 || w.Err() != nil {
				t.Fatalf("sent %+v", w)
			}
			if w := p.collect(t, from, 1)[0]; w != want {
				t.Fatalf("received %+v, want %+v", w, want)
			}
			if !bytes.Equal(buf[id*4096:][:n], buf[:n]) || buf[id*4096+uint64(n)] != 0 {
				t.Fatalf("round %d: other bytes arrived", round)
			}
		}
		if n := p.srq.RecvQueue().Room(); n != 8 {
			t.Fatalf("round %d: room %d, want 8", round, n)
		}
		id = id%20 + 4
	}
	for _, q := range p.cqs {
		if s := q.Stats(); s != (uverbs.CQStats{}) {
			t.Errorf("completions were dropped: %+v", s)
		}
	}
}

func TestGuestSRQLimit(t *testing.T) {
	p := newPool(t)
	p.post(t, 1, 2, 3, 4)
	if err := p.srq.SetLimit(3); err != nil {
		t.Fatal(err)
	}
	if n, err := p.srq.Limit(); n != 3 || err != nil {
		t.Errorf("limit %d, %v", n, err)
	}
	send := func(from int) {
		t.Helper()
		p.client[from].SendQueue().SendInline(1, []byte("x"))
		if err := p.client[from].SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		p.wait(t, 1)
		p.collect(t, from, 1)
	}
	event := func(after time.Duration) (e uverbs.Event, ok bool) {
		timeout := time.After(after)
		for {
			select {
			case e := <-p.dev.Events():
				if e.SRQ == nil && e.Type != uverbs.EventSRQLimitReached {
					continue // of the port, perhaps
				}
				return e, true
			case <-timeout:
				return e, false
			}
		}
	}
	send(0)
	if e, ok := event(50 * time.Millisecond); ok {
		t.Errorf("an event with three receives left: %v", e)
	}
	send(1)
	if e, ok := event(20 * time.Second); !ok || e.Type != uverbs.EventSRQLimitReached || e.SRQ != p.srq {
		t.Errorf("with two receives left: %v, %v", e, ok)
	}
	if n, err := p.srq.Limit(); n != 0 || err != nil {
		t.Errorf("limit %d, %v after the event", n, err)
	}
	send(0)
	if e, ok := event(50 * time.Millisecond); ok {
		t.Errorf("a second event: %v", e)
	}
}

// Failures of one queue pair leave the receives to the others.
func TestGuestSRQErrors(t *testing.T) {
	p := newPool(t)
	p.post(t, 1, 2, 3)
	facts := factsOf(t, p.dev)
	// Too long for its receive: both sides fail, and one receive ends.
	p.client[0].SendQueue().Send(7, p.mr.Span(0, 5000))
	if err := p.client[0].SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	want := facts.wc(uverbs.WC{ID: 7, QPN: p.client[0].QPN(), Status: facts.shortRecvPeer})
	if w := p.wait(t, 1)[0]; w != want {
		t.Errorf("sent %+v, want %+v", w, want)
	}
	want = facts.wc(uverbs.WC{ID: 1, QPN: p.server[0].QPN(), Status: facts.shortRecv, Side: uverbs.RecvSide})
	if w := p.collect(t, 0, 1)[0]; w != want {
		t.Errorf("received %+v, want %+v", w, want)
	}
	if s, err := p.server[0].QueryState(); err != nil || s != uverbs.StateErr {
		t.Errorf("state %v, %v, want ERR", s, err)
	}
	p.client[1].SendQueue().SendInline(8, []byte("hello"))
	if err := p.client[1].SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	p.wait(t, 1)
	if w := p.collect(t, 1, 1)[0]; w.ID != 2 || w.QPN != p.server[1].QPN() || w.Bytes != 5 {
		t.Errorf("received %+v", w)
	}
	if n := p.srq.RecvQueue().Room(); n != 7 {
		t.Errorf("room %d, want 7", n)
	}
}

// Datagrams from a shared queue, and receives that a closed queue pair's
// unpolled completions hold.
func TestGuestSRQDatagrams(t *testing.T) {
	m := newMesh(t)
	srq, err := m.pd.NewSRQ(&uverbs.SRQOptions{Depth: 4})
	if err != nil {
		t.Fatal(err)
	}
	q, err := m.dev.NewCQ(16, nil)
	if err != nil {
		t.Fatal(err)
	}
	hear := pair{q: q}
	open := func() *uverbs.QP {
		t.Helper()
		qp, err := m.pd.NewQP(uverbs.UD, &uverbs.QPOptions{SendCQ: m.q, RecvCQ: q, SendDepth: 4, SRQ: srq})
		if err != nil {
			t.Fatal(err)
		}
		return qp
	}
	send := func(to *uverbs.QP, text string) {
		t.Helper()
		m.x.SendQueue().SendToInline(9, uverbs.Dest{AH: m.to[0], QPN: to.QPN()}, []byte(text))
		if err := m.x.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		m.wait(t, 1)
	}
	// A datagram is there at the latest when the next one is.
	late := uint64(0)
	for round := range 30 {
		for srq.RecvQueue().Room() > 0 {
			srq.RecvQueue().Recv(uint64(round), m.mr.Span(inbox+round*1024, 1024))
		}
		if err := srq.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		gone, stays := open(), open()
		send(gone, "for nobody")
		if err := gone.Close(); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("round %d", round)
		send(stays, text)
		w := hear.wait(t, 1)[0]
		want := uverbs.WC{ID: w.ID, QPN: stays.QPN(), SrcQPN: m.x.QPN(), Bytes: uint32(uverbs.GRHLen + len(text)), Opcode: uverbs.OpRecv, Side: uverbs.RecvSide, Flags: uverbs.FlagGRH}
		if w != want {
			t.Fatalf("round %d: received %+v, want %+v", round, w, want)
		}
		if got := m.mem.Bytes()[inbox+int(w.ID)*1024+uverbs.GRHLen:][:len(text)]; string(got) != text {
			t.Fatalf("round %d: received %q", round, got)
		}
		late = q.Stats().Late
		if err := stays.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if late == 0 || q.Stats().Stray != 0 {
		t.Errorf("%+v: no completion came late", q.Stats())
	}
	// No receive was lost: all of them can be had from one queue pair.
	qp := open()
	for n := 4 - srq.RecvQueue().Room(); n > 0; n-- {
		send(qp, "the rest")
		hear.wait(t, 1)
	}
	if n := srq.RecvQueue().Room(); n != 4 {
		t.Errorf("room %d, want 4", n)
	}
}
