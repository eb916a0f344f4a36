package cq

import (
	"math/rand/v2"
	"testing"
)

// Positions lead to requests, across wraps of the 16 bits and of the numbers, and
// to none that is not outstanding.
func TestFind(t *testing.T) {
	for _, depth := range []uint32{1, 2, 7, 64} {
		for _, most := range []uint32{1, 4, 17, 1 << 10} { // positions that a request takes
			var st State
			r := NewRequests(depth, SendSide, 17, &st)
			near2to32(r, 100)
			rng := rand.New(rand.NewPCG(uint64(depth), uint64(most)))
			type request struct {
				seq uint32
				pos uint16
			}
			var outstanding []request
			// Small steps wrap once, large ones three times.
			next := uint32(1<<16 - 200)
			laps := 0
			for step := 0; laps < 1 || most >= 17 && laps < 3 || step < 500; step++ {
				for n := rng.IntN(4); n > 0 && r.Room() > 0; n-- {
					seq, _ := r.Stage(1, OpSend, 0, false)
					r.Place(seq, uint16(next))
					outstanding = append(outstanding, request{seq, uint16(next)})
					before := uint16(next)
					next += 1 + rng.Uint32N(most)
					if uint16(next) < before {
						laps++
					}
				}
				if n := uint32(rng.IntN(2)) * r.Staged(); n > 0 {
					r.Rollback(n)
					outstanding = outstanding[:len(outstanding)-int(n)]
				}
				r.Commit()
				byPos := map[uint16]uint32{}
				for _, q := range outstanding {
					byPos[q.pos] = q.seq
				}
				for i, q := range outstanding {
					if seq, ok := r.Find(q.pos); !ok || seq != q.seq {
						t.Fatalf("position %d found %d, %v; want %d", q.pos, seq, ok, q.seq)
					}
					if ok := !r.Dry(r.Head()) || r.Fill(r.Head()); ok != (r.gaps == 0) {
						t.Fatalf("ready %v with %d outstanding, %d gaps", ok, len(outstanding), r.gaps)
					}
					if got, want := r.Key()^r.Front(r.Head()).Expected(), uint64(17)<<32|uint64(q.pos)<<16; i == 0 && (got^want)&0xffffff_ffff00ff != 0 {
						t.Fatalf("%#x in front, want %#x", got, want)
					}
				}
				for range 4 {
					pos := uint16(rng.Uint32())
					if _, there := byPos[pos]; there {
						continue
					}
					if seq, ok := r.Find(pos); ok {
						t.Fatalf("position %d, where nothing stands, found %d", pos, seq)
					}
				}
				var w WC
				for n := rng.IntN(4); n > 0 && len(outstanding) > 0; n-- {
					i := 0
					if rng.IntN(5) == 0 {
						i = rng.IntN(len(outstanding))
					}
					if _, ok := r.Complete(outstanding[i].seq, StatusSuccess, &w); !ok {
						t.Fatalf("request %d did not end", outstanding[i].seq)
					}
					outstanding = append(outstanding[:i], outstanding[i+1:]...)
				}
			}
		}
	}
}

// What is only staged is not found, nor what is found has to be outstanding still.
func TestFindStaged(t *testing.T) {
	var st State
	r := NewRequests(4, RecvSide, 1, &st)
	for i := range uint16(3) {
		seq, _ := r.Stage(1, OpRecv, 0, false)
		r.Place(seq, 0xfffe+i)
		if _, ok := r.Find(0xfffe + i); ok {
			t.Errorf("position %#x found before it is committed", 0xfffe+i)
		}
	}
	r.Commit()
	var w WC
	r.Complete(1, StatusSuccess, &w)
	if seq, ok := r.Find(0xffff); !ok || seq != 1 {
		t.Errorf("found %d, %v", seq, ok)
	}
	if _, ok := r.Complete(1, StatusSuccess, &w); ok {
		t.Error("a request ended twice")
	}
	if seq, ok := r.Find(0); !ok || seq != 2 {
		t.Errorf("found %d, %v", seq, ok)
	}
	if _, ok := r.Find(1); ok {
		t.Error("a position past the last was found")
	}
}

func TestSharedPositions(t *testing.T) {
	s := NewSharedRequests(3)
	if _, ok := s.At(0); ok {
		t.Error("a position of a queue without any")
	}
	s.Positions(5)
	seq, _ := s.Stage(7, OpRecv, 9, false)
	s.Place(seq, 4)
	s.Commit()
	for _, pos := range []uint16{0, 3, 5, 0xffff} {
		if n, ok := s.At(pos); ok {
			t.Errorf("position %d: request %d", pos, n)
		}
	}
	n, ok := s.At(4)
	if n != seq || !ok {
		t.Errorf("request %d, %v at position 4, want %d", n, ok, seq)
	}
	var w WC
	if !s.End(17, n, StatusSuccess, &w) || w != (WC{ID: 7, QPN: 17, Bytes: 9, Opcode: OpRecv, Side: RecvSide}) {
		t.Errorf("ended as %+v", w)
	}
	if s.End(17, n, StatusSuccess, &w) {
		t.Error("ended twice")
	}
	if s.Room() != 3 {
		t.Errorf("room %d", s.Room())
	}
}
