package cq

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// Depths change at random beside requests that are staged, posted and ended,
// against a map. A number that was given out goes to its own request, whatever the
// depth was then and is now.
func TestSharedResizeModel(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 11))
		depth := 1 + rng.Uint32N(100)
		s := NewSharedRequests(depth)
		var state State
		s.Join(&Endpoint{QPN: 30}, &state, 0)
		posted := map[uint32]uint64{} // id by number
		var ended []uint32
		var staged []uint32
		id := uint64(0)
		for range 300 {
			used := len(posted) + len(staged)
			if s.Depth() != int(depth) || s.Room() != int(depth)-used || s.Staged() != uint32(len(staged)) {
				t.Fatalf("seed %d: depth %d, room %d, staged %d; want %d, %d, %d", seed, s.Depth(), s.Room(), s.Staged(), depth, int(depth)-used, len(staged))
			}
			switch rng.IntN(6) {
			case 0, 1:
				for n := rng.IntN(10); n > 0 && s.Room() > 0; n-- {
					id++
					seq, _ := s.Stage(id, OpRecv, 8, false)
					staged = append(staged, seq)
				}
			case 2:
				s.Commit()
				for i, seq := range staged {
					if _, ok := posted[seq]; ok {
						t.Fatalf("seed %d: number %#x twice", seed, seq)
					}
					posted[seq] = id - uint64(len(staged)-1-i)
				}
				staged = staged[:0]
			case 3:
				to := 1 + rng.Uint32N(200)
				if ok := s.Resize(to); ok != (int(to) >= used) {
					t.Fatalf("seed %d: from %d to %d with %d in use: %v", seed, depth, to, used, ok)
				} else if ok {
					depth = to
				}
			default:
				for seq, want := range posted {
					var w WC
					if ep, ok := s.Complete(30, &state, 0, seq, StatusSuccess, &w); !ok || ep == nil || w.ID != want {
						t.Fatalf("seed %d: request %d, number %#x, ended as %+v, %v", seed, want, seq, w, ok)
					}
					delete(posted, seq)
					ended = append(ended, seq)
					break
				}
				for _, seq := range ended { // and none of those that ended before
					if _, ok := posted[seq]; ok {
						continue
					}
					if _, ok := s.Complete(30, &state, 0, seq, StatusSuccess, new(WC)); ok {
						t.Fatalf("seed %d: number %#x ended again", seed, seq)
					}
				}
			}
		}
	}
}

// The depth goes up and down beside pollers: each request ends once, with its own
// id, and posting does not allocate between two changes.
func TestSharedResizeBesidePollers(t *testing.T) {
	const pollers, total = 3, 30000
	s := NewSharedRequests(1)
	var states [pollers]State
	var feeds [pollers]chan uint32
	var ids [pollers][]uint64
	var done sync.WaitGroup
	for i := range pollers {
		s.Join(&Endpoint{QPN: uint32(i)}, &states[i], 0)
		feeds[i] = make(chan uint32, 256)
		done.Go(func() {
			var w WC
			for seq := range feeds[i] {
				if _, ok := s.Complete(uint32(i), &states[i], 0, seq, StatusSuccess, &w); !ok {
					t.Errorf("number %#x is not posted", seq)
				}
				ids[i] = append(ids[i], w.ID)
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var seqs []uint32
	for id := uint64(1); id <= total; {
		if to := 1 + rng.Uint32N(300); s.Resize(to) && s.Depth() != int(to) {
			t.Fatalf("depth %d, want %d", s.Depth(), to)
		}
		seqs = seqs[:0]
		for n := min(s.Room(), 1+rng.IntN(50)); n > 0 && id <= total; n-- {
			seq, _ := s.Stage(id, OpRecv, 8, false)
			seqs = append(seqs, seq)
			id++
		}
		s.Commit()
		for _, seq := range seqs {
			feeds[rng.IntN(pollers)] <- seq
		}
	}
	for i := range feeds {
		close(feeds[i])
	}
	done.Wait()
	ends := map[uint64]int{}
	for i := range ids {
		for _, id := range ids[i] {
			ends[id]++
		}
	}
	for id := uint64(1); id <= total; id++ {
		if ends[id] != 1 {
			t.Fatalf("request %d ended %d times", id, ends[id])
		}
	}
	if s.Room() != s.Depth() {
		t.Errorf("room %d of %d", s.Room(), s.Depth())
	}
	fresh := NewSharedRequests(1)
	fresh.Resize(200)
	if cap(fresh.free) < 200 || cap(fresh.staged) < 200 {
		t.Errorf("room for %d free and %d staged slots: posting would allocate", cap(fresh.free), cap(fresh.staged))
	}
	s.Resize(200)
	if n := testing.AllocsPerRun(100, func() {
		for s.Room() > 0 {
			seq, _ := s.Stage(1, OpRecv, 8, false)
			seqs = append(seqs[:0], seq)
		}
		s.Rollback(s.Staged())
	}); n != 0 {
		t.Errorf("staging allocates %v times", n)
	}
}

// The greatest depth there is: every slot has a number of its own.
func TestSharedMaxDepth(t *testing.T) {
	s := NewSharedRequests(MaxSharedDepth - 1)
	if !s.Resize(MaxSharedDepth) {
		t.Fatal("no resize")
	}
	var state State
	s.Join(&Endpoint{QPN: 1}, &state, 0)
	seen := make([]bool, MaxSharedDepth)
	var last uint32
	for id := range uint64(MaxSharedDepth) {
		seq, _ := s.Stage(id, OpRecv, 8, false)
		if seq >= MaxSharedDepth || seen[seq] {
			t.Fatalf("number %#x", seq)
		}
		seen[seq], last = true, seq
	}
	s.Commit()
	var w WC
	if _, ok := s.Complete(1, &state, 0, last, StatusSuccess, &w); !ok || w.ID != MaxSharedDepth-1 || s.Room() != 1 {
		t.Fatalf("ended as %+v, %v; room %d", w, ok, s.Room())
	}
	if seq, _ := s.Stage(1, OpRecv, 8, false); seq != last+MaxSharedDepth {
		t.Errorf("number %#x after %#x", seq, last)
	}
}
