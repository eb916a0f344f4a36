package rxe

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// hostile is three rings that lie between inaccessible pages, honest users of
// them, and a driver that may write anything anywhere at any time. What it does
// is read from a program of bytes.
type hostile struct {
	cqMem, sqMem, rqMem []byte
}

const (
	hostileSlots = 8
	hostileCQE   = 64
	hostileSend  = 256
	hostileRecv  = 64
)

func newHostile(tb testing.TB, high bool) *hostile {
	return &hostile{
		cqMem: guarded(tb, ringBytes(hostileSlots, hostileCQE), high),
		sqMem: guarded(tb, ringBytes(hostileSlots, hostileSend), high),
		rqMem: guarded(tb, ringBytes(hostileSlots, hostileRecv), high),
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

// run executes a program and checks all that has to hold whatever the driver
// does.
func (h *hostile) run(t *testing.T, p program) {
	var eps cq.Endpoints
	var state cq.State
	driver := newCompleter(format(h.cqMem, hostileSlots, hostileCQE, uint32(p.byte())%hostileSlots))
	format(h.sqMem, hostileSlots, hostileSend, uint32(p.byte())%hostileSlots)
	format(h.rqMem, hostileSlots, hostileRecv, uint32(p.byte())%hostileSlots)
	q, err := NewCQ(h.cqMem, &eps, &state)
	if err != nil {
		t.Fatal(err)
	}
	sq, err := NewSQ(h.sqMem, 3, 48)
	if err != nil {
		t.Fatal(err)
	}
	rq, err := NewRQ(h.rqMem, 1)
	if err != nil {
		t.Fatal(err)
	}
	a := newParty(&eps, &state, 17, 6)
	gone := newParty(&eps, &state, 18, 1)
	gone.ep.Closed = true

	outstanding := map[uint64]posted{} // by id
	var wrids []uint64
	id := uint64(1000)
	var accounted uint32 // completions shown, stray and late
	for len(p) > 0 {
		switch op := p.byte(); op & 15 {
		case 0, 1: // an honest post
			id++
			e := posted{id: id, qpn: 17, op: cq.Opcode(op >> 4 & 3), quiet: op&0x80 != 0}
			if op&1 == 0 && a.send.Room() > 0 {
				wrid, _ := a.postSend(id, e.op, 1, e.quiet)
				outstanding[id] = e
				wrids = append(wrids, wrid)
			} else if op&1 == 1 && a.recv.Room() > 0 {
				e.side, e.quiet = cq.RecvSide, false
				wrids = append(wrids, a.postRecv(id, 1))
				outstanding[id] = e
			}
		case 2, 3: // a completion of something once posted, maybe twice
			if len(wrids) > 0 {
				c := cqe{wrid: wrids[int(p.byte())%len(wrids)], qpn: 17, status: uint32(op >> 6), opcode: 128, bytes: 3, flags: p.word()}
				driver.post(&c)
				driver.publish()
			}
		case 4: // a completion of anything
			c := cqe{wrid: cq.MakeWRID(uint32(p.byte())&3, cq.Side(op>>7), uint32(int8(p.byte()))), qpn: 16 + uint32(op>>4&3), status: uint32(p.byte() & 1), opcode: p.word()}
			driver.post(&c)
			driver.publish()
		case 5, 6: // any word anywhere
			mem := [][]byte{h.cqMem, h.sqMem, h.rqMem}[op>>4%3]
			off := int(p.byte())<<8 | int(p.byte())
			store32(mem, off*4%len(mem), p.word())
		case 7: // an index word of the completion ring
			store32(h.cqMem, []int{offProducer, offConsumer}[op>>4&1], p.word())
		case 8: // zero pages instead of the rings, or worse
			for _, mem := range [][]byte{h.cqMem, h.sqMem, h.rqMem} {
				for i := range mem {
					mem[i] = op >> 4 * 0x11
				}
			}
		case 9:
			if op>>4 == 0 {
				state.Set(cq.Closed)
			}
		case 10, 11, 12, 13:
			h.poll(t, q, &state, make([]cq.WC, op>>4), outstanding, &accounted)
		case 14, 15:
			h.post(t, sq, rq, op)
		}
	}
	for range 3 {
		h.poll(t, q, &state, make([]cq.WC, 2*hostileSlots), outstanding, &accounted)
	}
	if room := a.send.Room(); room < 0 || room > 6 {
		t.Errorf("room for %d sends in a queue of 6", room)
	}
	if room := a.recv.Room(); room < 0 || room > 6 {
		t.Errorf("room for %d receives in a queue of 6", room)
	}
}

func (h *hostile) poll(t *testing.T, q *CQ, state *cq.State, wcs []cq.WC, outstanding map[uint64]posted, accounted *uint32) {
	before := bytes.Clone(h.cqMem)
	consumed := q.Consumed()
	n, drained := q.Poll(wcs)
	if n < 0 || n > len(wcs) {
		t.Fatalf("%d completions in %d places", n, len(wcs))
	}
	for _, w := range wcs[:n] {
		p, ok := outstanding[w.ID]
		if !ok {
			t.Fatalf("%+v: not posted, or ended before", w)
		}
		delete(outstanding, w.ID)
		if w.QPN != p.qpn || w.Side != p.side || p.quiet && w.Status == cq.StatusSuccess {
			t.Fatalf("%+v ended as %+v", p, w)
		}
		if w.Status == cq.StatusSuccess && p.side == cq.SendSide && w.Opcode != p.op {
			t.Fatalf("%+v ended as %+v", p, w)
		}
		if w.Status != cq.StatusSuccess && w != (cq.WC{ID: w.ID, QPN: w.QPN, Side: w.Side, Status: w.Status, VendorErr: w.VendorErr}) {
			t.Fatalf("%+v ended as %+v: more than a failure has", p, w)
		}
	}
	read := q.Consumed() - consumed
	if read >= hostileSlots || !drained && n < len(wcs) {
		t.Fatalf("%d slots read of %d for %d completions, drained %v", read, hostileSlots, n, drained)
	}
	*accounted += read
	counted := state.Stray.Load() + state.Late.Load()
	if counted > uint64(*accounted) {
		t.Fatalf("%d dropped of %d", counted, *accounted)
	}
	after := load32(h.cqMem, offConsumer)
	if closed := state.Load()&cq.Closed != 0; closed || read == 0 {
		if after != load32(before, offConsumer) {
			t.Fatalf("gave back slots: %d read, closed %v", read, closed)
		}
	} else if after >= hostileSlots {
		t.Fatalf("stored consumer index %d", after)
	}
	store32(before, offConsumer, after)
	if !bytes.Equal(before, h.cqMem) {
		t.Fatal("Poll wrote more than the consumer index")
	}
	q.Empty()
}

// post uses the queues that only write, and checks that they write where they
// may.
func (h *hostile) post(t *testing.T, sq *SQ, rq *RQ, op byte) {
	for _, ring := range []struct {
		mem     []byte
		element int
		p       poster
		next    *producer
		put     func()
	}{
		{h.sqMem, hostileSend, sq, &sq.producer, func() { sq.Put(&sendGolden[int(op>>4)%len(sendGolden)].req) }},
		{h.rqMem, hostileRecv, rq, &rq.producer, func() { rq.Put(id, recvGolden[op>>4&1].sges) }},
	} {
		if s := ring.p.Space(); s < 0 || s > ring.p.Capacity() || ring.p.Capacity() != hostileSlots-1 {
			t.Fatalf("space %d, capacity %d in a ring of %d", s, ring.p.Capacity(), hostileSlots)
		}
		before := bytes.Clone(ring.mem)
		at := offSlots + int(ring.next.next%hostileSlots)*ring.element
		ring.put()
		copy(before[at:at+ring.element], ring.mem[at:])
		if !bytes.Equal(before, ring.mem) {
			t.Fatal("Put wrote outside of its slot")
		}
		want := ring.next.next % hostileSlots
		ring.p.Publish()
		if got := load32(ring.mem, offProducer); got != want {
			t.Fatalf("published %d, want %d", got, want)
		}
		store32(before, offProducer, want)
		if op&1 == 1 && ring.element == hostileSend {
			ring.p.Rollback(1)
			store32(before, offProducer, (want+hostileSlots-1)%hostileSlots)
		}
		if !bytes.Equal(before, ring.mem) {
			t.Fatal("Publish and Rollback wrote more than the producer index")
		}
	}
}

func TestHostile(t *testing.T) {
	for _, high := range []bool{false, true} {
		h := newHostile(t, high)
		for seed := range uint64(1500) {
			rng := rand.New(rand.NewPCG(seed, 5))
			p := make(program, rng.IntN(400))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			h.run(t, p)
		}
	}
}

// FuzzRing: whatever the driver writes, no request ends that was not posted,
// none ends twice, and nothing is written or read outside.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0x00, 0x02, 0, 1, 0, 0, 0, 0xfa})             // a send that ends
	f.Add([]byte{7, 7, 7, 0x01, 0x02, 0, 3, 0, 0, 0, 0xfa, 0x02, 0, 3}) // a receive that ends twice
	f.Add([]byte{0, 0, 0, 0x00, 0x07, 0xff, 0xff, 0xff, 0xff, 0xfa, 0x17, 0xff, 0xff, 0xff, 0xff, 0x1a})
	f.Add([]byte{0, 0, 0, 0x05, 0, 0, 31, 0, 0, 0, 0x05, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xfb}) // the header changes
	f.Add([]byte{0, 0, 0, 0x00, 0x01, 0x08, 0xfa, 0xf8, 0xfa, 0x0e, 0x0f, 0x1f})              // zero pages
	f.Add([]byte{3, 5, 6, 0x80, 0x00, 0x42, 1, 0, 0, 0, 0, 0x09, 0xfa, 0x0f, 0x2e})           // closed beside Poll
	low, high := newHostile(f, false), newHostile(f, true)
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) > 2000 {
			return
		}
		low.run(t, p)
		high.run(t, p)
	})
}
