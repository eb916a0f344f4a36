package mlx5

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// expect is what a device reads of a request, by what the request means.
func expect(r *cq.SendRequest, umrBefore bool) readRequest {
	w := readRequest{Op: r.Op, Signaled: r.Flags&cq.Unsignaled == 0, Solicited: r.Flags&cq.Solicited != 0}
	switch {
	case r.Flags&cq.Fence != 0:
		w.Fence = 4
	case umrBefore:
		w.Fence = 1
	}
	switch r.Op {
	case cq.OpSendImm, cq.OpWriteImm:
		w.Imm = r.Imm
	case cq.OpSendInvalidate:
		w.InvalidateRKey = r.InvalidateRKey
	case cq.OpLocalInvalidate:
		w.InvalidateRKey, w.NewKey = r.InvalidateRKey, 0xffffff00
		return w
	case cq.OpBindMW:
		w.InvalidateRKey = r.WindowRKey
		if r.WindowBytes == 0 {
			w.Op, w.NewKey = cq.OpLocalInvalidate, 0xffffff00|r.RKey&0xff
			return w
		}
		w.Window, w.NewKey = true, 0x4a5<<8|r.RKey&0xff
		w.RemoteAddr, w.WindowBytes, w.WindowLKey, w.Access = r.RemoteAddr, r.WindowBytes, r.WindowLKey, r.WindowAccess&0xf
		if w.Start = r.RemoteAddr; r.WindowAccess&0x20 != 0 {
			w.Start = 0
		}
		return w
	}
	switch r.Op {
	case cq.OpCompareSwap:
		w.Compare = r.Compare
		fallthrough
	case cq.OpFetchAdd:
		w.Operand = r.Operand
		fallthrough
	case cq.OpWrite, cq.OpWriteImm, cq.OpRead:
		w.RemoteAddr, w.RKey = r.RemoteAddr, r.RKey
	}
	if r.Flags&cq.Inline != 0 && len(r.Data) > 0 {
		w.Data = bytes.Clone(r.Data)
	}
	if r.Flags&cq.Inline == 0 {
		for _, e := range r.SGEs {
			if e.Length != 0 {
				if r.Op == cq.OpCompareSwap || r.Op == cq.OpFetchAdd {
					e.Length = 8
				}
				w.SGEs = append(w.SGEs, e)
			}
		}
	}
	if r.AH != 0 {
		w.QKey, w.DestQPN = r.QKey, r.DestQPN
	}
	return w
}

// sendDevice is the other side of a send queue: it knows the ring, the doorbell
// record and the register, and walks requests from where it stands to where the
// record says.
type sendDevice struct {
	q      *testQueue
	at     uint32 // block
	behind bool   // the request before was a UMR
	half   int    // of the register that is rung next
}

// take reads what was posted and compares it. alone says that one doorbell rang for
// a single request.
func (d *sendDevice) take(want []cq.SendRequest) error {
	q := d.q
	first := d.at
	var last uint32
	for i := range want {
		r, err := readWQE(q.mem, d.at, q.size.Transport == UD)
		if err != nil {
			return fmt.Errorf("request %d, %v, at block %#x: %v", i, want[i].Op, d.at, err)
		}
		w := expect(&want[i], d.behind)
		if q.size.Transport == UD {
			v := q.addresses.get(want[i].AH)
			w.Address = fmt.Sprintf("%08x%016x%016x%016x%016x", v[0], v[1], v[2], v[3], v[4])
		}
		w.Index, w.QPN, w.Segments, w.Blocks = uint16(d.at), 0x4a5, r.Segments, r.Blocks
		if !reflect.DeepEqual(r, w) {
			return fmt.Errorf("request %d, at block %#x, is\n%+v, want\n%+v", i, d.at, r, w)
		}
		last = d.at
		d.at += uint32(r.Blocks)
		d.behind = w.Op == cq.OpLocalInvalidate || w.Op == cq.OpBindMW
	}
	if got := binary.BigEndian.Uint64(q.record); len(want) > 0 && got != uint64(d.at&0xffff) {
		return fmt.Errorf("the record is %#x, the device at block %#x", got, d.at)
	}
	return d.rung(first, last, len(want))
}

// rung checks the doorbell of so many requests.
func (d *sendDevice) rung(first, last uint32, n int) error {
	q := d.q
	var want []byte
	if n > 0 {
		wqe := append(bytes.Clone(q.mem[last<<6&q.mask:]), q.mem[:last<<6&q.mask]...)
		want = wqe[:8]
		blue := q.bell.mode == doorbellBlueFlame
		if size := int(wqe[7]) * 16; blue && n == 1 && size > 16 && size <= 256 {
			want = wqe[:(d.at-first)*64]
		}
		if !bytes.Equal(q.register[d.half:][:len(want)], want) {
			return fmt.Errorf("doorbell of %d requests\n%s, want\n%s", n, dump(q.register[d.half:][:len(want)]), dump(want))
		}
		fill(q.register[d.half:][:len(want)])
		if blue {
			d.half ^= 256
		}
	}
	if len(bytes.TrimLeft(q.register, "\xdb")) > 0 {
		return fmt.Errorf("%d requests also wrote elsewhere in the register", n)
	}
	return nil
}

// randomRequest makes a request that a queue of 4 elements or 188 bytes inline
// takes.
func randomRequest(rng *rand.Rand, tr Transport, addresses uint32) cq.SendRequest {
	ops := []cq.Opcode{cq.OpSend, cq.OpSendImm, cq.OpSendInvalidate, cq.OpWrite, cq.OpWriteImm, cq.OpRead, cq.OpCompareSwap, cq.OpFetchAdd, cq.OpLocalInvalidate, cq.OpBindMW}
	if tr == UD {
		ops = ops[:2]
	}
	r := cq.SendRequest{
		Op: ops[rng.IntN(len(ops))], Flags: cq.SendFlags(rng.IntN(8)), Imm: rng.Uint32(), RemoteAddr: rng.Uint64(), RKey: rng.Uint32(), InvalidateRKey: rng.Uint32(),
		Operand: rng.Uint64(), Compare: rng.Uint64(), WindowRKey: rng.Uint32(), WindowLKey: rng.Uint32(), WindowAccess: rng.Uint32(), WindowBytes: uint64(rng.Uint32N(1<<31+1)) * uint64(rng.IntN(2)),
	}
	if tr == UD {
		r.AH, r.DestQPN, r.QKey = 1+rng.Uint32N(addresses+1), rng.Uint32N(1<<24), rng.Uint32()
	}
	n := rng.IntN(5)
	switch r.Op {
	case cq.OpCompareSwap, cq.OpFetchAdd:
		n = min(n, 1)
	case cq.OpLocalInvalidate, cq.OpBindMW, cq.OpRead:
	default:
		if rng.IntN(2) == 0 {
			r.Flags |= cq.Inline
			r.Data = make([]byte, rng.IntN(189))
			for i := range r.Data {
				r.Data[i] = byte(rng.Uint32())
			}
		}
	}
	for range n {
		e := cq.SGE{Addr: rng.Uint64(), Length: rng.Uint32N(1<<31) * uint32(rng.IntN(4)) >> 1, LKey: rng.Uint32()}
		e.Length &^= 1 << 31
		r.SGEs = append(r.SGEs, e)
	}
	return r
}

// sendRun stages, takes back, posts and ends requests at random and lets a device
// of its own read them.
type sendRun struct {
	q      *testQueue
	d      sendDevice
	rng    *rand.Rand
	staged []cq.SendRequest
	posted []uint32 // places of outstanding requests
	placed []uint32 // places of staged ones
}

func newSendRun(tb testing.TB, tr Transport, requests, start uint32, bell func([]byte) (*Doorbell, error), rng *rand.Rand) *sendRun {
	s := &sendRun{q: newTestQueue(tb, tr, requests, bell), rng: rng}
	if tr == UD {
		addTestAddresses(tb, s.q)
	}
	s.q.at(start)
	fill(s.q.mem)
	fill(s.q.register)
	s.d = sendDevice{q: s.q, at: start}
	return s
}

// step does one thing, that kind chooses.
func (s *sendRun) step(kind byte) error {
	q := s.q
	switch kind % 8 {
	default:
		if q.requests.Room() == 0 {
			return nil
		}
		r := randomRequest(s.rng, q.size.Transport, uint32(len(testAddresses)))
		s.placed = append(s.placed, q.next)
		q.stage(r)
		s.staged = append(s.staged, r)
	case 5:
		n := min(int(kind/8)%4, len(s.staged))
		q.requests.Rollback(uint32(n))
		q.Rollback(uint32(n))
		s.staged, s.placed = s.staged[:len(s.staged)-n], s.placed[:len(s.placed)-n]
	case 6:
		q.flush()
		if err := s.d.take(s.staged); err != nil {
			return err
		}
		s.posted = append(s.posted, s.placed...)
		s.staged, s.placed = s.staged[:0], s.placed[:0]
	case 7:
		// The device ends one, and with it all before it.
		if len(s.posted) == 0 {
			return nil
		}
		n := int(kind/8) % len(s.posted)
		var w cq.WC
		for i, at := range s.posted[:n+1] {
			seq, ok := q.requests.Find(uint16(at))
			if !ok {
				return fmt.Errorf("no request at block %#x", at)
			}
			if _, ok := q.requests.Complete(seq, cq.StatusSuccess, &w); !ok {
				return fmt.Errorf("request %d at block %#x ended twice", i, at)
			}
		}
		s.posted = s.posted[n+1:]
	}
	if q.Empty() != (len(s.posted) == 0) {
		return fmt.Errorf("empty is %v with %d outstanding", q.Empty(), len(s.posted))
	}
	return nil
}

// TestSendLaps drives rings of several sizes over many laps, and over the wrap of
// the 16 bits that the device counts in and of the 32 that the queue does.
func TestSendLaps(t *testing.T) {
	for _, tr := range []Transport{RC, UD} {
		for _, requests := range []uint32{1, 3, 20} {
			for name, bell := range map[string]func([]byte) (*Doorbell, error){"uncached": UncachedDoorbell, "combining": CombiningDoorbell, "BlueFlame": BlueFlame} {
				for _, start := range []uint32{0, 0xfff0, 0xffff_ff00} {
					s := newSendRun(t, tr, requests, start, bell, rand.New(rand.NewPCG(uint64(requests), uint64(start))))
					blocks := 3 * s.q.size.Blocks
					for steps := 0; s.q.published-start < max(blocks, 400); steps++ {
						if err := s.step(byte(s.rng.Uint32())); err != nil {
							t.Fatalf("%v, %d requests, %s, from block %#x, step %d: %v", tr, requests, name, start, steps, err)
						}
						if steps > 100_000 {
							t.Fatalf("%v, %d requests, %s, from block %#x: it does not come to an end", tr, requests, name, start)
						}
					}
				}
			}
		}
	}
}

// FuzzWQE lets a program of stages, take-backs, posts and ends loose on a queue and
// reads with a reader of its own what the device would.
func FuzzWQE(f *testing.F) {
	f.Add(uint32(0), uint64(1), byte(0), []byte{0, 6, 7})
	f.Add(uint32(0xfffe), uint64(2), byte(1), []byte{0, 1, 2, 3, 6, 4, 0, 13, 6, 23, 0, 6})
	f.Add(uint32(0xffff_fff0), uint64(3), byte(2), bytes.Repeat([]byte{0, 6, 1, 2, 6, 255, 3, 4, 5, 13, 6, 7}, 8))
	f.Add(uint32(77), uint64(4), byte(7), bytes.Repeat([]byte{8, 9, 6, 7, 10, 11, 12, 21, 14, 127}, 10))
	f.Fuzz(func(t *testing.T, start uint32, seed uint64, kind byte, program []byte) {
		bells := []func([]byte) (*Doorbell, error){UncachedDoorbell, CombiningDoorbell, BlueFlame}
		tr := RC
		if kind&4 != 0 {
			tr = UD
		}
		s := newSendRun(t, tr, 1+uint32(kind>>4), start, bells[int(kind&3)%len(bells)], rand.New(rand.NewPCG(seed, 0)))
		for i, k := range program[:min(len(program), 512)] {
			if err := s.step(k); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
	})
}
