package mlx5

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// hostile is a completion queue between inaccessible pages, honest users of it, and
// a device that may write anything anywhere between two calls. What it does is read
// from a program of bytes.
type hostile struct {
	mems   map[int][][]byte // by size of an entry
	record []byte
	uar    []byte

	q      *CQ
	device *completer
	state  cq.State
	open   [2]*party // ordinary queue pairs
	srq    *srqModel
	shared *party

	outstanding map[uint64]hostileRequest
	id          uint64
	told        []completion // what completions of what was posted say
	accounted   uint32       // entries read
}

type hostileRequest struct {
	qpn   uint32
	side  cq.Side
	op    cq.Opcode
	bytes uint32
	quiet bool
}

const hostileEntries = 8

func newHostile(tb testing.TB, high bool) *hostile {
	return &hostile{
		mems: map[int][][]byte{
			64:  {guarded(tb, hostileEntries*64, high), guarded(tb, hostileEntries*32, high), guarded(tb, hostileEntries*64, high)},
			128: {guarded(tb, hostileEntries*128, high), guarded(tb, hostileEntries*64, high), guarded(tb, hostileEntries*128, high)},
		},
		record: guarded(tb, 8, high),
		uar:    guarded(tb, 4096, high),
	}
}

// program reads a program; at its end there are zeros.
type program []byte

func (p *program) byte() byte {
	if len(*p) == 0 {
		return 0
	}
	b := (*p)[0]
	*p = (*p)[1:]
	return b
}

func (p *program) word() uint32 {
	return uint32(p.byte()) | uint32(p.byte())<<8 | uint32(p.byte())<<16 | uint32(p.byte())<<24
}

// run executes a program and checks all that has to hold whatever the device does.
func (h *hostile) run(t *testing.T, p program) {
	first := p.byte()
	v := variant{size: 64 + 64*int(first&1), version: int(first >> 1 & 1), ethernet: first&4 != 0, stamps: first&8 != 0, scatters: first&16 != 0}
	start := uint32(int8(p.byte()))
	if first&0x20 != 0 {
		start += 1 << 24
	}
	var eps cq.Endpoints
	var numbers cq.Members
	h.state = cq.State{}
	var err error
	h.q, h.device, err = newTestCQ(h.mems[v.size][0], h.record, v.size, start, func(c *CQConfig) {
		c.State, c.UAR, c.Ethernet, c.Timestamps, c.IgnoreOverrun = &h.state, h.uar, v.ethernet, v.stamps, first&0x40 != 0
		if c.Endpoints = &eps; v.version == 0 {
			c.Endpoints, c.Numbers = nil, &numbers
		}
		if v.scatters {
			c.Scatter = func(ep *cq.Endpoint, side cq.Side, pos uint16, data []byte) cq.Status {
				if len(data) > v.size/2 && len(data) > 32 {
					t.Fatalf("%d bytes out of an entry of %d", len(data), v.size)
				}
				return cq.Status(len(data) & 1)
			}
		}
		c.SignatureError = func(SignatureErrorCQE) {}
	})
	if err != nil {
		t.Fatal(err)
	}
	h.outstanding, h.told, h.accounted = map[uint64]hostileRequest{}, nil, 0
	h.srq = newSRQModel(3)
	h.srq.table.Repost = func(uint16) {}
	for i := range h.open {
		h.open[i] = newParty(&eps, &h.state, 0x11+uint32(i), 6)
		h.open[i].sendPos, h.open[i].recvPos = 0xfffc, 0xfffe
	}
	h.open[1].ep.Datagram = true
	h.shared = newParty(&eps, &h.state, 0x13, 2)
	h.shared.ep.Shared, h.shared.ep.Recv = h.srq.table, nil
	gone := newParty(&eps, &h.state, 0x14, 1)
	gone.ep.Closed, gone.ep.Shared = true, h.srq.table
	for _, p := range []*party{h.open[0], h.open[1], h.shared, gone} {
		eps.Set(p.index, p.ep)
		if m := numbers.Join(p.ep, &h.state, start); p == gone {
			m.Close()
		}
	}
	for len(p) > 0 {
		h.step(t, &p)
	}
	for range 3 {
		if first&0x80 == 0 { // else it is closed with what it holds
			h.poll(t, 2*hostileEntries)
		}
	}
	h.state.Set(cq.Closed)
	h.q.ReturnShared()
	h.poll(t, hostileEntries)
	h.q.ReturnShared()
	for _, p := range h.open {
		if n := p.send.Room(); n < 0 || n > 6 {
			t.Errorf("room for %d sends in a queue of 6", n)
		}
		if n := p.recv.Room(); n < 0 || n > 6 {
			t.Errorf("room for %d receives in a queue of 6", n)
		}
	}
	if n := h.srq.table.Room(); n < 0 || n > 3 {
		t.Errorf("room for %d shared receives in a queue of 3", n)
	}
}

func (h *hostile) step(t *testing.T, p *program) {
	switch op := p.byte(); op & 15 {
	case 0, 1: // an honest post
		h.post(op)
	case 2, 3: // a completion of something once posted, maybe twice
		if len(h.told) > 0 {
			c := h.told[int(p.byte())%len(h.told)]
			if op&0x10 != 0 {
				c.opcode = op >> 5
			}
			c.imm, c.bytes = p.word(), 3
			h.device.add(&c)
		}
	case 4: // a completion of anything
		c := completion{opcode: op >> 4, uidx: uint32(p.byte()) & 7, qpn: 0x10 + uint32(p.byte())&7, counter: uint16(int8(p.byte())), format: p.byte() & 3, bytes: uint32(p.byte()), sendOpcode: p.byte(), syndrome: p.byte(), vendor: p.byte()}
		h.device.add(&c)
	case 5: // any word anywhere
		store32(h.device.mem, int(p.word()&0xffffff)*4%len(h.device.mem), p.word())
	case 6: // any word of the record, which only software reads
		store32(h.record, int(op>>4&1)*4, p.word())
	case 7: // the last word of any entry
		i := uint32(p.byte())
		store32(h.device.entry(i), h.device.size-4, p.word())
	case 8: // zero pages instead of the ring, or worse
		for i := range h.device.mem {
			h.device.mem[i] = op >> 4 * 0x11
		}
	case 9: // the device is somewhere else
		h.device.producer = h.q.next + uint32(int8(p.byte()))
	case 10:
		h.q.Arm(op&0x10 != 0)
		if op&0x20 != 0 {
			h.q.EventTaken()
		}
	case 11:
		h.q.Empty()
		n := h.q.Produced() - h.q.Consumed()
		if n > h.q.Capacity() {
			t.Fatalf("%d entries produced and not consumed in a ring of %d", n, h.q.Capacity())
		}
		if op&0x10 != 0 {
			late := h.state.Late.Load()
			gap := h.q.Sweep(0x11 + uint32(op>>6))
			if gap > int(n) || h.state.Late.Load()-late != uint64(gap) {
				t.Fatalf("%d of %d swept, %d late", gap, n, h.state.Late.Load()-late)
			}
			h.accounted += uint32(gap)
		}
		if op&0x20 != 0 {
			h.resize(t, h.mems[h.device.size][(op>>4^op>>6)&3%3], op&0x40 != 0)
		}
	default:
		h.poll(t, int(op>>4))
	}
}

// resize resizes with a device that may not tell where the old ring ends.
func (h *hostile) resize(t *testing.T, mem []byte, ends bool) {
	if &mem[0] == &h.device.mem[0] {
		return
	}
	produced := h.q.Produced()
	q, err := h.q.Resize(mem, func() error {
		if ends {
			h.device.add(&completion{opcode: 5})
		}
		return nil
	})
	if q == nil || q.Produced()-q.Consumed() > q.Capacity() || err == nil && q.Consumed() != h.q.Consumed() {
		t.Fatalf("%v, %v: produced %d, then %d", q, err, produced, q.Produced())
	}
	h.q = q
	producer := h.device.producer
	h.device = newCompleter(mem, h.record, h.device.size)
	h.device.producer = producer
}

func (h *hostile) post(op byte) {
	h.id++
	p := h.open[op>>4&1]
	r := hostileRequest{qpn: p.ep.QPN, op: cq.Opcode(op >> 5 & 3), bytes: uint32(op >> 5), quiet: op&0x80 != 0}
	c := completion{uidx: p.index, qpn: p.ep.QPN}
	switch {
	case op&1 == 0 && p.send.Room() > 0:
		c.counter, _ = p.postSend(h.id, r.op, r.bytes, r.quiet, 1+uint16(op>>6))
	case op&1 == 1 && op&0x20 == 0 && p.recv.Room() > 0:
		r.side, r.op, r.quiet, c.opcode = cq.RecvSide, cq.OpRecv, false, 2
		c.counter = p.postRecv(h.id, r.bytes)
	case op&1 == 1 && op&0x20 != 0 && h.srq.table.Room() > 0:
		r.qpn, r.side, r.op, r.quiet, c.opcode = h.shared.ep.QPN, cq.RecvSide, cq.OpRecv, false, 2
		c.uidx, c.qpn = h.shared.index, h.shared.ep.QPN
		h.srq.post(h.id, r.bytes)
		c.counter = h.srq.jobs[len(h.srq.jobs)-1].pos
	default:
		return
	}
	h.outstanding[h.id] = r
	h.told = append(h.told, c)
}

func (h *hostile) poll(t *testing.T, batch int) {
	before, record := bytes.Clone(h.device.mem), bytes.Clone(h.record)
	consumed := h.q.Consumed()
	wcs := make([]cq.WC, batch)
	n, drained := h.q.Poll(wcs)
	if n < 0 || n > len(wcs) {
		t.Fatalf("%d completions in %d places", n, len(wcs))
	}
	for _, w := range wcs[:n] {
		p, ok := h.outstanding[w.ID]
		if !ok {
			t.Fatalf("%+v: not posted, or ended before", w)
		}
		delete(h.outstanding, w.ID)
		if w.QPN != p.qpn || w.Side != p.side || p.quiet && w.Status == cq.StatusSuccess {
			t.Fatalf("%+v ended as %+v", p, w)
		}
		switch {
		case w.Status != cq.StatusSuccess:
			if w != (cq.WC{ID: w.ID, QPN: w.QPN, Side: w.Side, Status: w.Status, VendorErr: w.VendorErr}) {
				t.Fatalf("%+v ended as %+v: more than a failure has", p, w)
			}
		case p.side == cq.SendSide:
			if w != (cq.WC{ID: w.ID, QPN: w.QPN, Opcode: p.op, Bytes: p.bytes, Timestamp: w.Timestamp}) {
				t.Fatalf("%+v ended as %+v", p, w)
			}
		case w.Opcode != cq.OpRecvWriteImm && (w.Opcode != cq.OpRecv || w.Bytes > p.bytes):
			t.Fatalf("%+v ended as %+v", p, w)
		}
	}
	read := h.q.Consumed() - consumed
	if most := h.q.Capacity(); read > most || !drained && n < len(wcs) && read < most {
		t.Fatalf("%d entries read of %d for %d completions of %d, drained %v", read, most, n, len(wcs), drained)
	}
	h.accounted += read
	if counted := h.state.Stray.Load() + h.state.Late.Load(); counted > uint64(h.accounted) {
		t.Fatalf("%d dropped of %d", counted, h.accounted)
	}
	if !bytes.Equal(before, h.device.mem) {
		t.Fatal("Poll wrote to the ring")
	}
	if read > 0 && h.state.Load()&cq.Closed == 0 && !h.q.overrun {
		big.PutUint32(record, h.q.next&0xffffff)
	}
	if !bytes.Equal(record, h.record) {
		t.Fatalf("the record is % x, want % x", h.record, record)
	}
}

func TestHostile(t *testing.T) {
	for _, high := range []bool{false, true} {
		h := newHostile(t, high)
		for seed := range uint64(roundsOr(min(1500, modelSteps()))) {
			rng := rand.New(rand.NewPCG(seed, 5))
			p := make(program, rng.IntN(500))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			h.run(t, p)
		}
	}
}

// A device that writes as fast as it is polled must not keep Poll from returning.
func TestPollEndsAfterALap(t *testing.T) {
	const entries = 4
	var eps cq.Endpoints
	var state cq.State
	polled := 0
	var d *completer
	q, d, err := newTestCQ(aligned(entries*64), aligned(8), 64, 1<<32-2, func(c *CQConfig) {
		c.Endpoints, c.State = &eps, &state
		c.SignatureError = func(SignatureErrorCQE) {
			if polled++; polled < 1000 {
				d.add(&completion{opcode: 12})
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for range entries {
		d.add(&completion{opcode: 12})
	}
	if n, drained := q.Poll(make([]cq.WC, 1)); n != 0 || drained || polled != entries {
		t.Errorf("%d completions, drained %v, %d entries read", n, drained, polled)
	}
}

// FuzzCQRing: whatever the device writes between two calls, no request ends that was
// not posted, none ends twice, and nothing is written or read outside.
func FuzzCQRing(f *testing.F) {
	f.Add([]byte{0, 0, 0x00, 0x02, 0, 1, 0, 0, 0, 0xfc})                                                                                                                            // a send that ends
	f.Add([]byte{1, 7, 0x01, 0x02, 0, 3, 0, 0, 0, 0xfc, 0x02, 0, 3})                                                                                                                // a receive that ends twice
	f.Add([]byte{2, 0xff, 0x80, 0x80, 0x00, 0x02, 2, 0, 0, 0, 0, 0xfc})                                                                                                             // quiet ones before it
	f.Add([]byte{0x08, 0xfc, 0x21, 0x21, 0x02, 1, 0, 0, 0, 0, 0x2c, 0x02, 0, 0, 0, 0, 0, 0xff})                                                                                     // shared ones, in the other order
	f.Add([]byte{0x11, 0, 0x01, 0x24, 1, 1, 0xfe, 1, 31, 0, 0, 0, 0xfc, 0xd4, 1, 1, 0xfe, 0, 0, 0, 5, 0xf9, 0xfc})                                                                  // data in the entry; flushed
	f.Add([]byte{0x60, 0x80, 0x08, 0xfc, 0xf8, 0xfc, 0x18, 0xfc, 0x0a, 0x1a, 0x3a, 0x0b})                                                                                           // pages of one byte
	f.Add([]byte{0x03, 0, 0x07, 0, 0xff, 0xff, 0xff, 0x0f, 0x05, 9, 0, 0, 0xde, 0xad, 0xbe, 0xef, 0x09, 0x80, 0xff})                                                                // words anywhere
	f.Add([]byte{0x00, 0, 0x31, 0xe4, 3, 3, 0, 0, 0, 0, 0x22, 0x93, 0xfc, 0xc4, 1, 1, 0, 0, 0, 0, 0, 0, 0x54, 0, 0xfc})                                                             // page fault, signature, resize
	f.Add([]byte{0x01, 0, 0x01, 0x11, 0x02, 0, 0, 0, 0, 0, 0x02, 1, 0, 0, 0, 0, 0x1b, 0x5b, 0xdb, 0xfc, 0x6b, 0x02, 0, 0, 0, 0, 0, 0xfc, 0x2b, 0xfc})                               // sweep, resize
	f.Add([]byte{0x00, 0x05, 0x21, 0x21, 0x02, 0, 0, 0, 0, 0, 0x02, 1, 0, 0, 0, 0, 0x9b, 0x00, 0x02, 2, 0, 0, 0, 0, 0x6b, 0xfc, 0x02, 2, 0, 0, 0, 0, 0x09, 0xf9})                   // of shared receives
	f.Add([]byte{0x0c, 0, 0x11, 0x11, 0x11, 0x02, 0, 1, 2, 3, 4, 0x72, 1, 1, 2, 3, 4, 0x32, 2, 1, 2, 3, 4, 0xfc, 0x00, 0x00, 0x00, 0x02, 3, 0, 0, 0, 0, 0x02, 4, 0, 0, 0, 0, 0xfc}) // datagrams
	low, high := newHostile(f, false), newHostile(f, true)
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) > 2000 {
			return
		}
		low.run(t, p)
		high.run(t, p)
	})
}
