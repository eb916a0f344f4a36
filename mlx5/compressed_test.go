package mlx5

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// compressor is the device's side of a ring of compressed completions.
type compressor struct {
	*completer
	enhanced bool
}

// lap is what byte 62 of an entry has in the enhanced layout.
func (d *compressor) lap(i uint32) byte { return byte(i / uint32(d.n)) }

// write writes an entry; the last word, with owner and lap, comes last.
func (d *compressor) write(b []byte) {
	at := d.producer
	to := d.entry(at)
	copy(to[:d.size-4], b)
	last := bytes.Clone(b[d.size-4 : d.size])
	last[3] = last[3]&^1 | d.owner(at)
	if d.enhanced {
		last[2] = d.lap(at)
	}
	store32(to, d.size-4, binary.NativeEndian.Uint32(last))
}

func (d *compressor) one(c completion) {
	b := make([]byte, d.size)
	c.encode(b)
	d.write(b)
	d.producer++
}

// mini writes the eight bytes that stand for c.
func (c *completion) mini(to []byte) {
	binary.BigEndian.PutUint32(to, 0xfee1dead) // a hash
	if c.opcode == 0 {
		binary.BigEndian.PutUint16(to, c.counter)
	}
	binary.BigEndian.PutUint32(to[4:], c.bytes)
}

// block writes completions that have all but length and counter in common. In the
// enhanced layout the first of them is written as it is, and is the title, unless
// the one before was of the kind.
func (d *compressor) block(cs []completion, titled bool) {
	if d.enhanced {
		if !titled {
			d.one(cs[0])
			cs = cs[1:]
		}
		for len(cs) > 0 {
			n := min(7, len(cs))
			b := make([]byte, d.size)
			for i := range b {
				b[i] = 0xc3
			}
			for i := range cs[:n] {
				cs[i].mini(b[d.size-64+8*i:])
			}
			b[d.size-1] = byte(n-1)<<4 | 3<<2
			d.write(b)
			d.producer += uint32(n)
			cs = cs[n:]
		}
		return
	}
	for i := 0; i < len(cs); i += 8 {
		at := d.producer + uint32(max(i, 1))
		to := d.entry(at)[d.size-64:]
		for k := range to {
			to[k] = 0xc3 // with nothing in it that says whose it is
		}
		for k := range cs[i:min(i+8, len(cs))] {
			cs[i+k].mini(to[8*k:])
		}
	}
	title := cs[0]
	title.format, title.bytes = 3, uint32(len(cs))
	b := make([]byte, d.size)
	title.encode(b)
	d.write(b)
	d.producer += uint32(len(cs))
}

// Blocks of all lengths, across the end of the ring, with failures before and behind,
// polled in pieces, through laps of all that counts.
func TestCompressedModel(t *testing.T) {
	for _, enhanced := range []bool{false, true} {
		for _, entries := range []int{2, 4, 16, 64} {
			for _, v := range []variant{{64, 1, false, true, false}, {128, 0, true, false, false}} {
				for _, start := range []uint32{0, 1<<24 - 5, 1<<32 - 5} {
					name := fmt.Sprintf("enhanced=%v/%d/%v/start=%#x", enhanced, entries, v, start)
					t.Run(name, func(t *testing.T) {
						rng := rand.New(rand.NewPCG(uint64(entries), uint64(start)))
						compressedModel(t, enhanced, entries, v, start, rng)
					})
				}
			}
		}
	}
}

func compressedModel(t *testing.T, enhanced bool, entries int, v variant, start uint32, rng *rand.Rand) {
	var eps cq.Endpoints
	var numbers cq.Members
	var state cq.State
	c := CQConfig{Buffer: guarded(t, entries*v.size, true), Record: guarded(t, 8, true), EntrySize: v.size, Endpoints: &eps, State: &state, Timestamps: v.stamps}
	if v.version == 0 {
		c.Endpoints, c.Numbers = nil, &numbers
	}
	q, err := NewCompressedCQ(c, enhanced)
	if err != nil {
		t.Fatal(err)
	}
	q.next, q.given = start, start
	q.record[0] = toBE32(start & 0xffffff)
	if enhanced { // what a fresh ring has is no lap's that is near
		for i := range q.ring.mask + 1 {
			q.ring.entry(i).signature = byte(start>>q.ring.log) - 1
		}
	}
	d := &compressor{newCompleter(c.Buffer, c.Record, v.size), enhanced}
	d.producer = start
	p := newParty(&eps, &state, 0x77, 128)
	numbers.Join(p.ep, &state, start)
	p.sendPos, p.recvPos = 0xffd0, 0xffe0

	var ring []cq.WC
	id, read := uint64(0), start
	wcs := make([]cq.WC, 70)
	steps := roundsOr(min(2000, modelSteps()))
	for step := range steps {
		for range rng.IntN(3) {
			used, err := d.used()
			if err != nil || int(used) != len(ring) {
				t.Fatalf("step %d: %d completions by the indices, %v, %d by the model", step, used, err, len(ring))
			}
			free := entries - len(ring)
			send := rng.IntN(2) == 0
			// A completion alone, or a failure, or some of a kind.
			n := 1
			if rng.IntN(3) > 0 {
				n = 2 + rng.IntN(20)
			}
			if n > free {
				continue
			}
			var cs []completion
			common := completion{uidx: p.index, qpn: 0x77, opcode: 2, stamp: rng.Uint64(), source: rng.Uint32()}
			if send {
				common.opcode, common.sendOpcode = 0, 8
			}
			failed := n == 1 && rng.IntN(3) == 0
			if failed {
				common.opcode, common.syndrome, common.vendor = 14, 5, 0xf9
				if send {
					common.opcode = 13
				}
			}
			for range n {
				id++
				one := common
				one.bytes = rng.Uint32N(1 << 20)
				w := cq.WC{ID: id, QPN: 0x77, Opcode: cq.OpWrite, Bytes: 99}
				if v.stamps {
					w.Timestamp = common.stamp
				}
				if send {
					one.counter, _ = p.postSend(id, cq.OpWrite, 99, false, 1+uint16(rng.IntN(4)))
				} else {
					one.counter = p.postRecv(id, 1<<20)
					w.Side, w.Opcode, w.Bytes = cq.RecvSide, cq.OpRecv, one.bytes
				}
				if failed {
					w = cq.WC{ID: id, QPN: 0x77, Side: w.Side, Status: cq.StatusFlushed, VendorErr: 0xf9}
				}
				cs = append(cs, one)
				ring = append(ring, w)
			}
			if n == 1 {
				d.one(cs[0])
			} else {
				d.block(cs, false)
			}
		}
		if q.Empty() != (len(ring) == 0) || q.Produced() != read+uint32(len(ring)) || q.Capacity() != uint32(entries) {
			t.Fatalf("step %d: empty %v, produced %#x with %d read and %d there", step, q.Empty(), q.Produced(), read, len(ring))
		}
		batch := wcs[:rng.IntN(1+rng.IntN(len(wcs)))]
		n, drained := q.Poll(batch)
		if n != min(len(ring), len(batch)) || drained != (n == len(ring)) {
			t.Fatalf("step %d: %d completions in %d places, drained %v, %d there", step, n, len(batch), drained, len(ring))
		}
		for i, w := range batch[:n] {
			if w != ring[i] {
				t.Fatalf("step %d:\n%+v, want\n%+v", step, w, ring[i])
			}
		}
		ring = ring[n:]
		read += uint32(n)
		if q.Consumed() != read || d.consumed() != read&0xffffff {
			t.Fatalf("step %d: consumed %#x, the record has %#x, want %#x", step, q.Consumed(), d.consumed(), read)
		}
	}
	if s := state.Stray.Load(); s != 0 {
		t.Errorf("%d stray", s)
	}
	if laps := (read - start) / uint32(entries); steps >= 2000 && (laps < 3 || enhanced && entries == 2 && laps < 300) {
		t.Errorf("only %d laps", laps)
	}
}

// What cannot be a block is dropped, one entry at a time.
func TestCompressedRefuses(t *testing.T) {
	for _, c := range []struct {
		enhanced bool
		last     byte
		count    uint32
	}{
		{false, 0x2c, 0}, {false, 0x2c, 1}, {false, 0x2c, 5}, {false, 0x2c, 1 << 31}, {false, 0xdc, 2}, {false, 0x5c, 2}, {false, 0xcc, 2},
		{true, 0x0c, 0}, // without a title
		{true, 0x7c, 0}, {true, 0xfc, 0}, {true, 0x4c, 0},
	} {
		var state cq.State
		var eps cq.Endpoints
		mem, record := guarded(t, 4*64, true), guarded(t, 8, true)
		q, err := NewCompressedCQ(CQConfig{Buffer: mem, Record: record, EntrySize: 64, Endpoints: &eps, State: &state}, c.enhanced)
		if err != nil {
			t.Fatal(err)
		}
		if n, drained := q.Poll(make([]cq.WC, 3)); n != 0 || !drained || !q.Empty() {
			t.Fatal("completions in a fresh ring")
		}
		d := &compressor{newCompleter(mem, record, 64), c.enhanced}
		b := make([]byte, 64)
		b[63] = c.last
		binary.BigEndian.PutUint32(b[44:], c.count)
		if c.enhanced && c.last != 0x0c {
			d.one(completion{opcode: 2})
		}
		before := d.producer
		d.write(b)
		d.producer++
		if p := q.Produced(); p != before+1 && c.last != 0x0c {
			t.Errorf("%+v: produced %d, want %d", c, p, before+1)
		}
		if n, drained := q.Poll(make([]cq.WC, 8)); n != 0 || !drained || q.Consumed() != before+1 || state.Stray.Load() != uint64(before+1) {
			t.Errorf("%+v: %d completions, drained %v, consumed %d, %d stray", c, n, drained, q.Consumed(), state.Stray.Load())
		}
	}
	if _, err := NewCompressedCQ(CQConfig{}, false); err == nil {
		t.Error("a queue of nothing")
	}
}

// A closed ring gives back the shared receives that it holds, those of a block that
// was half read too.
func TestCompressedReturnsShared(t *testing.T) {
	for _, enhanced := range []bool{false, true} {
		var state cq.State
		var eps cq.Endpoints
		mem, record, uar := aligned(16*64), aligned(8), aligned(4096)
		q, err := NewCompressedCQ(CQConfig{Buffer: mem, Record: record, UAR: uar, EntrySize: 64, Endpoints: &eps, State: &state}, enhanced)
		if err != nil {
			t.Fatal(err)
		}
		d := &compressor{newCompleter(mem, record, 64), enhanced}
		s := newSRQModel(8)
		p := newParty(&eps, &state, 0x77, 8)
		p.ep.Shared, p.ep.Recv = s.table, nil
		eps.Set(p.index, p.ep)
		var cs []completion
		for i := range uint64(6) {
			s.post(i, 10)
			cs = append(cs, completion{opcode: 2, uidx: p.index, qpn: 0x77, counter: uint16(i)})
		}
		d.block(cs, false)
		d.one(completion{opcode: 13})
		if n, _ := q.Poll(make([]cq.WC, 2)); n != 2 || s.table.Room() != 4 {
			t.Errorf("%d polled, room %d", n, s.table.Room())
		}
		q.SetNumber(5)
		q.Arm(true)
		q.EventTaken()
		if _, arm, _ := armed(record, uar); arm != 1<<24|2 {
			t.Errorf("armed with %#x", arm)
		}
		state.Set(cq.Closed)
		q.ReturnShared()
		q.ReturnShared()
		if s.table.Room() != 8 {
			t.Errorf("enhanced %v: room %d, want 8", enhanced, s.table.Room())
		}
	}
}

// An arm in the middle of a block finds completions waiting, whatever stands where the
// device would write the next one. So those do not tell that the device has answered the
// arm, and the next arm has its number once more.
func TestCompressedArmInBlock(t *testing.T) {
	for _, enhanced := range []bool{false, true} {
		for polled := 1; polled <= 6; polled++ {
			var state cq.State
			var eps cq.Endpoints
			mem, record, uar := aligned(16*64), aligned(8), aligned(4096)
			q, err := NewCompressedCQ(CQConfig{Buffer: mem, Record: record, UAR: uar, EntrySize: 64, Endpoints: &eps, State: &state}, enhanced)
			if err != nil {
				t.Fatal(err)
			}
			q.SetNumber(5)
			d := &compressor{newCompleter(mem, record, 64), enhanced}
			p := newParty(&eps, &state, 0x77, 8)
			var cs []completion
			for i := range 6 {
				cs = append(cs, completion{opcode: 2, uidx: p.index, qpn: 0x77, counter: p.postRecv(uint64(i), 100)})
			}
			d.block(cs, false)
			poll := func(n int) {
				t.Helper()
				if got, _ := q.Poll(make([]cq.WC, n)); got != n {
					t.Fatalf("enhanced %v: %d polled, want %d", enhanced, got, n)
				}
			}
			poll(polled)
			q.Arm(false)
			if polled < 6 {
				poll(6 - polled)
			} else {
				d.one(completion{opcode: 2, uidx: p.index, qpn: 0x77, counter: p.postRecv(6, 100)})
				poll(1)
			}
			q.Arm(false)
			_, arm, _ := armed(record, uar)
			if answered := polled == 6; (arm>>armSequenceShift == 1) != answered {
				t.Errorf("enhanced %v, armed after %d of 6: the next arm has number %d", enhanced, polled, arm>>armSequenceShift)
			}
		}
	}
}
