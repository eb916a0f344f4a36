package cq

import (
	"math/rand/v2"
	"testing"
)

// Oldest and EndOldest are only a short cut: with and without them, two tables that live
// through the same say the same.
func TestEndOldestIsComplete(t *testing.T) {
	for _, side := range []Side{SendSide, RecvSide} {
		for _, depth := range []uint32{1, 2, 7, 64} {
			var st State
			short, long := NewRequests(depth, side, 17, &st), NewRequests(depth, side, 17, &st)
			near2to32(short, 100)
			near2to32(long, 100)
			rng := rand.New(rand.NewPCG(uint64(side), uint64(depth)))
			taken := 0
			for step := range 20000 {
				for n := rng.IntN(4); n > 0 && long.Room() > 0; n-- {
					id, quiet := rng.Uint64(), side == SendSide && rng.IntN(3) == 0
					op, bytes := Opcode(rng.IntN(4)), rng.Uint32()
					a, as := short.Stage(id, op, bytes, quiet)
					b, bs := long.Stage(id, op, bytes, quiet)
					if a != b || as != bs {
						t.Fatalf("staged as %d %v and %d %v", a, as, b, bs)
					}
				}
				if rng.IntN(8) > 0 {
					short.Commit()
					long.Commit()
				}
				for n := rng.IntN(6); n > 0; n-- {
					// Mostly the oldest, as on an honest device; now and
					// then out of order, failed, or not posted at all.
					seq := long.head
					if rng.IntN(3) == 0 {
						seq += uint32(rng.IntN(int(depth) + 2))
					}
					status := StatusSuccess
					if rng.IntN(5) == 0 {
						status = StatusFlushed
					}
					dirt := WC{ID: 1, Timestamp: 2, SrcQPN: 3, VendorErr: 4, data: 5, SLID: 6, SL: 7, Flags: 8}
					a, b := dirt, dirt
					shown, ended := long.Complete(seq, status, &b)
					if status == StatusSuccess && short.Oldest(seq) {
						taken++
						if show := short.EndOldest(seq, &a); !ended || show != shown {
							t.Fatalf("step %d: the short cut ended %d with %v, Complete says %v %v", step, seq, show, shown, ended)
						}
					} else if s, e := short.Complete(seq, status, &a); s != shown || e != ended {
						t.Fatalf("step %d: request %d ended as %v %v, then as %v %v", step, seq, s, e, shown, ended)
					}
					if a != b {
						t.Fatalf("step %d: request %d\n%+v\n%+v", step, seq, a, b)
					}
				}
				if rng.IntN(500) == 0 {
					var a, b [3]WC
					n, done := short.Abandon(a[:], short.tail, false)
					if m, last := long.Abandon(b[:], long.tail, false); n != m || done != last || a != b {
						t.Fatalf("step %d: abandoned %d %v and %d %v", step, n, done, m, last)
					}
				}
				if short.Room() != long.Room() || short.Outstanding() != long.Outstanding() {
					t.Fatalf("step %d: room %d and %d, outstanding %d and %d", step,
						short.Room(), long.Room(), short.Outstanding(), long.Outstanding())
				}
				free := uint32(0)
				for i := short.head; i != short.tail; i++ {
					if short.slot(i).state() == slotFree {
						free++
					}
				}
				if free != short.gaps {
					t.Fatalf("step %d: %d gaps counted, there are %d", step, short.gaps, free)
				}
			}
			if taken < 1000 {
				t.Errorf("%v depth %d: the short cut was taken %d times", side, depth, taken)
			}
		}
	}
}
