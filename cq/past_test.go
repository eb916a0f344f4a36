package cq

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
)

// Whatever was staged, taken back, posted and ended: what is recalled is what was
// posted, in order, and all of the latest ones are.
func TestRecall(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		depth := uint32(1 + rng.IntN(20))
		r := NewRequests(depth, Side(rng.IntN(2)), 17, new(State))
		places := r.mask + 1
		start := rng.Uint32()
		if rng.IntN(2) == 0 {
			start = -uint32(rng.IntN(50)) // the numbers wrap soon
		}
		r.head, r.seen, r.tail, r.staged = start, start, start, start
		posted := map[uint32]Past{}
		begun, id := start, uint64(0)
		over := start // how far slots were ever written
		for range 200 {
			switch rng.IntN(6) {
			case 0, 1:
				for n := rng.IntN(4); n > 0 && r.Room() > 0; n-- {
					id++
					quiet := rng.IntN(3) == 0
					seq, _ := r.Stage(id, Opcode(id%5), uint32(id*3), quiet)
					r.Place(seq, uint16(id))
					posted[seq] = Past{Seq: seq, ID: id, Op: Opcode(id % 5), Bytes: uint32(id * 3), Position: uint16(id)}
					if int32(r.staged-over) > 0 {
						over = r.staged
					}
				}
				if rng.IntN(3) == 0 {
					r.Rollback(r.Staged())
				} else {
					r.Commit()
				}
			case 2, 3:
				if n := r.Outstanding(); n > 0 {
					var w WC
					seq := r.head
					if r.side == SendSide {
						seq += uint32(rng.IntN(int(n)))
					}
					r.Complete(seq, Status(rng.IntN(2)*5), &w)
				}
			case 4:
				if r.Idle() && r.Staged() == 0 {
					begun = r.Tail()
				}
			}
			last := r.Tail() - 1 - uint32(rng.IntN(5))
			all := r.Recall(last, begun, 1+rng.IntN(17))
			for i, p := range all {
				want := posted[p.Seq]
				want.Quiet, want.Silent, want.Ended = p.Quiet, p.Silent, int32(p.Seq-r.head) < 0 || r.slot(p.Seq).state() == slotFree
				if p != want || p.Seq != last-uint32(len(all)-1-i) || int32(p.Seq-begun) < 0 || p.Ended && p.Seq-r.head < r.tail-r.head && r.slot(p.Seq).state() != slotFree {
					t.Fatalf("%+v, want %+v", p, want)
				}
			}
			// All that no slot was written over since, and one more, which could be
			// in the making.
			if in := int32(last-begun) >= 0 && int32(r.Tail()-last) > 0; !in && len(all) > 0 {
				t.Fatalf("request %d was never posted, or before %d: %+v", last, begun, all)
			} else if in && int32(over-last) < int32(places) && len(all) == 0 {
				t.Fatalf("request %d of %d is forgotten", last, r.Tail())
			}
			if p, ok := r.Latest(id, begun); ok && (p.ID != id || !p.Ended) {
				t.Fatalf("request %d: %+v", id, p)
			}
		}
	}
}

// Recalling is no race with the poster, and what is recalled beside it is whole.
func TestRecallBesidePoster(t *testing.T) {
	r := NewRequests(16, SendSide, 17, new(State))
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for id := uint64(0); !stop.Load(); {
			if r.Room() == 0 {
				runtime.Gosched()
				continue
			}
			r.Stage(id, Opcode(id%7), uint32(id), false)
			r.Commit()
			id++
		}
	}()
	var w WC
	for i := 0; i < 20000; {
		seq := r.Head()
		if r.Tail() == seq || !r.EndOldest(seq, &w) {
			runtime.Gosched()
			continue
		}
		i++
		for _, p := range r.Recall(seq, 0, 17) {
			if p.ID != uint64(p.Seq) || p.Bytes != p.Seq || p.Op != Opcode(p.Seq%7) || !p.Ended {
				t.Fatalf("after %d: %+v", seq, p)
			}
		}
	}
	stop.Store(true)
	<-done
}
