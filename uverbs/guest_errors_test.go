package uverbs_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// Errors reach the program with the request's own id and side.
func TestGuestErrors(t *testing.T) {
	p := newPair(t, false)
	facts, kernel := factsOf(t, p.dev), kernelFactsOf(t, p.dev)
	sq := p.a.SendQueue()
	bad := p.peer.Regions[0]
	bad.RKey ^= 0x5500
	sq.Write(11, bad.At(0), p.mr.Span(0, 64))
	sq.Write(12, p.peer.Regions[0].At(0), p.mr.Span(0, 64), uverbs.Unsignaled)
	p.a.RecvQueue().Recv(13, p.mr.Span(0, 64))
	if err := p.a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
	got := map[uint64]uverbs.WC{}
	for _, w := range p.wait(t, 3) {
		got[w.ID] = w
	}
	want := map[uint64]uverbs.WC{
		11: {ID: 11, QPN: p.a.QPN(), Status: kernel.wrongKey},
		12: {ID: 12, QPN: p.a.QPN(), Status: uverbs.StatusFlushed},
		13: {ID: 13, QPN: p.a.QPN(), Status: uverbs.StatusFlushed, Side: uverbs.RecvSide},
	}
	for id, w := range want {
		if w := facts.wc(w); got[id] != w {
			t.Errorf("request %d ended as %+v, want %+v", id, got[id], w)
		}
	}
	if s, err := p.a.QueryState(); err != nil || s != uverbs.StateErr {
		t.Errorf("state %v, %v, want ERR", s, err)
	}
	if err := func() error { w := got[11]; return w.Err() }(); !errors.Is(err, kernel.wrongKey) {
		t.Errorf("error %v", err)
	}
}
