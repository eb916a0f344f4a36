package uverbs_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// mesh is two UD queue pairs of one device with address handles to its port.
type mesh struct {
	*pair
	x, y *uverbs.QP
	to   [2]*uverbs.AH // by IP version: 4, 6
}

func newMesh(t testing.TB) *mesh {
	t.Helper()
	m := &mesh{pair: newPair(t, false)}
	opts := &uverbs.QPOptions{CQ: m.q, SendDepth: 16, RecvDepth: 16, SendSGE: 3, RecvSGE: 2, Inline: 64}
	for _, qp := range []**uverbs.QP{&m.x, &m.y} {
		var err error
		if *qp, err = m.pd.NewQP(uverbs.UD, opts); err != nil {
			t.Fatal(err)
		}
	}
	// Index 0 of the GID table is the link-local address, 1 the IPv4 one.
	for i, index := range []int{1, 0} {
		g, err := m.dev.GID(1, index)
		if err != nil {
			t.Fatal(err)
		}
		m.to[i], err = m.pd.NewAH(uverbs.Endpoint{GID: g.GID}, &uverbs.AHOptions{TrafficClass: 0x20, FlowLabel: 0x12345, HopLimit: 9})
		if errors.Is(err, uverbs.ErrNotSupported) {
			t.Skip("needs kernel >= 5.15: soft-RoCE numbers its address handles")
		}
		if err != nil {
			t.Fatal(err)
		}
		if m.to[i].Source().GID != g.GID {
			t.Errorf("packets to %v come from %v", g.GID, m.to[i].Source().GID)
		}
	}
	return m
}

// flush hands over all that is staged, receives first.
func (m *mesh) flush(t testing.TB) {
	t.Helper()
	for _, q := range []interface{ Flush() error }{m.x.RecvQueue(), m.y.RecvQueue(), m.x.SendQueue(), m.y.SendQueue()} {
		if err := q.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

// quiet fails the test if a completion comes though none should.
func (p *pair) quiet(t testing.TB) {
	t.Helper()
	time.Sleep(50 * time.Millisecond)
	var wcs [4]uverbs.WC
	if n, err := p.q.Poll(wcs[:]); n != 0 || err != nil {
		t.Errorf("a completion that should not be: %+v, %v", wcs[:n], err)
	}
}

const inbox = 512 << 10 // where datagrams arrive

func TestGuestDatagrams(t *testing.T) {
	m := newMesh(t)
	buf, sq := m.mem.Bytes(), m.x.SendQueue()
	most := m.x.MaxDatagram()
	if port, err := m.dev.PortAttr(1); err != nil || most != port.ActiveMTU {
		t.Fatalf("a datagram holds %d bytes, the port %+v, %v", most, port, err)
	}
	for i, version := range []int{4, 6} {
		to := uverbs.Dest{AH: m.to[i], QPN: m.y.QPN()}
		for _, test := range []struct {
			name string
			n    int
			post func(n int)
			op   uverbs.Opcode
			imm  uint32
		}{
			{"send", 100, func(n int) { sq.SendTo(1, to, m.mr.Span(0, n)) }, uverbs.OpSend, 0},
			{"a full packet", most, func(n int) { sq.SendTo(1, to, m.mr.Span(0, n)) }, uverbs.OpSend, 0},
			{"nothing", 0, func(n int) { sq.SendTo(1, to, m.mr.Span(0, n)) }, uverbs.OpSend, 0},
			{"gathered", 90, func(n int) {
				sq.SendToV(1, to, []uverbs.Span{m.mr.Span(0, 30), m.mr.Span(30, 1), m.mr.Span(31, n-31)})
			}, uverbs.OpSend, 0},
			{"immediate", 33, func(n int) { sq.SendToImm(1, 0xdeadbeef, to, m.mr.Span(0, n)) }, uverbs.OpSendImm, 0xdeadbeef},
			{"inline", 60, func(n int) { sq.SendToInline(1, to, bytes.Clone(buf[:n])) }, uverbs.OpSend, 0},
		} {
			t.Run(test.name+" over IPv"+string(rune('0'+version)), func(t *testing.T) {
				for i := range test.n {
					buf[i] = byte(len(test.name) + version + i*7)
				}
				clear(buf[inbox : inbox+8192])
				m.y.RecvQueue().RecvV(2, []uverbs.Span{m.mr.Span(inbox, 20), m.mr.Span(inbox+20, 5000)})
				test.post(test.n)
				m.flush(t)
				wcs := m.wait(t, 2)
				if got, want := find(t, wcs, uverbs.SendSide), (uverbs.WC{ID: 1, QPN: m.x.QPN(), Bytes: uint32(test.n), Opcode: test.op}); got != want {
					t.Errorf("sent %+v, want %+v", got, want)
				}
				want := uverbs.WC{ID: 2, QPN: m.y.QPN(), SrcQPN: m.x.QPN(), Bytes: uint32(test.n + uverbs.GRHLen), Opcode: uverbs.OpRecv, Side: uverbs.RecvSide, Flags: uverbs.FlagGRH}
				if test.imm != 0 {
					want.SetImm(test.imm)
				}
				if got := find(t, wcs, uverbs.RecvSide); got != want {
					t.Errorf("received %+v, want %+v", got, want)
				}
				if !bytes.Equal(buf[inbox+uverbs.GRHLen:][:test.n], buf[:test.n]) || buf[inbox+uverbs.GRHLen+test.n] != 0 {
					t.Errorf("other bytes arrived")
				}
				h, err := uverbs.ParseGRH(buf[inbox:])
				// The kernel has the hop limit from the route, and
				// soft-RoCE leaves the flow label out. IPv4 has none.
				wantGRH := uverbs.GRH{Version: version, Source: to.AH.GID(), Dest: to.AH.GID(), TrafficClass: 0x20, HopLimit: 64, UDP: true}
				if factsOf(t, m.dev).ownHeader {
					wantGRH.HopLimit = 9
					wantGRH.FlowLabel = map[int]uint32{6: 0x12345}[version]
				}
				if err != nil || h != wantGRH {
					t.Errorf("header %x: %+v, %v, want %+v", buf[inbox:][:uverbs.GRHLen], h, err, wantGRH)
				}
			})
		}
	}
	if s := m.q.Stats(); s != (uverbs.CQStats{}) {
		t.Errorf("completions were dropped: %+v", s)
	}
}

// An answer finds its way by completion and header alone.
func TestGuestDatagramAnswers(t *testing.T) {
	m := newMesh(t)
	buf := m.mem.Bytes()
	for i := range m.to {
		m.y.RecvQueue().Recv(1, m.mr.Span(inbox, 1000))
		m.x.SendQueue().SendToInline(2, uverbs.Dest{AH: m.to[i], QPN: m.y.QPN()}, []byte("ping"))
		m.flush(t)
		w := find(t, m.wait(t, 2), uverbs.RecvSide)
		back, err := m.pd.NewAHFor(w, buf[inbox:][:w.Bytes])
		if err != nil {
			t.Fatal(err)
		}
		if back.GID() != m.to[i].Source().GID || back.Source().GID != m.to[i].GID() {
			t.Errorf("the way back leads from %v to %v", back.Source().GID, back.GID())
		}
		m.x.RecvQueue().Recv(3, m.mr.Span(inbox, 1000))
		m.y.SendQueue().SendToInline(4, uverbs.Dest{AH: back, QPN: w.SrcQPN}, []byte("pong"))
		m.flush(t)
		w = find(t, m.wait(t, 2), uverbs.RecvSide)
		if w.ID != 3 || w.SrcQPN != m.y.QPN() || string(buf[inbox+uverbs.GRHLen:][:w.Bytes-uverbs.GRHLen]) != "pong" {
			t.Errorf("answer %+v", w)
		}
		if err := back.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A wrong Q_Key, a wrong number, a lack of receives: the datagram is lost and
// its send succeeds.
func TestGuestDatagramsLost(t *testing.T) {
	m := newMesh(t)
	sq := m.x.SendQueue()
	m.y.RecvQueue().Recv(1, m.mr.Span(inbox, 1000))
	sq.SendTo(2, uverbs.Dest{AH: m.to[0], QPN: m.y.QPN(), QKey: 0x1234}, m.mr.Span(0, 4))
	sq.SendTo(3, uverbs.Dest{AH: m.to[0], QPN: 0xabcdef}, m.mr.Span(0, 4))
	sq.SendTo(4, uverbs.Dest{AH: m.to[0], QPN: m.x.QPN()}, m.mr.Span(0, 4))
	m.flush(t)
	for _, w := range m.wait(t, 3) {
		if w.Side != uverbs.SendSide || w.Err() != nil {
			t.Errorf("completion %+v", w)
		}
	}
	m.quiet(t)
	// The receive that none of them took is still there for a good one.
	sq.SendTo(5, uverbs.Dest{AH: m.to[0], QPN: m.y.QPN(), QKey: uverbs.DefaultQKey}, m.mr.Span(0, 4))
	m.flush(t)
	if w := find(t, m.wait(t, 2), uverbs.RecvSide); w.ID != 1 || w.Err() != nil {
		t.Errorf("completion %+v", w)
	}
	// A program that may not, may not; this one may.
	if err := m.x.Modify(uverbs.StateRTS, uverbs.AttrQKey(0x80010000)); err != nil {
		t.Errorf("a privileged Q_Key: %v", err)
	}
}

// A datagram that does not fit its receive is dropped; Linux 6.1 fails the
// receiving queue pair, and so does a ConnectX.
func TestGuestDatagramTooLong(t *testing.T) {
	m := newMesh(t)
	m.y.RecvQueue().Recv(1, m.mr.Span(inbox, uverbs.GRHLen+3))
	m.y.RecvQueue().Recv(2, m.mr.Span(inbox, 1000))
	m.x.SendQueue().SendTo(3, uverbs.Dest{AH: m.to[0], QPN: m.y.QPN()}, m.mr.Span(0, 4))
	m.flush(t)
	ends := map[uint64]uverbs.Status{}
	wait := func(n int) {
		t.Helper()
		for _, w := range m.wait(t, n) {
			ends[w.ID] = w.Status
		}
	}
	wait(1)
	time.Sleep(100 * time.Millisecond)
	switch s, err := m.y.QueryState(); {
	case err != nil:
		t.Fatal(err)
	case factsOf(t, m.dev) == &connectX:
		for len(ends) < 3 {
			wait(1)
		}
		if s != uverbs.StateErr || ends[1] != cq.StatusLocalLength || ends[2] != uverbs.StatusFlushed || ends[3] != uverbs.StatusSuccess {
			t.Errorf("state %v, ends %v", s, ends)
		}
	case s == uverbs.StateErr:
		// Now and then 6.1 loses the completions of the receives with the
		// queue pair; Drain brings all to their ends.
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := m.y.Drain(ctx, func(w uverbs.WC) { ends[w.ID] = w.Status }); err != nil {
			t.Fatal(err)
		}
		if _, ok := ends[3]; !ok {
			wait(1)
		}
		if ends[1] != cq.StatusLocalQPOperation && ends[1] != uverbs.StatusFlushed || ends[2] != uverbs.StatusFlushed || ends[3] != uverbs.StatusSuccess {
			t.Errorf("ends %v", ends)
		}
	default:
		m.x.SendQueue().SendTo(4, uverbs.Dest{AH: m.to[0], QPN: m.y.QPN()}, m.mr.Span(0, 3))
		m.flush(t)
		wait(2)
		if len(ends) != 3 || ends[1] != uverbs.StatusSuccess || ends[3] != uverbs.StatusSuccess || ends[4] != uverbs.StatusSuccess {
			t.Errorf("ends %v", ends)
		}
	}
}

// Everyone in a group hears what is sent to it, the sender too.
func TestGuestMulticast(t *testing.T) {
	m := newMesh(t)
	address := netip.MustParseAddr("239.1.2.3")
	group, err := uverbs.GroupGID(address)
	if err != nil {
		t.Fatal(err)
	}
	if factsOf(t, m.dev) == &softRoCE {
		// The kernel's IP stack has to want the group's packets.
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
	for _, qp := range []*uverbs.QP{m.x, m.y} {
		if err := qp.AttachMulticast(group); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want ...*uverbs.QP) {
		t.Helper()
		for _, qp := range []*uverbs.QP{m.x, m.y} {
			for qp.RecvQueue().Room() > 14 {
				qp.RecvQueue().Recv(uint64(qp.QPN()), m.mr.Span(inbox, 1000))
			}
		}
		clear(m.mem.Bytes()[inbox:][:1000])
		m.x.SendQueue().SendToInline(1, uverbs.Dest{AH: all, QPN: uverbs.MulticastQPN}, []byte("all of you"))
		m.flush(t)
		heard := map[uint64]int{}
		for _, w := range m.wait(t, 1+len(want)) {
			if w.Err() != nil {
				t.Errorf("completion %+v", w)
			}
			if w.Side == uverbs.RecvSide {
				heard[w.ID]++
				if w.ID != uint64(w.QPN) || w.SrcQPN != m.x.QPN() || w.Bytes != uverbs.GRHLen+10 {
					t.Errorf("completion %+v", w)
				}
			}
		}
		for _, qp := range want {
			if heard[uint64(qp.QPN())] != 1 {
				t.Errorf("QP %d did not hear it: %v", qp.QPN(), heard)
			}
		}
		h, err := uverbs.ParseGRH(m.mem.Bytes()[inbox:])
		if err != nil || h.Dest != group || h.Source != m.x.Source().GID {
			t.Errorf("header %+v, %v", h, err)
		}
		if got := string(m.mem.Bytes()[inbox+uverbs.GRHLen:][:10]); got != "all of you" {
			t.Errorf("received %q", got)
		}
		m.quiet(t)
	}
	hear(m.x, m.y)
	if err := m.x.DetachMulticast(group); err != nil {
		t.Fatal(err)
	}
	hear(m.y)
	if err := m.x.DetachMulticast(group); err == nil {
		t.Error("a queue pair left a group twice")
	}
}

// An address handle that is gone: what becomes of a request that names it
// differs between kernels. A ConnectX's requests do not name it.
func TestGuestAHGone(t *testing.T) {
	m := newMesh(t)
	ah, err := m.pd.NewAH(m.x.Endpoint(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.x.SendQueue().SendTo(1, uverbs.Dest{AH: ah, QPN: m.y.QPN()}, m.mr.Span(0, 4))
	if err := ah.Close(); err != nil {
		t.Fatal(err)
	}
	m.flush(t)
	w := m.wait(t, 1)[0]
	if factsOf(t, m.dev).copiesAH {
		if want := (uverbs.WC{ID: 1, QPN: m.x.QPN(), Bytes: 4, Opcode: uverbs.OpSend}); w != want {
			t.Errorf("completion %+v, want %+v", w, want)
		}
		m.x.SendQueue().SendTo(2, uverbs.Dest{AH: ah, QPN: m.y.QPN()}, m.mr.Span(0, 4))
		if err := m.x.SendQueue().Flush(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a send to a closed address handle: %v", err)
		}
		return
	}
	// Linux 6.1 says what is wrong, 6.12 only that the queue pair failed.
	if w.ID != 1 || w.Side != uverbs.SendSide || w.Status != cq.StatusLocalQPOperation && w.Status != uverbs.StatusFlushed {
		t.Errorf("completion %+v", w)
	}
	if s, err := m.x.QueryState(); err != nil || s != uverbs.StateErr {
		t.Errorf("state %v, %v, want ERR", s, err)
	}
}
