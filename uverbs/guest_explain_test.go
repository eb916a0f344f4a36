package uverbs_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// A failure is explained in words that are true of the device at hand.
func TestGuestExplain(t *testing.T) {
	p := newPair(t, false)
	facts, kernel := factsOf(t, p.dev), kernelFactsOf(t, p.dev)
	sq := p.a.SendQueue()
	bad := p.peer.Regions[0]
	bad.RKey ^= 0x5500
	sq.Write(10, p.peer.Regions[0].At(0), p.mr.Span(0, 8))
	sq.WriteInline(11, p.peer.Regions[0].At(0), []byte("quiet"), uverbs.Unsignaled)
	sq.WriteV(12, bad.At(64), []uverbs.Span{p.mr.Span(0, 64), p.mr.Span(4096, 100)})
	sq.Read(13, p.mr.Span(8192, 77), p.peer.Regions[0].At(0))
	p.a.RecvQueue().Recv(20, p.mr.Span(128, 48))
	if err := errors.Join(p.a.RecvQueue().Flush(), sq.Flush()); err != nil {
		t.Fatal(err)
	}
	of := map[uint64]*uverbs.Explanation{}
	for _, w := range p.wait(t, 4) {
		of[w.ID] = p.q.Explain(&w)
		t.Log(of[w.ID])
	}
	e := of[12]
	if e == nil || !e.IsFirst || e.First == nil || e.Fault != kernel.wrongKey.Fault() || e.Remedy != kernel.wrongKey.Remedy() || e.State != uverbs.StateErr ||
		e.PeerQPN != p.b.QPN() || e.Peer != p.b.Source().GID || len(e.Unknown) != 0 {
		t.Fatalf("%+v", e)
	}
	r := e.Request
	if r.ID != 12 || r.Op != uverbs.OpWrite || r.Bytes != 164 || r.End != uverbs.EndFailed || !r.Details || !r.Remote || r.RemoteAddr != bad.Addr+64 || r.RKey != bad.RKey ||
		len(r.Spans) != 2 || r.Spans[1].Length != 100 || r.Spans[1].LKey != p.mr.LKey() || r.Spans[1].Region != p.mr || r.Spans[1].Addr-r.Spans[0].Addr != 4096 {
		t.Errorf("%+v", r)
	}
	if len(e.Before) != 2 || e.Before[0].ID != 10 || e.Before[1].ID != 11 || e.Before[1].End != uverbs.EndSuccess || e.Before[1].Bytes != 5 {
		t.Errorf("%+v", e.Before)
	}
	if facts == &connectX && !strings.Contains(e.Vendor, "remote access error") {
		t.Errorf("the vendor says %q", e.Vendor)
	}
	for id, want := range map[uint64]string{13: "read of 77 bytes, flushed; 77 bytes of local memory", 20: "receive of 48 bytes, flushed; 48 bytes of local memory"} {
		e := of[id]
		if e == nil || e.IsFirst || e.First.ID != 12 || e.Fault != cq.FaultConsequence || !strings.Contains(e.String(), want) || !strings.Contains(e.String(), "that of send request 12") {
			t.Errorf("%v", e)
		}
	}
	if !errors.Is(p.a.Cause(), kernel.wrongKey) {
		t.Errorf("%v", p.a.Cause())
	}
}

// The receiver of a message that is too long explains its receive, also one of a shared
// queue.
func TestGuestExplainReceive(t *testing.T) {
	p := newPair(t, false)
	facts := factsOf(t, p.dev)
	srq, err := p.pd.NewSRQ(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.rewire(t, &uverbs.QPOptions{CQ: p.q}, &uverbs.QPOptions{CQ: p.q, SRQ: srq})
	for i := range uint64(3) {
		srq.RecvQueue().Recv(30+i, p.mr.Span(int(i)*64, int(10+i)))
	}
	p.a.SendQueue().Send(40, p.mr.Span(4096, 64))
	if err := errors.Join(srq.RecvQueue().Flush(), p.a.SendQueue().Flush()); err != nil {
		t.Fatal(err)
	}
	for _, w := range p.wait(t, 2) {
		e := p.q.Explain(&w)
		t.Log(e)
		want, status := "send of 64 bytes, failed", facts.shortRecvPeer
		if w.Side == uverbs.RecvSide {
			want, status = "receive of 10 bytes, failed; 10 bytes of local memory", facts.shortRecv
		}
		if !e.IsFirst || w.Status != status || !strings.Contains(e.String(), want) {
			t.Errorf("want %v, %q in\n%v", status, want, e)
		}
	}
}

// again recovers both queue pairs of the pair and connects them to one another.
func (p *pair) again(t *testing.T) {
	t.Helper()
	see := func(uverbs.WC) {}
	done := make(chan error, 1)
	ca, cb := net.Pipe()
	if err := p.a.RecoverPolling(t.Context(), see, func(ctx context.Context, a *uverbs.QP) error {
		go func() {
			done <- p.b.RecoverPolling(ctx, see, func(ctx context.Context, b *uverbs.QP) error {
				_, err := b.Handshake(ctx, cb, p.mr.Remote())
				return err
			})
		}()
		var err error
		p.peer, err = a.Handshake(ctx, ca, p.mr.Remote())
		return errors.Join(err, <-done)
	}); err != nil {
		t.Fatal(err)
	}
}

// A window stays open when its queue pair is recovered, for whoever is the peer then;
// it can be invalidated and bound as before.
func TestGuestRecoverWindow(t *testing.T) {
	p := newOpsPair(t, uverbs.RC)
	mw := newWindow(t, p)
	const at = 512 << 10
	opened := p.b.SendQueue().BindMW(1, mw, p.mr.Span(at, 4096), uverbs.RemoteWrite)
	p.one(t, p.b, uverbs.WC{ID: 1, Opcode: uverbs.OpBindMW})
	p.again(t)
	p.a.SendQueue().Write(2, opened.At(8), p.mr.Span(0, 18))
	p.one(t, p.a, uverbs.WC{ID: 2, Bytes: 18, Opcode: uverbs.OpWrite})
	p.b.SendQueue().LocalInvalidate(3, mw)
	p.one(t, p.b, uverbs.WC{ID: 3, Opcode: uverbs.OpLocalInvalidate})
	p.a.SendQueue().Write(4, opened.At(8), p.mr.Span(0, 18))
	p.one(t, p.a, uverbs.WC{ID: 4, Status: uverbs.StatusRemoteAccess})
	p.again(t)
	opened = p.b.SendQueue().BindMW(5, mw, p.mr.Span(at, 4096), uverbs.RemoteWrite)
	p.one(t, p.b, uverbs.WC{ID: 5, Opcode: uverbs.OpBindMW})
	p.a.SendQueue().Write(6, opened.At(8), p.mr.Span(0, 18))
	p.one(t, p.a, uverbs.WC{ID: 6, Bytes: 18, Opcode: uverbs.OpWrite})
	if err := mw.Close(); err != nil {
		t.Error(err)
	}
}

// A datagram queue pair stays in its groups, and hears what is sent there.
func TestGuestRecoverMulticast(t *testing.T) {
	m := newMesh(t)
	address := netip.MustParseAddr("239.1.2.4")
	group, err := uverbs.GroupGID(address)
	if err != nil {
		t.Fatal(err)
	}
	if factsOf(t, m.dev) == &softRoCE {
		ifi, err := net.InterfaceByIndex(m.x.Source().Ifindex)
		if err != nil {
			t.Fatal(err)
		}
		member, err := net.ListenMulticastUDP("udp4", ifi, &net.UDPAddr{IP: address.AsSlice(), Port: 9999})
		if err != nil {
			t.Fatal(err)
		}
		defer member.Close()
	}
	all, err := m.pd.NewAH(uverbs.Endpoint{GID: group}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.y.AttachMulticast(group); err != nil {
		t.Fatal(err)
	}
	m.y.RecvQueue().Recv(1, m.mr.Span(0, 1000))
	if err := m.y.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	flushed := 0
	if err := m.y.RecoverPolling(t.Context(), func(w uverbs.WC) {
		if flushed++; w.ID != 1 || w.Status != uverbs.StatusFlushed {
			t.Errorf("%+v", w)
		}
	}, nil); err != nil || flushed != 1 {
		t.Fatal(err, flushed)
	}
	m.y.RecvQueue().Recv(2, m.mr.Span(0, 1000))
	m.x.SendQueue().SendToInline(3, uverbs.Dest{AH: all, QPN: uverbs.MulticastQPN}, []byte("all of you"))
	m.flush(t)
	for _, w := range m.wait(t, 2) {
		if w.Err() != nil || w.Side == uverbs.RecvSide && (w.ID != 2 || w.Bytes != uverbs.GRHLen+10) {
			t.Errorf("%+v", w)
		}
	}
	if err := m.y.DetachMulticast(group); err != nil {
		t.Error(err)
	}
}

// What fails by itself is explained once. What it flushes says only that.
func ExampleCQ_Explain() {
	var q *uverbs.CQ // with completions

	var wcs [64]uverbs.WC
	n, err := q.Poll(wcs[:])
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range wcs[:n] {
		if w := &wcs[i]; w.Status != uverbs.StatusSuccess && w.Status != uverbs.StatusFlushed {
			fmt.Print(q.Explain(w)) // the flushes that follow have this cause
		}
	}
}
