package cq

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// A shared queue with a random poster and pollers, against a map.
func TestSharedRequestsModel(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		depth := 1 + rng.Uint32N(9)
		s := NewSharedRequests(depth)
		if s.Depth() != int(depth) {
			t.Fatalf("depth %d, want %d", s.Depth(), depth)
		}
		var one, two State
		s.Join(&Endpoint{QPN: 30}, &one, 0)
		s.Join(&Endpoint{QPN: 20}, &two, 0)
		posted := map[uint32]uint64{} // id by number
		var staged []uint32
		id := uint64(0)
		for range 500 {
			if want := int(depth) - len(posted) - len(staged); s.Room() != want || s.Staged() != uint32(len(staged)) {
				t.Fatalf("room %d, staged %d, want %d, %d", s.Room(), s.Staged(), want, len(staged))
			}
			switch rng.IntN(6) {
			case 0, 1:
				if s.Room() > 0 {
					id++
					seq, signal := s.Stage(id, OpRecv, uint32(id), false)
					if !signal {
						t.Fatal("a receive that does not complete")
					}
					if _, ok := s.Complete(30, &one, 0, seq, StatusSuccess, new(WC)); ok {
						t.Fatal("a receive ended that was not committed")
					}
					staged = append(staged, seq)
				}
			case 2:
				s.Commit()
				for i, seq := range staged {
					if _, ok := posted[seq]; ok {
						t.Fatalf("number %#x twice", seq)
					}
					posted[seq] = id - uint64(len(staged)-1-i)
				}
				staged = staged[:0]
			case 3:
				n := rng.IntN(len(staged) + 1)
				s.Rollback(uint32(n))
				id -= uint64(n)
				staged = staged[:len(staged)-n]
			default:
				for seq, want := range posted { // in any order
					qpn, state := uint32(30), &one
					if rng.IntN(2) == 0 {
						qpn, state = 20, &two
					}
					for _, wrong := range []struct {
						qpn   uint32
						state *State
						seq   uint32
					}{{50 - qpn, state, seq}, {25, state, seq}, {qpn, new(State), seq}, {qpn, state, seq | postedBit}, {qpn, state, seq + 1<<20}} {
						if _, ok := s.Complete(wrong.qpn, wrong.state, 0, wrong.seq, StatusSuccess, new(WC)); ok {
							t.Fatalf("%+v ended", wrong)
						}
					}
					var w WC
					ep, ok := s.Complete(qpn, state, 0, seq, StatusSuccess, &w)
					if !ok || ep.QPN != qpn || w != (WC{ID: want, QPN: qpn, Bytes: uint32(want), Opcode: OpRecv, Side: RecvSide}) {
						t.Fatalf("request %d ended as %+v on %+v, %v", want, w, ep, ok)
					}
					if _, ok := s.Complete(qpn, state, 0, seq, StatusSuccess, &w); ok {
						t.Fatalf("request %d ended twice", want)
					}
					delete(posted, seq)
					break
				}
			}
		}
	}
}

// A number that is used again goes, on each CQ, to whoever had it at that time.
func TestSharedRequestsMembers(t *testing.T) {
	var here, there State
	s := NewSharedRequests(64)
	end := func(qpn uint32, state *State, at uint32) (*Endpoint, bool) {
		t.Helper()
		if s.Room() == 0 {
			t.Fatal("no room")
		}
		seq, _ := s.Stage(1, OpRecv, 1, false)
		s.Commit()
		ep, ok := s.Complete(qpn, state, at, seq, StatusFlushed, new(WC))
		if !ok {
			s.Complete(99, &here, 0, seq, StatusFlushed, new(WC))
		}
		return ep, ok
	}
	s.Join(&Endpoint{QPN: 99}, &here, 0)
	first, second, third := &Endpoint{QPN: 17}, &Endpoint{QPN: 17}, &Endpoint{QPN: 17}
	const start = 1<<32 - 5 // positions wrap
	a := s.Join(first, &here, 1<<31)
	if ep, ok := end(17, &here, start); ep != first || !ok {
		t.Errorf("the only one there is: %v, %v", ep, ok)
	}
	b := s.Join(second, &here, 2) // start + 7
	a.Close()
	c := s.Join(third, &there, 0)
	for _, test := range []struct {
		qpn   uint32
		state *State
		at    uint32
		ep    *Endpoint
		ok    bool
	}{
		{17, &here, start, nil, true}, {17, &here, 1, nil, true}, {17, &here, 2, second, true}, {17, &here, 300, second, true},
		{17, &there, 7, third, true}, {18, &here, 2, nil, false}, {16, &here, 2, nil, false},
	} {
		if ep, ok := end(test.qpn, test.state, test.at); ep != test.ep || ok != test.ok {
			t.Errorf("QP %d, completion %#x: %p, %v, want %p, %v", test.qpn, test.at, ep, ok, test.ep, test.ok)
		}
	}
	s.Remove(a)
	if ep, ok := end(17, &here, start); ep != second || !ok {
		t.Errorf("the one that is left: %v, %v", ep, ok)
	}
	s.Remove(b)
	s.Remove(c)
	if _, ok := end(17, &here, 5); ok {
		t.Error("a completion of nobody")
	}
	if s.Room() != 64 {
		t.Errorf("room %d, want 64", s.Room())
	}
}

// Several pollers end the requests of one poster, some of which a broken device
// reports to two of them: each ends once.
func TestSharedRequestsConcurrently(t *testing.T) {
	const depth, pollers, total = 16, 4, 40000
	s := NewSharedRequests(depth)
	var states [pollers]State
	var feeds [pollers]chan uint32
	var ids [pollers][]uint64
	var done sync.WaitGroup
	for i := range pollers {
		s.Join(&Endpoint{QPN: uint32(i)}, &states[i], 0)
		feeds[i] = make(chan uint32, depth)
		done.Go(func() {
			var w WC
			for seq := range feeds[i] {
				if ep, ok := s.Complete(uint32(i), &states[i], 0, seq, StatusSuccess, &w); ok {
					if ep.QPN != uint32(i) || w.ID != uint64(w.Bytes) {
						t.Errorf("%+v", w)
					}
					ids[i] = append(ids[i], w.ID)
				}
			}
		})
	}
	for id := uint64(1); id <= total; {
		n := min(s.Room(), total-int(id)+1)
		if n == 0 {
			runtime.Gosched() // there may be one processor only
		}
		var seqs []uint32
		for range n {
			seq, _ := s.Stage(id, OpRecv, uint32(id), false)
			seqs = append(seqs, seq)
			id++
		}
		s.Commit()
		for _, seq := range seqs {
			feeds[id%pollers] <- seq
			feeds[(id+uint64(seq))%pollers] <- seq
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
	if s.Room() != depth {
		t.Errorf("room %d, want %d", s.Room(), depth)
	}
}

// Two pollers end the same request at the same moment, as a broken device may
// have it: one of them does.
func TestSharedRequestsEndOnce(t *testing.T) {
	s := NewSharedRequests(1)
	var state State
	s.Join(&Endpoint{QPN: 1}, &state, 0)
	const rounds = 200000
	var round, ended [2]atomic.Uint32
	var seq atomic.Uint32
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() {
			var w WC
			for r := uint32(1); r <= rounds; r++ {
				for n := 0; round[0].Load() < r; n++ {
					if n > 100 {
						runtime.Gosched() // there may be one processor only
					}
				}
				if _, ok := s.Complete(1, &state, 0, seq.Load(), StatusSuccess, &w); ok {
					ended[i].Add(1)
				}
				round[1].Add(1)
			}
		})
	}
	for r := uint32(1); r <= rounds; r++ {
		if s.Room() != 1 {
			t.Fatalf("room %d", s.Room())
		}
		n, _ := s.Stage(uint64(r), OpRecv, 1, false)
		s.Commit()
		seq.Store(n)
		round[0].Store(r)
		for n := 0; round[1].Load() < 2*r; n++ {
			if n > 100 {
				runtime.Gosched()
			}
		}
		if got := ended[0].Load() + ended[1].Load(); got != r {
			t.Fatalf("%d ends of %d requests", got, r)
		}
	}
	both.Wait()
}
