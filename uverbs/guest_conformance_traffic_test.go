package uverbs_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// side is one end of a game of ping-pong.
type side struct {
	qp   *uverbs.QP
	to   *uverbs.Dest       // for datagrams
	wait func() []uverbs.WC // for one completion, at the least
	mr   *uverbs.MR
	out  int // in mr, where messages leave from
	in   int // and where they arrive
	head int // bytes before the message: of the GRH
}

// rcSides is two ends of a connection, each with a completion queue of its own that it
// waits on in some way, and with its messages in a region of the pair's memory.
func rcSides(t *testing.T, p *pair, mr *uverbs.MR, waits func(*testing.T, *uverbs.CQ) func() []uverbs.WC) (sides [2]*side) {
	t.Helper()
	var queues [2]*uverbs.CQ
	for i := range queues {
		queues[i] = eventQueue(t, p)
	}
	p.rewire(t, &uverbs.QPOptions{CQ: queues[0]}, &uverbs.QPOptions{CQ: queues[1]})
	for i, qp := range []*uverbs.QP{p.a, p.b} {
		sides[i] = &side{qp: qp, wait: waits(t, queues[i]), mr: mr, out: i * 65536, in: i*65536 + 8192}
	}
	return sides
}

// udSides is the same for datagrams.
func udSides(t *testing.T, m *mesh, mr *uverbs.MR, waits func(*testing.T, *uverbs.CQ) func() []uverbs.WC) (sides [2]*side) {
	t.Helper()
	for i := range sides {
		q := eventQueue(t, m.pair)
		qp, err := m.pd.NewQP(uverbs.UD, &uverbs.QPOptions{CQ: q})
		if err != nil {
			t.Fatal(err)
		}
		sides[i] = &side{qp: qp, wait: waits(t, q), mr: mr, out: i * 65536, in: i*65536 + 8192, head: uverbs.GRHLen}
	}
	for i := range sides {
		sides[i].to = &uverbs.Dest{AH: m.to[0], QPN: sides[1-i].qp.QPN()}
	}
	return sides
}

// eventQueue is a queue to sleep on.
func eventQueue(t *testing.T, p *pair) *uverbs.CQ {
	t.Helper()
	q, err := p.dev.NewCQ(64, &uverbs.CQOptions{Events: true})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

const pingSize = 1000

// ping sends one message from a side to another, and checks both completions, all their
// fields, and the bytes.
func ping(t *testing.T, p *pair, from, to *side, round int) {
	t.Helper()
	message := bytes.Repeat([]byte{byte(round), byte(round>>8) + 1, 0x5a, byte(from.qp.QPN())}, pingSize/4)
	copy(p.mem.Bytes()[from.out:], message)
	arrives := p.mem.Bytes()[to.in:][:to.head+pingSize+1]
	clear(arrives)
	id := uint64(round)
	to.qp.RecvQueue().Recv(id, to.mr.Span(to.in, to.head+pingSize))
	if err := to.qp.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if from.to != nil {
		from.qp.SendQueue().SendTo(^id, *from.to, from.mr.Span(from.out, pingSize))
	} else {
		from.qp.SendQueue().Send(^id, from.mr.Span(from.out, pingSize))
	}
	if err := from.qp.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	sent := uverbs.WC{ID: ^id, QPN: from.qp.QPN(), Bytes: pingSize, Opcode: uverbs.OpSend}
	got := uverbs.WC{ID: id, QPN: to.qp.QPN(), Bytes: pingSize + uint32(to.head), Opcode: uverbs.OpRecv, Side: uverbs.RecvSide}
	if from.to != nil {
		got.SrcQPN, got.Flags = from.qp.QPN(), uverbs.FlagGRH
	}
	if all := from.wait(); len(all) != 1 || all[0] != sent {
		t.Fatalf("round %d: sent %+v, want %+v", round, all, sent)
	}
	if all := to.wait(); len(all) != 1 || all[0] != got {
		t.Fatalf("round %d: received %+v, want %+v", round, all, got)
	}
	if !bytes.Equal(arrives[to.head:][:pingSize], message) || arrives[to.head+pingSize] != 0 {
		t.Fatalf("round %d: other bytes arrived", round)
	}
}

// sleeper waits for completions of a queue asleep.
func sleeper(t *testing.T, q *uverbs.CQ) func() []uverbs.WC {
	t.Helper()
	w, err := poll.NewWaiter(poll.Event{}, q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	wcs := make([]uverbs.WC, 4)
	return func() []uverbs.WC {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		n, err := w.Wait(ctx, wcs)
		if err != nil {
			t.Fatal(err)
		}
		return wcs[:n]
	}
}

// spinner waits for one completion of a queue awake.
func spinner(t *testing.T, q *uverbs.CQ) func() []uverbs.WC {
	hear := pair{q: q}
	return func() []uverbs.WC {
		t.Helper()
		return hear.wait(t, 1)
	}
}
