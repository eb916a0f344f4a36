package rxe

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// end is what one completion in the ring has to become: a WC, or nothing.
type end struct {
	wc   cq.WC
	show bool
}

// load is a queue pair under test and what the driver still has to end of it.
type load struct {
	*party
	sends, recvs []job
	shuffles     bool // ends its receives in any order, as shared ones end
}

type job struct {
	posted
	wrid  uint64
	event bool // the device reports its success
}

// modelRecv is the length of the receives of TestPollModel, between what half of
// the messages and a write's length are.
const modelRecv = 1 << 31

// TestPollModel drives a completion ring through many laps with a driver that
// knows what each completion must become, and checks after every Poll the
// completions, the counts, and that nothing but the consumer index was written.
func TestPollModel(t *testing.T) {
	for _, slots := range []int{2, 4, 8, 64} {
		for _, element := range []int{64, 128} {
			for _, high := range []bool{false, true} {
				t.Run(fmt.Sprintf("%dx%d/high=%v", slots, element, high), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(slots), uint64(element)))
					mem := format(guarded(t, ringBytes(slots, element), high), slots, element, rng.Uint32N(uint32(slots)))
					pollModel(t, mem, rng)
				})
			}
		}
	}
}

func pollModel(t *testing.T, mem []byte, rng *rand.Rand) {
	var eps cq.Endpoints
	var state cq.State
	q, err := NewCQ(mem, &eps, &state)
	if err != nil {
		t.Fatal(err)
	}
	driver := newCompleter(mem)
	capacity := q.Capacity()
	var loads []*load
	for i := range uint32(3) {
		loads = append(loads, &load{party: newParty(&eps, &state, 17+i, 5), shuffles: i == 1})
	}
	gone := newParty(&eps, &state, 99, 1)
	gone.ep.Closed = true

	var ring []end // what stands in the ring, oldest first
	var id, read, stray, late uint64
	wcs := make([]cq.WC, 2*capacity+3)
	for step := range 6000 {
		// Post.
		l := loads[rng.IntN(len(loads))]
		for range rng.IntN(4) {
			id++
			if rng.IntN(2) == 0 && l.send.Room() > 0 {
				j := job{posted: posted{id: id, qpn: l.ep.QPN, op: cq.Opcode(rng.IntN(6)), bytes: rng.Uint32(), quiet: rng.IntN(3) == 0}}
				j.wrid, j.event = l.postSend(j.id, j.op, j.bytes, j.quiet)
				l.sends = append(l.sends, j)
			} else if l.recv.Room() > 0 {
				j := job{posted: posted{id: id, qpn: l.ep.QPN, side: cq.RecvSide}, event: true}
				j.wrid = l.postRecv(j.id, modelRecv)
				l.recvs = append(l.recvs, j)
			}
		}
		// Complete.
		for range rng.IntN(6) {
			used, err := driver.used()
			if err != nil {
				t.Fatal(err)
			}
			if used != uint32(len(ring)) {
				t.Fatalf("step %d: by the indices %d completions are in the ring, by the model %d", step, used, len(ring))
			}
			if used == capacity {
				break
			}
			c, e, ok := nextEnd(loads[rng.IntN(len(loads))], rng)
			if rng.IntN(20) == 0 {
				c, e, ok = cqe{wrid: rng.Uint64() | 1<<60, qpn: 17}, end{}, true
				stray++
			} else if rng.IntN(20) == 0 && !ok {
				c, e, ok = cqe{wrid: cq.MakeWRID(gone.index, cq.RecvSide, 0), status: 5, qpn: 99}, end{}, true
				late++
			}
			if ok {
				driver.post(&c)
				driver.publish()
				ring = append(ring, e)
			}
		}
		// Poll.
		if empty := q.Empty(); empty != (len(ring) == 0) {
			t.Fatalf("step %d: Empty is %v with %d in the ring", step, empty, len(ring))
		}
		batch := wcs[:rng.IntN(len(wcs))]
		before := bytes.Clone(mem)
		n, drained := q.Poll(batch)
		shown := 0
		for len(ring) > 0 && shown < len(batch) {
			e := ring[0]
			ring = ring[1:]
			read++
			if !e.show {
				continue
			}
			if shown >= n {
				t.Fatalf("step %d: %d completions, there are more", step, n)
			}
			if batch[shown] != e.wc {
				t.Fatalf("step %d: completion\n%+v, want\n%+v", step, batch[shown], e.wc)
			}
			shown++
		}
		if n != shown || drained != (len(ring) == 0) {
			t.Fatalf("step %d: %d completions of %d, drained %v with %d left", step, n, shown, drained, len(ring))
		}
		if q.Consumed() != uint32(read) {
			t.Fatalf("step %d: consumed %d of %d", step, q.Consumed(), read)
		}
		store32(before, offConsumer, load32(mem, offConsumer))
		if !bytes.Equal(before, mem) {
			t.Fatalf("step %d: Poll wrote more than the consumer index", step)
		}
	}
	for len(ring) > 0 {
		n, _ := q.Poll(wcs)
		ring = ring[min(max(n, 1), len(ring)):]
	}
	if state.Stray.Load() != stray || state.Late.Load() != late {
		t.Errorf("%d stray, %d late; there were %d and %d", state.Stray.Load(), state.Late.Load(), stray, late)
	}
	if laps := read / uint64(capacity+1); laps < 20 {
		t.Errorf("only %d laps", laps)
	}
}

// nextEnd ends one request of l and says what the driver writes of it and what
// that must become. ok is false when there is nothing to end or to say.
func nextEnd(l *load, rng *rand.Rand) (c cqe, e end, ok bool) {
	queue := &l.sends
	i := 0
	if rng.IntN(2) == 0 {
		queue = &l.recvs
		if l.shuffles && len(*queue) > 0 {
			i = rng.IntN(len(*queue))
		}
	}
	if len(*queue) == 0 {
		return c, e, false
	}
	j := (*queue)[i]
	*queue = append((*queue)[:i:i], (*queue)[i+1:]...)
	c = cqe{wrid: j.wrid, qpn: j.qpn, vendor: rng.Uint32(), bytes: rng.Uint32(), flags: 1, opcode: 128, port: 1}
	w := cq.WC{ID: j.id, QPN: j.qpn, Side: j.side}
	if rng.IntN(10) == 0 {
		c.status = 1 + rng.Uint32N(25)
		w.Status, w.VendorErr = cq.Status(c.status), c.vendor
		return c, end{w, true}, true
	}
	if j.side == cq.SendSide {
		w.Opcode, w.Bytes = j.op, j.bytes
		return c, end{w, !j.quiet}, j.event
	}
	w.Opcode, w.Bytes = cq.OpRecv, min(c.bytes, modelRecv)
	switch rng.IntN(4) {
	case 0:
		c.flags |= 2
		c.opcode = 129
		c.ex = [4]byte{1, 2, byte(j.id), 4}
		w.Opcode, w.Bytes = cq.OpRecvWriteImm, c.bytes
		w.SetImm(0x01020004 | uint32(byte(j.id))<<8)
	case 1:
		c.srcQPN = 1 + rng.Uint32N(1<<24-1)
		w.SrcQPN, w.Flags = c.srcQPN, cq.FlagGRH
	}
	return c, end{w, true}, true
}

// poster is a send or receive queue to TestPostModel.
type poster interface {
	Publish()
	Rollback(n uint32)
	Capacity() int
	Space() int
}

// TestPostModel drives send and receive rings through many laps with a driver
// that takes what is published, checks every byte of it, and leaves dirt
// behind.
func TestPostModel(t *testing.T) {
	for _, slots := range []int{2, 4, 32} {
		for _, recv := range []bool{false, true} {
			for _, high := range []bool{false, true} {
				element := 256
				if recv {
					element = 128
				}
				t.Run(fmt.Sprintf("%d/recv=%v/high=%v", slots, recv, high), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(slots), uint64(element)))
					mem := format(guarded(t, ringBytes(slots, element), high), slots, element, rng.Uint32N(uint32(slots)))
					postModel(t, mem, element, recv, rng)
				})
			}
		}
	}
}

func postModel(t *testing.T, mem []byte, element int, recv bool, rng *rand.Rand) {
	var p poster
	var put func() []byte // puts a request and returns the bytes it must be
	if recv {
		q, err := NewRQ(mem, 2)
		if err != nil {
			t.Fatal(err)
		}
		p, put = q, func() []byte {
			c := recvGolden[rng.IntN(len(recvGolden))]
			wrid := rng.Uint64()
			q.Put(wrid, c.sges)
			return append(record(wrid), c.want[8:]...)
		}
	} else {
		q, err := NewSQ(mem, 2, 32)
		if err != nil {
			t.Fatal(err)
		}
		p, put = q, func() []byte {
			c := sendGolden[rng.IntN(len(sendGolden))]
			c.req.WRID = rng.Uint64()
			q.Put(&c.req)
			return append(record(c.req.WRID), c.want[8:]...)
		}
	}
	mask := native.Uint32(mem[offMask:])
	consumer := load32(mem, offConsumer)
	var public, staged [][]byte
	taken := 0
	for step := range 8000 {
		room := int(mask) - len(public) - len(staged)
		if p.Space() != room || p.Capacity() != int(mask) {
			t.Fatalf("step %d: space %d, capacity %d; want %d and %d", step, p.Space(), p.Capacity(), room, mask)
		}
		switch rng.IntN(6) {
		case 0, 1, 2:
			if room > 0 {
				staged = append(staged, put())
			}
		case 3:
			p.Publish()
			public, staged = append(public, staged...), nil
		case 4:
			all := len(staged)
			if !recv && rng.IntN(2) == 0 {
				all += len(public) // no doorbell since: the driver has not looked
			}
			n := rng.IntN(all + 1)
			p.Rollback(uint32(n))
			fromStaged := min(n, len(staged))
			staged = staged[:len(staged)-fromStaged]
			public = public[:len(public)-(n-fromStaged)]
			if recv && rng.IntN(4) == 0 {
				p.Rollback(uint32(len(staged) + 3)) // receives that are published stay
				staged = nil
			}
		case 5:
			producer := load32(mem, offProducer)
			if producer > mask {
				t.Fatalf("step %d: producer index %d is not masked by %#x", step, producer, mask)
			}
			if there := int((producer - consumer) & mask); there != len(public) {
				t.Fatalf("step %d: %d requests published, want %d", step, there, len(public))
			}
			for n := rng.IntN(len(public) + 1); n > 0; n-- {
				slot := mem[offSlots+int(consumer)*element:][:element]
				if want := public[0]; !bytes.Equal(slot[:len(want)], want) {
					t.Fatalf("step %d: request %d is\n% x, want\n% x", step, taken, slot[:len(want)], want)
				}
				for i := range slot {
					slot[i] = byte(rng.Uint32())
				}
				public = public[1:]
				taken++
				consumer = (consumer + 1) & mask
			}
			store32(mem, offConsumer, consumer)
		}
	}
	if laps := taken / int(mask+1); laps < 20 {
		t.Errorf("only %d laps", laps)
	}
}
