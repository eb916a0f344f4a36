package mlx5

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// What was put is read back, whatever it is and wherever it stands.
func TestPosted(t *testing.T) {
	queues := map[Transport]*testQueue{}
	for _, tr := range []Transport{RC, UD} {
		queues[tr] = newTestQueue(t, tr, 2, UncachedDoorbell)
		if tr == UD {
			addTestAddresses(t, queues[tr])
		}
	}
	for _, c := range sendGolden {
		q := queues[c.tr]
		for i := range q.size.Blocks + 2 {
			begin := 0x10000 - q.size.Blocks + i
			q.at(begin)
			fill(q.mem)
			q.stage(c.req)
			q.flush()
			got, ok := q.Posted(uint16(begin))
			r, op := c.req, sendOps[c.req.Op]
			want := cq.SendRequest{Op: r.Op, Flags: r.Flags & (cq.Unsignaled | cq.Inline), DestQPN: r.DestQPN, QKey: r.QKey}
			for _, e := range r.SGEs {
				if e.Length != 0 && op.form != formUMR {
					if op.form == formAtomic {
						e.Length = 8
					}
					want.SGEs = append(want.SGEs, e)
					want.Length += e.Length
				}
			}
			if r.Flags&cq.Inline != 0 {
				if want.Length = uint32(len(r.Data)); want.Length == 0 {
					want.Flags &^= cq.Inline // nothing of it is there
				}
			}
			if op.form == formRemote || op.form == formAtomic {
				want.RemoteAddr, want.RKey = r.RemoteAddr, r.RKey
			}
			if op.invalidate != 0 || r.Op == cq.OpLocalInvalidate {
				want.InvalidateRKey = r.InvalidateRKey
			}
			if op.form == formUMR {
				want.Flags &^= cq.Inline
				if want.WindowRKey = want.InvalidateRKey; r.Op == cq.OpBindMW && r.WindowBytes == 0 {
					want.Op, want.InvalidateRKey, want.WindowRKey = cq.OpLocalInvalidate, r.WindowRKey, r.WindowRKey // to nothing
				} else if r.Op == cq.OpBindMW {
					want.WindowRKey, want.WindowBytes, want.WindowLKey, want.RemoteAddr = r.WindowRKey, r.WindowBytes&0xffffffff, r.WindowLKey, r.RemoteAddr
				}
			}
			if !ok || !reflect.DeepEqual(got, want) {
				t.Errorf("%s at %#x: %v\n%+v, want\n%+v", c.name, begin, ok, got, want)
			}
			if r, ok := q.Posted(uint16(begin) + 1); ok {
				t.Errorf("%s at %#x: and after it %+v", c.name, begin, r)
			}
			q.end()
		}
	}
}

// Whatever stands in the ring, reading it back stays in it and ends.
func TestPostedHostile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, tr := range []Transport{RC, UD} {
		q := newTestQueue(t, tr, 4, UncachedDoorbell)
		found := 0
		for range 20000 {
			for i := range q.mem {
				q.mem[i] = byte(rng.Uint32())
			}
			pos := uint16(rng.Uint32())
			at := int(pos) << 6 & int(q.mask)
			q.mem[at+1], q.mem[at+2] = byte(pos>>8), byte(pos)
			q.mem[at+4], q.mem[at+5], q.mem[at+6] = 0, 0x04, 0xa5
			q.mem[at+3] = []byte{0, 1, 8, 9, 0xa, 0xb, 0x10, 0x11, 0x12, 0x25, 0x33}[rng.IntN(11)]
			if r, ok := q.Posted(pos); ok {
				found++
				if len(r.SGEs) > maxSegments {
					t.Fatalf("%+v", r)
				}
			}
		}
		if found < 10000 {
			t.Errorf("%d requests were found", found)
		}
	}
}

// Receives are read back from queues of both kinds.
func TestPostedReceives(t *testing.T) {
	q := newTestReceiver(t, 4, 4)
	s := newTestShared(t, testLimits, 4, 4)
	for i, g := range recvGolden {
		var want []cq.SGE
		for _, e := range g.sges {
			if e.Length != 0 {
				want = append(want, e)
			}
		}
		pos := uint16(q.next)
		seq := q.stage(g.sges)
		q.flush()
		if got := q.Posted(pos); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", g.name, got, want)
		}
		var w cq.WC
		q.requests.Complete(seq, cq.StatusSuccess, &w)
		if i >= 4 {
			continue
		}
		seq = s.stage(g.sges)
		s.flush()
		at, ok := s.requests.Where(seq)
		if got := s.Posted(at); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s, shared: %v, %+v, want %+v", g.name, ok, got, want)
		}
	}
	if at, ok := s.requests.Where(1 << 25); ok {
		t.Errorf("at %d stands what was not posted", at)
	}
}
