package mlx5

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// hostile is a completion queue between inaccessible pages, honest users of it, and
// a device that may write anything anywhere between two calls. What it does is read
// from a program of bytes.
type hostile struct {
	variant
	areas  [2]map[int][][]byte // at either end of their pages, by size of an entry
	places [2][2][]byte        // records and UARs
	mems   [][]byte
	record []byte

	q            *CQ
	device       *completer
	eps          cq.Endpoints
	state, other cq.State
	users        [6]*user
	srq          *srqModel
	signed       bool // somebody takes signature errors
	overrun      bool

	sharedOwed        ledger
	id                uint64
	told              []told // completions of what was posted, oldest first
	next, given, skew uint32
	stray, late       uint64

	before []byte // the ring, as it was when Poll began
	want   account
	calls  []call
	wcs    []cq.WC
	hot    int    // entries that the device writes while Poll runs
	hotAt  uint32 // the next of them
}

// told is a completion that the device may tell of a request, once or more.
type told struct {
	completion
	u    *user
	side cq.Side
}

const hostileEntries = 8

func newHostile(tb testing.TB) *hostile {
	h := &hostile{before: make([]byte, 0, hostileEntries*128), wcs: make([]cq.WC, 2*hostileEntries)}
	for i, high := range []bool{false, true} {
		h.areas[i] = map[int][][]byte{}
		for size := 64; size <= 128; size += 64 {
			for _, n := range []int{hostileEntries, hostileEntries / 2, hostileEntries} {
				h.areas[i][size] = append(h.areas[i][size], guarded(tb, n*size, high))
			}
		}
		h.places[i] = [2][]byte{guarded(tb, 8, high), guarded(tb, 4096, high)}
	}
	return h
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

// start makes a queue and its users as the first bytes of a program say.
func (h *hostile) start(t *testing.T, p *program) {
	first, second := p.byte(), p.byte()
	h.variant = variant{size: 64 + 64*int(first&1), version: 1 - int(first>>1&1), ethernet: first&4 != 0, stamps: first&8 != 0, scatters: first&16 != 0}
	h.overrun, h.signed = first&0x20 != 0, second&2 != 0
	high := second & 1
	start := []uint32{0, 1<<24 - 3, 1<<32 - 3, 1<<32 - 1, 7, 8, 1<<24 - 20, 1<<32 - 20}[second>>4&7]
	h.mems, h.record = h.areas[high][h.size], h.places[high][0]
	h.state, h.other, h.eps = cq.State{}, cq.State{}, cq.Endpoints{}
	numbers := new(cq.Members)
	var err error
	h.q, h.device, err = newTestCQ(h.mems[0], h.record, h.size, start, func(c *CQConfig) {
		c.State, c.UAR, c.Ethernet, c.Timestamps, c.IgnoreOverrun = &h.state, h.places[high][1], h.ethernet, h.stamps, h.overrun
		if c.Endpoints = &h.eps; h.version == 0 {
			c.Endpoints, c.Numbers = nil, numbers
		}
		if h.scatters {
			c.Scatter = func(ep *cq.Endpoint, side cq.Side, pos uint16, data []byte) cq.Status {
				x := call{kind: "data", qpn: ep.QPN, side: side, pos: pos, n: len(data)}
				copy(x.data[:], data)
				h.calls = append(h.calls, x)
				return cq.Status(len(data) & 1)
			}
		}
		if h.signed {
			c.SignatureError = h.signature
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	h.told, h.id, h.next, h.given, h.skew, h.stray, h.late, h.hot = h.told[:0], 0, start, start, 0, 0, 0, 0
	h.srq, h.sharedOwed = newSRQModel(3), ledger{depth: 3}
	h.srq.table.Repost = func(pos uint16) { h.calls = append(h.calls, call{kind: "repost", pos: pos}) }
	for i := range h.users {
		u := &user{queues: [2]ledger{{depth: 3 + i}, {depth: 3 + i}}}
		u.party = newParty(&h.eps, &h.state, 0x11+uint32(i), 3+uint32(i))
		u.sendPos, u.recvPos = 0xfffc, 0xfffe
		u.ep.Invalidated = func(key uint32) {
			h.calls = append(h.calls, call{kind: "invalidated", qpn: u.ep.QPN, key: key})
		}
		switch i {
		case 1:
			u.ep.Datagram = true
		case 2, 3:
			u.shared, u.ep.Shared, u.ep.Recv = true, h.srq.table, nil
		case 4, 5: // one of its sides completes elsewhere
			side := cq.Side(i & 1)
			u.elsewhere[side] = true
			r := cq.NewRequests(3+uint32(i), side, u.ep.QPN, &h.other)
			if side == cq.SendSide {
				u.send, u.ep.Send = r, r
			} else {
				u.recv, u.ep.Recv = r, r
			}
		}
		h.eps.Set(u.index, u.ep)
		u.member = numbers.Join(u.ep, &h.state, start)
		h.users[i] = u
	}
	h.close(h.users[3])
}

// close leaves the tombstone of a queue pair.
func (h *hostile) close(u *user) {
	u.closed = true
	u.member.Close()
	h.eps.Set(u.index, &cq.Endpoint{QPN: u.ep.QPN, Closed: true, Shared: u.ep.Shared})
}

// run executes a program and checks all that has to hold whatever the device does.
func (h *hostile) run(t *testing.T, p program) {
	keep := len(p) > 2 && p[1]&4 != 0 // it is closed with what it holds
	for h.start(t, &p); len(p) > 0; {
		h.step(t, &p)
	}
	for range 3 {
		if !keep {
			h.poll(t, 2*hostileEntries)
		}
	}
	h.state.Set(cq.Closed)
	h.returnShared(t)
	h.poll(t, hostileEntries)
	h.returnShared(t)
}

func (h *hostile) step(t *testing.T, p *program) {
	switch op := p.byte(); op & 15 {
	case 0, 1: // an honest post
		h.post(op, p.byte())
	case 2: // a completion of something once posted
		if len(h.told) > 0 {
			h.tell(int(op>>4), p)
		}
	case 3: // almost one
		if len(h.told) > 0 {
			h.almost(int(op>>4), p)
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
		switch op >> 4 & 3 {
		case 0:
			h.empty(t)
		case 1:
			h.sweep(t, h.users[int(op>>6)].ep.QPN)
		case 2:
			h.resize(t, h.mems[int(op>>6)%3], true)
		default:
			h.resize(t, h.mems[int(op>>6)%3], false)
		}
	case 12:
		h.close(h.users[int(op>>4)%len(h.users)])
	case 13: // a device that writes as fast as it is polled
		h.device.producer = h.q.next + h.q.Produced() - h.q.Consumed()
		h.hotAt = h.q.next + h.q.Capacity()
		for h.device.producer != h.hotAt {
			h.device.add(&completion{opcode: 12})
		}
		h.hot = 4 * hostileEntries
		h.poll(t, 1+int(op>>4))
		h.hot = 0
	case 14: // laps of what is as it should be
		for range op >> 4 {
			h.post(0, 0)
			h.tell(0, p)
			h.poll(t, 1)
		}
	default:
		h.poll(t, int(op>>4))
	}
}

func (h *hostile) post(op, how byte) {
	u, side := h.users[int(how&7)%len(h.users)], cq.Side(op&1)
	r := owed{posted: posted{id: h.id + 1, op: cq.Opcode(how >> 3 & 7), bytes: uint32(how), quiet: op&0x10 != 0}, committed: op&0x20 == 0}
	c := told{completion: completion{uidx: u.index, qpn: u.ep.QPN}, u: u, side: side}
	if side == cq.RecvSide {
		r.op, r.quiet, c.opcode = cq.OpRecv, false, 2
	}
	if side == cq.RecvSide && u.shared {
		if h.srq.table.Room() == 0 {
			return
		}
		h.srq.post(r.id, r.bytes)
		r.pos, r.committed = h.srq.jobs[len(h.srq.jobs)-1].pos, true
		h.sharedOwed.requests = append(h.sharedOwed.requests, r)
	} else {
		requests, pos, blocks := u.send, &u.sendPos, 1+uint16(how>>6)
		if side == cq.RecvSide {
			requests, pos, blocks = u.recv, &u.recvPos, 1
		}
		if requests.Room() == 0 {
			return
		}
		seq, _ := requests.Stage(r.id, r.op, r.bytes, r.quiet)
		requests.Place(seq, *pos)
		r.pos = *pos
		*pos += blocks
		l := &u.queues[side]
		l.requests = append(l.requests, r)
		if r.committed { // else the device is not to know of it yet
			requests.Commit()
			l.commit()
		}
	}
	h.id++
	c.counter = r.pos
	h.told = append(h.told, c)
}

// free lets the device go on where the first entry is that is not software's.
func (h *hostile) free() { h.device.producer = h.q.next + h.q.Produced() - h.q.Consumed() }

// pick chooses something that was posted, counted from the last on.
func (h *hostile) pick(back int) told { return h.told[len(h.told)-1-back%len(h.told)] }

// tell completes it.
func (h *hostile) tell(back int, p *program) {
	if len(h.told) == 0 {
		return
	}
	c := h.pick(back)
	if c.bytes = 3; len(*p) > 0 && (*p)[0]&15 == 15 {
		c.bytes, c.imm = 1<<16, 7
	}
	h.free()
	h.device.add(&c.completion)
}

// almost completes it with one thing that is not as it should be.
func (h *hostile) almost(back int, p *program) {
	c := h.pick(back)
	how, x := p.byte(), p.byte()
	tail := c.u.sendPos
	switch {
	case c.side == cq.RecvSide && c.u.shared:
		tail = uint16(h.srq.table.Depth()) + 1 // there is no such position
	case c.side == cq.RecvSide:
		tail = c.u.recvPos
	}
	c.bytes, c.imm, c.source, c.vlan, c.headers, c.slid = uint32(x), uint32(x)*0x01010101, uint32(x)*0x01020408, uint16(x)<<8, x, uint16(x)
	stranger := h.users[int(x)%len(h.users)]
	h.free()
	switch how & 31 {
	case 0:
		c.counter++
	case 1:
		c.counter--
	case 2, 3, 4: // where the next request will stand, and beside
		c.counter = tail + uint16(how&31) - 3
	case 5:
		c.counter += 1 << (x & 15)
	case 6:
		c.qpn = stranger.ep.QPN
	case 7:
		c.uidx = stranger.index
	case 8, 9:
		c.qpn, c.uidx = stranger.ep.QPN, stranger.index
	case 10:
		c.qpn |= 1 << (x % 24)
	case 11:
		c.uidx |= 1 << (x % 24)
	case 12:
		c.opcode ^= 2 // the other side
	case 13, 14:
		c.opcode, c.syndrome, c.vendor = 13+byte(c.side), x, byte(h.id)
	case 15: // the pages are on their way
		c.opcode, c.syndrome, c.vendor = 14, 0x22, byte(VendorODPFault)
	case 16:
		c.opcode = x & 15
	case 17, 18, 19:
		c.format, c.data, c.sendOpcode = how&31-16, bytes.Repeat([]byte{x, 0x77}, 32), 0x10|x&7
	case 20, 21: // a lap too early, or late
		h.device.producer += h.q.Capacity()
	case 22, 23: // anywhere in the ring
		h.device.producer += uint32(x)
	case 24: // as often as there is room
		for range x & 7 {
			h.device.add(&c.completion)
		}
	case 25: // and failed afterwards
		h.device.add(&c.completion)
		c.opcode, c.syndrome = 13+byte(c.side), x
	case 26: // failed, and succeeded afterwards
		bad := c
		bad.opcode, bad.syndrome = 13+byte(c.side), x
		h.device.add(&bad.completion)
	default: // another kind of message
		c.opcode = how&31 - 26
	}
	h.device.add(&c.completion)
}

func (h *hostile) signature(entry *[64]byte) {
	s, err := ParseSignatureErrorCQE(entry)
	if err != nil {
		panic(err) // it was looked at before
	}
	h.calls = append(h.calls, call{kind: "signature", qpn: s.QPN})
	if h.hot == 0 {
		return
	}
	h.hot--
	hot := *h.device
	for _, mem := range [][]byte{h.device.mem, h.before} {
		hot.mem, hot.producer = mem, h.hotAt
		hot.add(&completion{opcode: 12})
	}
	h.hotAt++
}

func TestHostile(t *testing.T) {
	h := newHostile(t)
	for seed := range uint64(roundsOr(min(3000, 2*modelSteps()))) {
		rng := rand.New(rand.NewPCG(seed, 5))
		p := make(program, rng.IntN(500))
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		h.run(t, p)
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
		c.SignatureError = func(*[64]byte) {
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

// FuzzCQRing: whatever the device writes between two calls, and though it goes on while
// Poll runs, every call comes to what the ledgers of its users say. So no request ends
// that was not posted, none ends twice, none of another queue, room comes back once for
// each, and nothing is written or read outside.
func FuzzCQRing(f *testing.F) {
	for _, p := range []program{
		{0, 0, 0x00, 0, 0x02, 0xff, 0xff},                                                         // a send that ends
		{1, 1, 0x01, 8, 0x01, 8, 0x02, 0x02, 0xff, 0x02, 0x12, 0xff},                              // receives that end twice, in the other order
		{4, 0x23, 0x10, 0, 0x10, 0, 0x00, 0, 0x03, 13, 2, 0x02, 0xff, 0xff},                       // quiet ones before a failure, and its success
		{2, 0x10, 0x20, 0, 0x02, 0xff, 0x00, 0, 0x02, 0x12, 0xff},                                 // one that the device is not to know of yet
		{0, 0, 0x01, 2, 0x01, 2, 0x03, 15, 0, 0xff, 0x03, 13, 5, 0x12, 0xff, 0x12, 0x02, 0xff},    // shared ones, and pages on their way
		{0, 0, 0x01, 2, 0x03, 8, 3, 0xff, 0x02, 0xff, 0x01, 4, 0x02, 0xff, 0x00, 5, 0x02, 0xff},   // of a tombstone, and of another queue
		{8, 0x73, 0x00, 0, 0x02, 0xfd, 0xff, 0xff, 0x9d, 0x1d, 0xff},                              // a device as fast as Poll
		{0, 0, 0xfe, 0xfe, 0x00, 0, 0x02, 0x1b, 0x00, 0, 0x02, 0x12, 0x5b, 0xff, 0xff},            // laps, and a sweep
		{1, 0, 0x00, 0, 0x00, 0, 0x02, 0x12, 0x6b, 0xff, 0x00, 0, 0x02, 0x3b, 0xff, 0xab, 0xff},   // other rings
		{16, 2, 0x01, 64, 0x01, 64, 0x03, 17, 31, 0x13, 17, 30, 0xff, 0x00, 0, 0x03, 18, 0, 0xff}, // data in the entry
	} {
		f.Add([]byte(p))
	}
	h := newHostile(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		// Programs take microseconds.
		late := time.AfterFunc(time.Minute, func() { panic("the queue does not come back") })
		defer late.Stop()
		h.run(t, p[:min(len(p), 300)])
	})
}
