package uverbs_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// In RESET neither sends nor receives are taken; restarted, both are.
func TestGuestConformanceQPEx_PostInReset(t *testing.T) {
	m := newMesh(t)
	send := func() {
		m.x.SendQueue().SendTo(1, uverbs.Dest{AH: m.to[0], QPN: m.y.QPN()}, m.mr.Span(0, 8))
	}
	receive := func() { m.y.RecvQueue().Recv(2, m.mr.Span(inbox, 100)) }
	if err := errors.Join(m.x.Modify(uverbs.StateReset), m.y.Modify(uverbs.StateReset)); err != nil {
		t.Fatal(err)
	}
	send()
	if err := m.x.SendQueue().Flush(); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("a send in RESET: %v", err)
	}
	receive()
	if err := m.y.RecvQueue().Flush(); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("a receive in RESET: %v", err)
	}
	if err := errors.Join(m.x.Restart(), m.y.Restart()); err != nil {
		t.Fatal(err)
	}
	receive()
	send()
	m.flush(t)
	wcs := m.wait(t, 2)
	if w, want := find(t, wcs, uverbs.SendSide), (uverbs.WC{ID: 1, QPN: m.x.QPN(), Bytes: 8, Opcode: uverbs.OpSend}); w != want {
		t.Errorf("sent %+v, want %+v", w, want)
	}
	want := uverbs.WC{ID: 2, QPN: m.y.QPN(), SrcQPN: m.x.QPN(), Bytes: uverbs.GRHLen + 8, Opcode: uverbs.OpRecv, Side: uverbs.RecvSide, Flags: uverbs.FlagGRH}
	if w := find(t, wcs, uverbs.RecvSide); w != want {
		t.Errorf("received %+v, want %+v", w, want)
	}
}

// A receive queue takes as many receives as it says and not one more, whether they are
// handed over one by one or together; what it took is there.
func TestGuestConformanceQPEx_FullReceiveQueue(t *testing.T) {
	m := newMesh(t)
	rq := m.y.RecvQueue()
	n := rq.Room()
	if n != m.y.Limits().RecvDepth {
		t.Fatalf("room for %d, the limits are %+v", n, m.y.Limits())
	}
	recv := func(i int) { rq.Recv(uint64(i), m.mr.Span(inbox+i*1024, 1024)) }
	for i := range n {
		recv(i)
		if i%3 == 0 {
			if err := rq.Flush(); err != nil {
				t.Fatalf("receive %d of %d: %v", i, n, err)
			}
		}
	}
	if err := rq.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		recv(99)
		if err := rq.Flush(); !errors.Is(err, uverbs.ErrQueueFull) || rq.Room() != 0 {
			t.Errorf("receive %d of %d: %v, room %d", n+1, n, err, rq.Room())
		}
	}
	for i := range n {
		m.x.SendQueue().SendToInline(7, uverbs.Dest{AH: m.to[0], QPN: m.y.QPN()}, []byte{byte(i)})
		m.flush(t)
		if w := find(t, m.wait(t, 2), uverbs.RecvSide); w.ID != uint64(i) || w.Err() != nil || m.mem.Bytes()[inbox+i*1024+uverbs.GRHLen] != byte(i) {
			t.Fatalf("datagram %d: %+v", i, w)
		}
		if rq.Room() != i+1 {
			t.Errorf("room %d after %d datagrams", rq.Room(), i+1)
		}
	}
}

// A receive has as many spans as the queue pair says and not one more, and all of them
// are used.
func TestGuestConformanceQPEx_ManySpans(t *testing.T) {
	m := newMesh(t)
	rq, most := m.y.RecvQueue(), m.y.Limits().RecvSGE
	spans := func(n int) (all []uverbs.Span) {
		for i := range n {
			all = append(all, m.mr.Span(inbox+i*64, 32))
		}
		return all
	}
	rq.RecvV(1, spans(most+1))
	if err := rq.Flush(); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("%d spans of %d: %v", most+1, most, err)
	}
	n := 32*most - uverbs.GRHLen
	message := bytes.Repeat([]byte("span"), n/4)
	copy(m.mem.Bytes(), message)
	clear(m.mem.Bytes()[inbox:][:64*(most+1)])
	rq.RecvV(2, spans(most))
	m.x.SendQueue().SendTo(3, uverbs.Dest{AH: m.to[0], QPN: m.y.QPN()}, m.mr.Span(0, n))
	m.flush(t)
	if w := find(t, m.wait(t, 2), uverbs.RecvSide); w.ID != 2 || w.Bytes != uint32(32*most) || w.Err() != nil {
		t.Fatalf("received %+v", w)
	}
	var got []byte
	for i := range most {
		got = append(got, m.mem.Bytes()[inbox+i*64:][:32]...)
		if between := m.mem.Bytes()[inbox+i*64+32:][:32]; !bytes.Equal(between, make([]byte, 32)) {
			t.Errorf("behind span %d is %x", i, between)
		}
	}
	if !bytes.Equal(got[uverbs.GRHLen:], message) {
		t.Errorf("%q arrived", got[uverbs.GRHLen:])
	}
}

// Writes and reads of nothing succeed, say so, and change nothing.
func TestGuestConformanceQPEx_ZeroLength(t *testing.T) {
	p := newPair(t, false)
	buf, region := p.mem.Bytes(), p.peer.Regions[0]
	const far = 512 << 10
	for i := range 4096 {
		buf[i], buf[far+i] = 's', 'c'
	}
	before := bytes.Clone(buf)
	for round := range uint64(10) {
		for _, qp := range []*uverbs.QP{p.a, p.b} {
			sq := qp.SendQueue()
			sq.Write(round, region.At(far), p.mr.Span(0, 0))
			p.one(t, qp, uverbs.WC{ID: round, Opcode: uverbs.OpWrite})
			sq.WriteV(round, region.At(far), nil)
			p.one(t, qp, uverbs.WC{ID: round, Opcode: uverbs.OpWrite})
			sq.Read(round, p.mr.Span(0, 0), region.At(far))
			p.one(t, qp, uverbs.WC{ID: round, Opcode: uverbs.OpRead})
		}
	}
	if !bytes.Equal(buf, before) {
		t.Error("memory was changed")
	}
	// The queue pairs are as good as before.
	p.a.SendQueue().Read(1, p.mr.Span(0, 4096), region.At(far))
	p.one(t, p.a, uverbs.WC{ID: 1, Bytes: 4096, Opcode: uverbs.OpRead})
	if !bytes.Equal(buf[:4096], buf[far:far+4096]) {
		t.Error("other bytes were read")
	}
}
