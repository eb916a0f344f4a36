package rxe

import (
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// scene is a completion ring and all kinds of endpoints, with known requests
// posted to them.
type scene struct {
	eps          cq.Endpoints
	state, other cq.State
	mem          []byte
	element      int
	q            *CQ
	driver       *completer
	posted       map[uint64]posted // by WRID
}

// posted is a request of a scene.
type posted struct {
	id    uint64
	qpn   uint32
	side  cq.Side
	op    cq.Opcode
	bytes uint32
	quiet bool
}

// The user indices of a scene.
const (
	sceneOpen   = iota + 1 // an ordinary QP, number 17
	sceneClosed            // the tombstone of one, 18
	sceneOther             // its completions belong to another CQ, 19
	sceneBare              // it has no tables, 20
	sceneFree              // reserved, nothing there
)

func newScene(tb testing.TB, mem []byte, slots, element int, start uint32) *scene {
	s := &scene{mem: format(mem, slots, element, start), element: element, posted: map[uint64]posted{}}
	q, err := NewCQ(s.mem, &s.eps, &s.state)
	if err != nil {
		tb.Fatal(err)
	}
	s.q, s.driver = q, newCompleter(s.mem)

	open := newParty(&s.eps, &s.state, 17, 4)
	for i, op := range []cq.Opcode{cq.OpSendImm, cq.OpWrite, cq.OpRead} {
		p := posted{id: 100 + uint64(i), qpn: 17, op: op, bytes: 1000 + uint32(i), quiet: op == cq.OpWrite}
		wrid, _ := open.postSend(p.id, p.op, p.bytes, p.quiet)
		s.posted[wrid] = p
	}
	for i := range uint64(3) {
		s.posted[open.postRecv(200+i, 4096)] = posted{id: 200 + i, qpn: 17, side: cq.RecvSide, op: cq.OpRecv, bytes: 4096}
	}
	closed := newParty(&s.eps, &s.state, 18, 4)
	closed.postSend(300, cq.OpSend, 1, false)
	closed.ep.Closed = true
	other := newParty(&s.eps, &s.other, 19, 4)
	other.postSend(400, cq.OpSend, 1, false)
	other.postRecv(401, 1)
	bare := newParty(&s.eps, &s.state, 20, 4)
	bare.ep.Send, bare.ep.Recv = nil, nil
	if i, ok := s.eps.Reserve(); !ok || i != sceneFree {
		tb.Fatalf("user index %d", i)
	}
	return s
}

// outcome is what a Poll of one completion leads to.
type outcome struct {
	n           int
	wc          cq.WC
	stray, late uint64
}

// poll lets the driver complete c and polls once.
func (s *scene) poll(tb testing.TB, c *cqe) (o outcome) {
	stray, late := s.state.Stray.Load(), s.state.Late.Load()
	s.driver.post(c)
	s.driver.publish()
	// Whatever was in the slice before must not shine through.
	wcs := []cq.WC{{ID: 1, Timestamp: 2, QPN: 3, Bytes: 4, SrcQPN: 5, VendorErr: 6, Status: 7, SLID: 8, SL: 9, Opcode: 10, Side: 11, Flags: 255}}
	var drained bool
	o.n, drained = s.q.Poll(wcs)
	if !drained {
		tb.Errorf("%+v: one completion, one poll, and not drained", *c)
	}
	if o.n == 1 {
		o.wc = wcs[0]
	}
	o.stray, o.late = s.state.Stray.Load()-stray, s.state.Late.Load()-late
	return o
}

// expect says slowly and obviously what must become of c in a fresh scene.
func (s *scene) expect(c *cqe) (o outcome) {
	if c.wrid>>57 != 0 {
		o.stray = 1
		return o
	}
	switch c.wrid >> 32 & 0xffffff {
	case sceneClosed:
		o.late = 1
		return o
	case sceneOpen:
	default:
		o.stray = 1
		return o
	}
	p, ok := s.posted[c.wrid]
	if !ok || c.qpn != p.qpn {
		o.stray = 1
		return o
	}
	w := cq.WC{ID: p.id, QPN: p.qpn, Side: p.side, Status: cq.Status(c.status)}
	switch {
	case c.status != 0:
		w.VendorErr = c.vendor
	case p.quiet:
		return o
	case p.side == cq.SendSide:
		w.Opcode, w.Bytes = p.op, p.bytes
	default:
		// A message is no longer than the receive that took it, whatever
		// the driver says; the length of a write is its own.
		w.Opcode, w.Bytes, w.SrcQPN = cq.OpRecv, min(c.bytes, p.bytes), c.srcQPN
		if c.opcode == 129 {
			w.Opcode, w.Bytes = cq.OpRecvWriteImm, c.bytes
		}
		if c.flags&2 != 0 {
			w.SetImm(uint32(c.ex[0])<<24 | uint32(c.ex[1])<<16 | uint32(c.ex[2])<<8 | uint32(c.ex[3]))
		} else if c.flags&4 != 0 {
			w.SetInvalidatedRKey(native.Uint32(c.ex[:]))
		}
		if c.flags&1 != 0 && c.srcQPN != 0 {
			w.Flags |= cq.FlagGRH
		}
	}
	o.n, o.wc = 1, w
	return o
}

const (
	wridSend  = sceneOpen << 32   // of the scene's ordinary QP, first request
	wridQuiet = sceneOpen<<32 + 1 // the second
	recvBit   = 0x0100_0000 << 32
	wridRecv  = (0x0100_0000 + sceneOpen) << 32 // its first receive
)

// cqeCases are completions with what must become of them, worked out by hand.
var cqeCases = []struct {
	name string
	c    cqe
	want outcome
}{
	{"send", cqe{wrid: wridSend, opcode: 0, bytes: 77, qpn: 17},
		outcome{n: 1, wc: cq.WC{ID: 100, QPN: 17, Opcode: cq.OpSendImm, Bytes: 1000}}},
	{"send with the receiver's flags on it", cqe{wrid: wridSend, flags: 7, ex: [4]byte{1, 2, 3, 4}, srcQPN: 9, opcode: 129, qpn: 17},
		outcome{n: 1, wc: cq.WC{ID: 100, QPN: 17, Opcode: cq.OpSendImm, Bytes: 1000}}},
	{"quiet write", cqe{wrid: wridQuiet, opcode: 1, qpn: 17}, outcome{}},
	{"quiet write that failed", cqe{wrid: wridQuiet, status: 10, vendor: 0x81, opcode: 1, bytes: 5, qpn: 17},
		outcome{n: 1, wc: cq.WC{ID: 101, QPN: 17, Status: cq.StatusRemoteAccess, VendorErr: 0x81}}},
	{"read, before what was posted before it", cqe{wrid: wridSend + 2, opcode: 2, qpn: 17},
		outcome{n: 1, wc: cq.WC{ID: 102, QPN: 17, Opcode: cq.OpRead, Bytes: 1002}}},
	{"send that failed with a status nobody knows", cqe{wrid: wridSend, status: 1 << 31, qpn: 17},
		outcome{n: 1, wc: cq.WC{ID: 100, QPN: 17, Status: 1 << 31}}},
	{"receive on RC", cqe{wrid: wridRecv, opcode: 128, bytes: 64, qpn: 17, flags: 1, port: 1},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 17, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 64}}},
	{"receive of a datagram", cqe{wrid: wridRecv, opcode: 128, bytes: 104, qpn: 17, srcQPN: 0x123456, flags: 1, port: 1},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 17, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 104, SrcQPN: 0x123456, Flags: cq.FlagGRH}}},
	{"receive with immediate", cqe{wrid: wridRecv, opcode: 128, bytes: 0, qpn: 17, flags: 3, ex: [4]byte{1, 2, 3, 4}},
		outcome{n: 1, wc: withImm(cq.WC{ID: 200, QPN: 17, Side: cq.RecvSide, Opcode: cq.OpRecv}, 0x01020304)}},
	{"receive of a write with immediate", cqe{wrid: wridRecv, opcode: 129, bytes: 1 << 20, qpn: 17, flags: 3, ex: [4]byte{0xca, 0xfe, 0xf0, 0x0d}},
		outcome{n: 1, wc: withImm(cq.WC{ID: 200, QPN: 17, Side: cq.RecvSide, Opcode: cq.OpRecvWriteImm, Bytes: 1 << 20}, 0xcafef00d)}},
	{"receive with invalidate", cqe{wrid: wridRecv, opcode: 128, bytes: 8, qpn: 17, flags: 5, ex: [4]byte(record(u32(0x2c3)))},
		outcome{n: 1, wc: withRKey(cq.WC{ID: 200, QPN: 17, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 8}, 0x2c3)}},
	{"receive with immediate and invalidate, which no message has", cqe{wrid: wridRecv, opcode: 128, bytes: 8, qpn: 17, flags: 6, ex: [4]byte{1, 2, 3, 4}},
		outcome{n: 1, wc: withImm(cq.WC{ID: 200, QPN: 17, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 8}, 0x01020304)}},
	{"receive with an opcode nobody knows", cqe{wrid: wridRecv, opcode: 7, bytes: 8, qpn: 17},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 17, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 8}}},
	{"receive out of order", cqe{wrid: wridRecv + 2, opcode: 128, bytes: 8, qpn: 17, flags: 3, ex: [4]byte{0, 0, 0, 9}},
		outcome{n: 1, wc: withImm(cq.WC{ID: 202, QPN: 17, Side: cq.RecvSide, Opcode: cq.OpRecv, Bytes: 8}, 9)}},
	{"flushed receive", cqe{wrid: wridRecv, status: 5, qpn: 17},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 17, Side: cq.RecvSide, Status: cq.StatusFlushed}}},
	{"flushed receive with everything else set", cqe{wrid: wridRecv, status: 5, opcode: 129, bytes: 3, ex: [4]byte{1}, qpn: 17, srcQPN: 4, flags: 7, slid: 5, sl: 6},
		outcome{n: 1, wc: cq.WC{ID: 200, QPN: 17, Side: cq.RecvSide, Status: cq.StatusFlushed}}},
	{"send of another lap", cqe{wrid: wridSend + 4, qpn: 17}, outcome{stray: 1}},
	{"send not posted", cqe{wrid: wridSend + 3, qpn: 17}, outcome{stray: 1}},
	{"wrong QP number", cqe{wrid: wridSend, qpn: 16}, outcome{stray: 1}},
	{"no WRID of ours", cqe{wrid: 1 << 57, qpn: 17}, outcome{stray: 1}},
	{"highest WRID", cqe{wrid: 1<<64 - 1, qpn: 17}, outcome{stray: 1}},
	{"closed QP", cqe{wrid: sceneClosed << 32, qpn: 18}, outcome{late: 1}},
	{"closed QP, wrong number", cqe{wrid: sceneClosed << 32, qpn: 99}, outcome{late: 1}},
	{"other CQ's send", cqe{wrid: sceneOther << 32, qpn: 19}, outcome{stray: 1}},
	{"other CQ's receive", cqe{wrid: sceneOther<<32 | recvBit, qpn: 19, opcode: 128}, outcome{stray: 1}},
	{"QP without a send table", cqe{wrid: sceneBare << 32, qpn: 20}, outcome{stray: 1}},
	{"QP without a receive table", cqe{wrid: sceneBare<<32 | recvBit, qpn: 20}, outcome{stray: 1}},
	{"zero page", cqe{}, outcome{stray: 1}},
	{"free user index", cqe{wrid: sceneFree << 32}, outcome{stray: 1}},
	{"user index past the table", cqe{wrid: 0xffffff << 32}, outcome{stray: 1}},
}

func withImm(w cq.WC, v uint32) cq.WC { w.SetImm(v); return w }

func withRKey(w cq.WC, v uint32) cq.WC { w.SetInvalidatedRKey(v); return w }

func TestCQE(t *testing.T) {
	for _, element := range []int{64, 128} { // 5.10; 6.1 and later
		for _, high := range []bool{false, true} {
			mem := guarded(t, ringBytes(4, element), high)
			for start := range uint32(4) {
				for _, c := range cqeCases {
					s := newScene(t, mem, 4, element, start)
					if got := s.poll(t, &c.c); got != c.want {
						t.Errorf("%s:\n%+v, want\n%+v", c.name, got, c.want)
					}
					if want := newScene(t, mem, 4, element, start).expect(&c.c); want != c.want {
						t.Errorf("%s: the slow decoder says\n%+v, want\n%+v", c.name, want, c.want)
					}
				}
			}
		}
	}
}

// A completion as raw bytes, for both byte orders: the tests' encoder could be
// wrong in the same way as the decoder.
func TestCQEBytes(t *testing.T) {
	little := []byte{
		1, 0, 0, 0, 1, 0, 0, 1, // wr_id: receive 1 of user index 1
		0, 0, 0, 0, 0x81, 0, 0, 0, // status, opcode
		0, 0, 0, 0, 0x00, 0x10, 0, 0, // vendor_err, byte_len
		0xca, 0xfe, 0xf0, 0x0d, 17, 0, 0, 0, // imm_data, qp_num
		0, 0, 0, 0, 3, 0, 0, 0, // src_qp, wc_flags
		0, 0, 0, 0, 0, 0, 1, 0, // pkey_index, slid, sl, dlid_path_bits, port_num
	}
	big := []byte{
		1, 0, 0, 1, 0, 0, 0, 1,
		0, 0, 0, 0, 0, 0, 0, 0x81,
		0, 0, 0, 0, 0, 0, 0x10, 0x00,
		0xca, 0xfe, 0xf0, 0x0d, 0, 0, 0, 17,
		0, 0, 0, 0, 0, 0, 0, 3,
		0, 0, 0, 0, 0, 0, 1, 0,
	}
	raw := little
	if native.Uint16([]byte{1, 0}) != 1 {
		raw = big
	}
	s := newScene(t, make([]byte, ringBytes(4, 128)), 4, 128, 0)
	copy(s.mem[offSlots:], raw)
	store32(s.mem, offProducer, 1)
	var wcs [2]cq.WC
	n, drained := s.q.Poll(wcs[:])
	want := withImm(cq.WC{ID: 201, QPN: 17, Side: cq.RecvSide, Opcode: cq.OpRecvWriteImm, Bytes: 0x1000}, 0xcafef00d)
	if n != 1 || !drained || wcs[0] != want {
		t.Errorf("%d completions, drained %v: %+v, want %+v", n, drained, wcs[0], want)
	}
}

// Any 48 bytes mean to the package what they mean to the slow decoder.
func FuzzCQE(f *testing.F) {
	for _, c := range cqeCases {
		b := make([]byte, 48)
		c.c.encode(b)
		f.Add(b)
	}
	mem := guarded(f, ringBytes(2, 64), true)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) < 48 {
			return
		}
		c := decodeCQE(raw)
		s := newScene(t, mem, 2, 64, 1)
		want := s.expect(&c)
		if got := s.poll(t, &c); got != want {
			t.Errorf("%+v:\n%+v, want\n%+v", c, got, want)
		}
		// The same again ends nothing: what it names has ended.
		if again := s.poll(t, &c); again.n != 0 {
			t.Errorf("%+v ended twice, then as %+v", c, again)
		}
	})
}

// The owner of a window hears of its invalidation before the program does, once
// for each such completion and for no other.
func TestInvalidatedIsTold(t *testing.T) {
	s := newScene(t, make([]byte, ringBytes(4, 128)), 4, 128, 0)
	var told []uint32
	s.eps.Get(1).Invalidated = func(key uint32) { told = append(told, key) }
	for seq, c := range []cqe{
		{opcode: 128, flags: 3, ex: [4]byte{0, 0, 0, 7}},
		{opcode: 128, flags: 5, ex: [4]byte(record(u32(0x2c3)))},
		{status: 5, flags: 5, ex: [4]byte(record(u32(0x2c4)))},
	} {
		c.wrid, c.qpn = wridRecv+uint64(seq), 17
		s.driver.post(&c)
	}
	s.driver.publish()
	var wcs [4]cq.WC
	if n, _ := s.q.Poll(wcs[:]); n != 3 || len(told) != 1 || told[0] != 0x2c3 {
		t.Errorf("%d completions, told of %#x", n, told)
	}
}
