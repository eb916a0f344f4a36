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

// Skip does what Complete does to the quiet requests before one, and no more.
func TestSkip(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		var st State
		depth := 1 + rng.Uint32N(8)
		skips, whole := NewRequests(depth, SendSide, 1, &st), NewRequests(depth, SendSide, 1, &st)
		near2to32(skips, 3)
		near2to32(whole, 3)
		pos := uint16(rng.Uint32()) | 0xfff8
		type staged struct {
			pos   uint16
			quiet bool
		}
		var all []staged
		for i := range 1 + rng.Uint32N(depth) {
			quiet := rng.IntN(3) > 0
			for _, r := range []*Requests{skips, whole} {
				seq, _ := r.Stage(uint64(i), OpSend, i, quiet)
				r.Place(seq, pos)
			}
			all = append(all, staged{pos, quiet})
			pos += 1 + uint16(rng.IntN(3))
		}
		committed := rng.IntN(5) > 0
		if committed {
			skips.Commit()
			whole.Commit()
		}
		at := rng.IntN(len(all))
		want := committed
		for _, s := range all[:at] {
			want = want && s.quiet
		}
		if committed && rng.IntN(4) == 0 && len(all) > 1 { // one has ended, not the oldest
			other := 1 + rng.IntN(len(all)-1)
			for _, r := range []*Requests{skips, whole} {
				seq, _ := r.Find(all[other].pos)
				r.Complete(seq, StatusFlushed, new(WC))
			}
			want = want && skips.gaps == 0 && other != at
			if skips.gaps == 0 { // it took what was before it along
				continue
			}
		}
		if got := skips.Skip(all[at].pos); got != want {
			t.Fatalf("%+v, skipped to %d: %v, want %v", all, at, got, want)
		}
		if skips.Skip(all[0].pos - 1) {
			t.Fatal("skipped to where nothing stands")
		}
		if want && (skips.Dry(skips.Head()) || skips.Front(skips.Head()).Position() != all[at].pos) {
			t.Fatalf("%+v: the one in front is not that of %d", all, at)
		}
		if !committed {
			continue
		}
		// The rest of the way is the same.
		for _, s := range all[at:] {
			var a, b WC
			seq, aok := skips.Find(s.pos)
			ashow, aended := skips.Complete(seq, StatusSuccess, &a)
			seq, bok := whole.Find(s.pos)
			bshow, bended := whole.Complete(seq, StatusSuccess, &b)
			if aok != bok || ashow != bshow || aended != bended || aended && a != b || skips.Room() != whole.Room() {
				t.Fatalf("%+v: %+v %v %v, want %+v %v %v", all, a, ashow, aended, b, bshow, bended)
			}
		}
	}
}
