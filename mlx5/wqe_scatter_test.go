package mlx5

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// stored is local memory of two registered places.
type stored struct {
	got map[uint64][]byte
}

func (s *stored) store(lkey uint32, addr uint64, part []byte) bool {
	if lkey != 0x1a1 && lkey != 0x1c3 {
		return false
	}
	s.got[addr] = append(s.got[addr], part...)
	return true
}

var scatterSGEs = []cq.SGE{{Addr: 0x1000, Length: 5, LKey: 0x1a1}, {Addr: 0x2000, Length: 30, LKey: 0x1c3}, {Addr: 0x3000, Length: 1 << 31, LKey: 0xbad}}

// TestScatter: data that came in a completion goes where its request wants it, at
// any place of the ring, and no further.
func TestScatter(t *testing.T) {
	data := make([]byte, 64)
	for i := range data {
		data[i] = byte(i + 1)
	}
	sq := newTestQueue(t, RC, 4, UncachedDoorbell)
	rq := newTestReceiver(t, 4, 4)
	srq := newTestShared(t, testLimits, 4, 4)
	type put func(i uint32, sges []cq.SGE) uint16
	request := func(r cq.SendRequest) put {
		return func(i uint32, sges []cq.SGE) uint16 {
			sq.at(0xfffe - sq.size.Blocks + i)
			r.SGEs, r.RemoteAddr, r.RKey = sges, 1, 2
			sq.Put(&r)
			return uint16(sq.last)
		}
	}
	for name, c := range map[string]struct {
		put     put
		scatter func(uint16, []byte, Store) cq.Status
		most    int
	}{
		"read":   {request(cq.SendRequest{Op: cq.OpRead}), sq.Scatter, 3},
		"atomic": {request(cq.SendRequest{Op: cq.OpFetchAdd}), sq.Scatter, 1},
		"receive": {func(i uint32, sges []cq.SGE) uint16 {
			rq.next = 0xfffe + i
			rq.Put(0, sges)
			return uint16(rq.next - 1)
		}, rq.Scatter, 3},
		"shared receive": {func(i uint32, sges []cq.SGE) uint16 {
			e := uint16(srq.head)
			srq.Put(uint64(i%4), sges)
			srq.Publish()
			return e
		}, srq.Scatter, 3},
	} {
		for i := range uint32(40) {
			fill(sq.mem)
			for _, step := range []struct {
				elements, bytes int
				want            cq.Status
			}{
				{0, 0, cq.StatusSuccess}, {0, 1, cq.StatusLocalLength}, {1, 5, cq.StatusSuccess}, {1, 8, cq.StatusLocalLength}, {2, 35, cq.StatusSuccess},
				{2, 36, cq.StatusLocalLength}, {2, 6, cq.StatusSuccess}, {3, 36, cq.StatusLocalProtection}, {3, 35, cq.StatusSuccess},
			} {
				if step.elements > c.most || name == "atomic" && step.bytes > 5 && step.want == cq.StatusLocalLength {
					continue // an atomic's element has 8 bytes
				}
				pos := c.put(i, scatterSGEs[:step.elements])
				s := stored{got: map[uint64][]byte{}}
				if got := c.scatter(pos, data[:step.bytes], s.store); got != step.want {
					t.Errorf("%s: %d bytes to %d elements: %v, want %v", name, step.bytes, step.elements, got, step.want)
				}
				want := data[:step.bytes]
				for _, e := range scatterSGEs[:min(step.elements, 2)] {
					n := min(int(e.Length), len(want))
					if !bytes.Equal(s.got[e.Addr], want[:n]) {
						t.Errorf("%s: %d bytes to %d elements: % x at %#x, want % x", name, step.bytes, step.elements, s.got[e.Addr], e.Addr, want[:n])
					}
					want = want[n:]
				}
				if step.want == cq.StatusSuccess && len(want) > 0 {
					t.Errorf("%s: %d bytes of %d lost", name, len(want), step.bytes)
				}
			}
			sq.flush()
			rq.flush()
			sq.end()
		}
	}
	for _, r := range []cq.SendRequest{{Op: cq.OpSend}, {Op: cq.OpWrite}, {Op: cq.OpLocalInvalidate}} {
		if got := sq.Scatter(request(r)(0, nil), data, nil); got != cq.StatusGeneral {
			t.Errorf("%v: %v", r.Op, got)
		}
	}
	clear(sq.mem)
	sq.mem[3] = opcodeRead // and a size of no segments
	if got := sq.Scatter(0, data, nil); got != cq.StatusGeneral {
		t.Errorf("a read of no segments: %v", got)
	}
}
