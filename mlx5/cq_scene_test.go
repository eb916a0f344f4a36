package mlx5

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// variant is what is chosen when a queue is made.
type variant struct {
	size                       int
	version                    int
	ethernet, stamps, scatters bool
}

func (v variant) String() string {
	return fmt.Sprintf("size=%d/v%d/ethernet=%v/stamps=%v/scatter=%v", v.size, v.version, v.ethernet, v.stamps, v.scatters)
}

func variants() (all []variant) {
	for bits := range 32 {
		v := variant{64, 1, bits&4 != 0, bits&8 != 0, bits&16 != 0}
		if bits&1 != 0 {
			v.size = 128
		}
		if bits&2 != 0 {
			v.version = 0
		}
		all = append(all, v)
	}
	return all
}

// posted is a request of a scene.
type posted struct {
	id    uint64
	op    cq.Opcode
	bytes uint32
	quiet bool
}

// place is where a request stands: in which queue, and where in it.
type place struct {
	qpn  uint32
	side cq.Side
	pos  uint16
}

// scene is a completion queue and all kinds of queue pairs, with known requests
// posted to them.
type scene struct {
	variant
	eps          cq.Endpoints
	numbers      cq.Members
	state, other cq.State
	q            *CQ
	device       *completer
	shared       *cq.SharedRequests
	posted       map[place]posted

	scattered []byte // what was copied out, and for whom
	scatterTo place
	signed    []SignatureErrorCQE
	keys      []uint32 // invalidated
	reposted  []uint16
}

// The queue pairs of a scene. Their numbers are 0x100 and their user index.
const (
	qpOpen   = iota + 1
	qpClosed // the tombstone of one
	qpOther  // its completions belong to another CQ
	qpBare   // it has no tables
	qpUD
	qpSRQ       // its receives are from a shared queue
	qpSRQClosed // so were its
	qpFree      // reserved, nothing there
	qpBase      = 0x100
)

func newScene(tb testing.TB, v variant, mem, record []byte, start uint32) *scene {
	s := &scene{variant: v, posted: map[place]posted{}}
	var err error
	s.q, s.device, err = newTestCQ(mem, record, v.size, start, func(c *CQConfig) {
		c.State, c.Ethernet, c.Timestamps = &s.state, v.ethernet, v.stamps
		c.Endpoints = &s.eps
		if v.version == 0 {
			c.Endpoints, c.Numbers = nil, &s.numbers
		}
		if v.scatters {
			c.Scatter = func(ep *cq.Endpoint, side cq.Side, pos uint16, data []byte) cq.Status {
				s.scattered = bytes.Clone(data)
				s.scatterTo = place{ep.QPN, side, pos}
				if len(data) == 31 {
					return cq.StatusLocalLength
				}
				return cq.StatusSuccess
			}
			c.SignatureError = func(b *[64]byte) {
				e, err := ParseSignatureErrorCQE(b)
				if err != nil {
					panic(err) // it was looked at before
				}
				s.signed = append(s.signed, e)
			}
		}
	})
	if err != nil {
		tb.Fatal(err)
	}
	parties := map[uint32]*party{}
	for i := uint32(qpOpen); i <= qpSRQClosed; i++ {
		state := &s.state
		if i == qpOther {
			state = &s.other
		}
		p := newParty(&s.eps, state, qpBase+i, 8)
		if p.index != i {
			tb.Fatalf("user index %d, want %d", p.index, i)
		}
		p.ep.Invalidated = func(key uint32) { s.keys = append(s.keys, key) }
		m := s.numbers.Join(p.ep, state, start)
		parties[i] = p
		switch i {
		case qpClosed, qpSRQClosed:
			m.Close()
		case qpUD:
			p.ep.Datagram = true
		}
	}
	if i, ok := s.eps.Reserve(); !ok || i != qpFree {
		tb.Fatalf("user index %d", i)
	}
	open := parties[qpOpen]
	open.sendPos, open.recvPos = 0xfffe, 0xfffe // the positions wrap
	for i, r := range []struct {
		op     cq.Opcode
		quiet  bool
		blocks uint16
	}{{cq.OpSendImm, false, 1}, {cq.OpWrite, true, 3}, {cq.OpRead, false, 1}, {cq.OpFetchAdd, false, 1}, {cq.OpBindMW, false, 4}, {cq.OpSend, true, 1}} {
		s.send(open, posted{100 + uint64(i), r.op, 1000 + uint32(i), r.quiet}, r.blocks)
	}
	for i := range uint64(4) {
		s.recv(open, 200+i, 4096)
	}
	s.recv(parties[qpUD], 300, 4096)
	s.send(parties[qpUD], posted{301, cq.OpSend, 64, false}, 2)
	for _, i := range []uint32{qpClosed, qpOther} {
		parties[i].postSend(400, cq.OpSend, 1, false, 1)
		parties[i].postRecv(401, 1)
	}
	parties[qpBare].ep.Send, parties[qpBare].ep.Recv = nil, nil

	s.shared = cq.NewSharedRequests(4)
	s.shared.Positions(6)
	s.shared.Repost = func(pos uint16) { s.reposted = append(s.reposted, pos) }
	for i, pos := range []uint16{5, 0, 3} {
		seq, _ := s.shared.Stage(500+uint64(i), cq.OpRecv, 2048, false)
		s.shared.Place(seq, pos)
		s.posted[place{qpBase + qpSRQ, cq.RecvSide, pos}] = posted{500 + uint64(i), cq.OpRecv, 2048, false}
	}
	s.shared.Commit()
	for _, i := range []uint32{qpSRQ, qpSRQClosed} {
		parties[i].ep.Shared, parties[i].ep.Recv = s.shared, nil
	}
	parties[qpClosed].ep.Closed, parties[qpSRQClosed].ep.Closed = true, true
	for i, p := range parties {
		s.eps.Set(i, p.ep)
	}
	s.send(parties[qpSRQ], posted{510, cq.OpWriteImm, 7, false}, 1)
	return s
}

func (s *scene) send(p *party, r posted, blocks uint16) {
	pos, _ := p.postSend(r.id, r.op, r.bytes, r.quiet, blocks)
	s.posted[place{p.ep.QPN, cq.SendSide, pos}] = r
}

func (s *scene) recv(p *party, id uint64, bytes uint32) {
	s.posted[place{p.ep.QPN, cq.RecvSide, p.postRecv(id, bytes)}] = posted{id, cq.OpRecv, bytes, false}
}

// outcome is what a Poll of one completion leads to.
type outcome struct {
	n           int
	wc          cq.WC
	stray, late uint64
	scattered   string // what was copied out
	key         uint32 // invalidated
	reposted    int    // 1 + the position
	signed      int
	room        int // of the shared queue
}

func (s *scene) outcome() (o outcome) {
	o.stray, o.late = s.state.Stray.Load(), s.state.Late.Load()
	o.scattered = string(s.scattered)
	for _, k := range s.keys {
		o.key = o.key<<1 ^ k
	}
	for _, p := range s.reposted {
		o.reposted = 1 + int(p)
	}
	o.signed, o.room = len(s.signed), s.shared.Room()
	return o
}

// poll polls once, after the device has added one completion.
func (s *scene) poll(tb testing.TB) outcome {
	// Whatever was in the slice before must not shine through.
	var wcs [1]cq.WC
	wcs[0] = cq.WC{ID: 1, Timestamp: 2, QPN: 3, Bytes: 4, SrcQPN: 5, VendorErr: 6, Status: 7, SLID: 8, SL: 9, Opcode: 10, Side: 11, Flags: 255}
	n, drained := s.q.Poll(wcs[:])
	if !drained {
		tb.Error("one completion, one poll, and not drained")
	}
	if n == 1 && s.q.Produced() != s.q.Consumed() {
		tb.Errorf("produced %d, consumed %d", s.q.Produced(), s.q.Consumed())
	}
	o := s.outcome()
	o.n = n
	if n == 1 {
		o.wc = wcs[0]
	}
	return o
}

// expect says slowly and obviously what must become of c in a fresh scene.
func (s *scene) expect(c *completion) outcome {
	o := outcome{room: 1}
	stray := outcome{room: 1, stray: 1}
	side := cq.RecvSide
	failed := false
	switch c.opcode {
	case 0:
		side = cq.SendSide
	case 1, 2, 3, 4:
	case 12:
		if c.format == 3 || !s.scatters {
			return stray
		}
		o.signed = 1
		return o
	case 13:
		side, failed = cq.SendSide, true
	case 14:
		failed = true
	case 15:
		return o // not there
	default:
		return stray
	}
	if c.format == 3 {
		return stray
	}
	i := c.qpn - qpBase
	if s.version == 1 {
		i = c.uidx
		if c.qpn != qpBase+i {
			return stray
		}
	}
	closed := i == qpClosed || i == qpSRQClosed
	queue := qpBase + i
	if side == cq.RecvSide && i == qpSRQClosed {
		queue = qpBase + qpSRQ // where its receives came from
	}
	switch {
	case closed && queue == qpBase+i:
		return outcome{room: 1, late: 1}
	case i < qpOpen || i > qpSRQClosed:
		return stray
	}
	r, ok := s.posted[place{queue, side, c.counter}]
	if !ok {
		return stray
	}
	if queue == qpBase+qpSRQ && side == cq.RecvSide {
		if failed && c.syndrome == 0x22 && c.vendor == 0x93 {
			o.reposted = 1 + int(c.counter)
			return o
		}
		o.room = 2
	}
	if closed {
		o.late = 1
		return o
	}
	w := cq.WC{ID: r.id, QPN: c.qpn, Side: side}
	if failed {
		status, ok := map[byte]cq.Status{1: 1, 2: 2, 4: 4, 5: 5, 6: 6, 0x10: 7, 0x11: 8, 0x12: 9, 0x13: 10, 0x14: 11, 0x15: 12, 0x16: 13, 0x22: 16}[c.syndrome]
		if !ok {
			status = 21
		}
		w.Status, w.VendorErr = status, uint32(c.vendor)
		o.n, o.wc = 1, w
		return o
	}
	if c.format != 0 {
		n := c.bytes
		if side == cq.SendSide && (c.sendOpcode == 0x11 || c.sendOpcode == 0x12 || c.sendOpcode == 0x14 || c.sendOpcode == 0x15) {
			n = 8
		}
		switch {
		case !s.scatters || c.format == 2 && s.size == 64:
			w.Status = 21
		case int(n) > len(c.data):
			w.Status = 1
		default:
			o.scattered = string(c.data[:n])
			if n == 31 {
				w.Status = 1
			}
		}
		if w.Status != 0 {
			o.n, o.wc = 1, w
			return o
		}
	}
	w.Opcode, w.Bytes = r.op, r.bytes
	if s.stamps {
		w.Timestamp = c.stamp
	}
	if side == cq.RecvSide {
		w.Bytes = min(c.bytes, r.bytes)
		switch c.opcode {
		case 1:
			w.Opcode, w.Bytes = cq.OpRecvWriteImm, c.bytes
			w.SetImm(c.imm)
		case 3:
			w.SetImm(c.imm)
		case 4:
			w.SetInvalidatedRKey(c.imm)
			o.key = c.imm
		}
		if i == qpUD {
			w.SrcQPN = c.source & 0xffffff
			if c.source>>28&3 != 0 {
				w.Flags |= cq.FlagGRH
			}
			if s.ethernet {
				if c.headers&1 != 0 {
					w.SL = byte(c.vlan >> 13)
				}
			} else {
				w.SLID, w.SL = c.slid, byte(c.source>>24&15)
			}
		}
	}
	if !r.quiet {
		o.n, o.wc = 1, w
	}
	return o
}
