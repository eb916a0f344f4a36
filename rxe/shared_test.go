package rxe

import (
	"sync"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// sharedScene is completion rings of a driver, and a shared receive queue for
// the QPs of both.
type sharedScene struct {
	eps    cq.Endpoints
	index  uint32
	srq    *cq.SharedRequests
	state  [2]cq.State
	driver [2]*completer
	q      [2]*CQ
	ep     [2]*cq.Endpoint
	member [2]*cq.Member
}

func newSharedScene(t testing.TB, depth uint32, slots int) *sharedScene {
	t.Helper()
	s := &sharedScene{srq: cq.NewSharedRequests(depth)}
	s.index, _ = s.eps.Reserve()
	s.eps.Set(s.index, &cq.Endpoint{QPN: cq.NoQPN, Shared: s.srq})
	for i := range s.q {
		mem := heapRing(slots, 64, uint32(slots-2)) // it wraps at once
		s.driver[i] = newCompleter(mem)
		var err error
		if s.q[i], err = NewCQ(mem, &s.eps, &s.state[i]); err != nil {
			t.Fatal(err)
		}
		s.ep[i] = &cq.Endpoint{QPN: 17 + uint32(i)}
		s.member[i] = s.srq.Join(s.ep[i], &s.state[i], s.q[i].Produced())
	}
	return s
}

// post posts a receive and returns its WRID.
func (s *sharedScene) post(id uint64, bytes uint32) uint64 {
	seq, _ := s.srq.Stage(id, cq.OpRecv, bytes, false)
	s.srq.Commit()
	return cq.MakeWRID(s.index, cq.RecvSide, seq)
}

func (s *sharedScene) complete(ring int, all ...cqe) {
	for _, c := range all {
		s.driver[ring].post(&c)
	}
	s.driver[ring].publish()
}

func TestSharedCompletions(t *testing.T) {
	s := newSharedScene(t, 8, 16)
	var told []uint32
	s.ep[0].Invalidated = func(key uint32) { told = append(told, key) }
	a, b, c, d, e := s.post(100, 50), s.post(101, 60), s.post(102, 70), s.post(103, 80), s.post(104, 90)
	s.complete(0,
		cqe{wrid: c, qpn: 17, opcode: 128, bytes: 7, flags: 3, ex: [4]byte{0, 0, 1, 2}, srcQPN: 99},
		cqe{wrid: a, qpn: 18, opcode: 128},                                // of another CQ
		cqe{wrid: a, qpn: 17, status: 5, vendor: 77, bytes: 9, opcode: 3}, // before it in the queue, and failed
		cqe{wrid: c, qpn: 17, opcode: 128},                                // once more
		cqe{wrid: a &^ (1 << 56), qpn: 17},                                // the send side
		cqe{wrid: d, qpn: 17, opcode: 129, bytes: 1 << 20},                // the data is elsewhere
		cqe{wrid: e, qpn: 17, opcode: 128, bytes: 1 << 20, flags: 4, ex: [4]byte(record(u32(0x2c3)))},
		cqe{wrid: cq.MakeWRID(s.index, cq.RecvSide, 7), qpn: 17, opcode: 128}, // free
		cqe{wrid: cq.MakeWRID(s.index, cq.RecvSide, 8), qpn: 17, opcode: 128}, // an older lap
		cqe{wrid: cq.MakeWRID(s.index, cq.RecvSide, 1<<31), qpn: 17},          // no number
		cqe{wrid: b, qpn: cq.NoQPN, opcode: 128},                              // no queue pair
	)
	s.complete(1, cqe{wrid: b, qpn: 18, opcode: 128, bytes: 5})
	imm := cq.WC{ID: 102, QPN: 17, SrcQPN: 99, Bytes: 7, Opcode: cq.OpRecv, Side: cq.RecvSide, Flags: cq.FlagGRH}
	imm.SetImm(0x102)
	invalidated := cq.WC{ID: 104, QPN: 17, Bytes: 90, Opcode: cq.OpRecv, Side: cq.RecvSide}
	invalidated.SetInvalidatedRKey(0x2c3)
	want := [2][]cq.WC{{
		imm,
		{ID: 100, QPN: 17, Status: cq.StatusFlushed, VendorErr: 77, Side: cq.RecvSide},
		{ID: 103, QPN: 17, Bytes: 1 << 20, Opcode: cq.OpRecvWriteImm, Side: cq.RecvSide},
		invalidated,
	}, {
		{ID: 101, QPN: 18, Bytes: 5, Opcode: cq.OpRecv, Side: cq.RecvSide},
	}}
	for i, q := range s.q {
		var wcs [16]cq.WC
		n, drained := q.Poll(wcs[:])
		if n != len(want[i]) || !drained {
			t.Fatalf("ring %d: %d completions, want %d", i, n, len(want[i]))
		}
		for j, w := range want[i] {
			if wcs[j] != w {
				t.Errorf("ring %d: %+v, want %+v", i, wcs[j], w)
			}
		}
		if q.Consumed() != q.Produced() {
			t.Errorf("ring %d: read %d, written %d", i, q.Consumed(), q.Produced())
		}
	}
	if len(told) != 1 || told[0] != 0x2c3 {
		t.Errorf("told of %#x", told)
	}
	if n := s.state[0].Stray.Load(); n != 7 || s.state[0].Late.Load() != 0 {
		t.Errorf("%d strays, want 7", n)
	}
	if n := s.srq.Room(); n != 8 {
		t.Errorf("room %d, want 8", n)
	}
}

// A completion belongs to the QP that had the number when the driver wrote it.
func TestSharedLate(t *testing.T) {
	s := newSharedScene(t, 8, 16)
	s.q[0].Continue(1<<32 - 1) // as the second ring of a queue
	s.srq.Remove(s.member[0])
	old := s.srq.Join(s.ep[0], &s.state[0], s.q[0].Produced())
	s.complete(0, cqe{wrid: s.post(1, 1), qpn: 17, opcode: 128}, cqe{wrid: s.post(2, 1), qpn: 17, opcode: 128})
	if n := s.q[0].Produced(); n != 1 {
		t.Fatalf("%d completions written after 2^32-1 and two", n)
	}
	fresh := &cq.Endpoint{QPN: 17}
	s.srq.Join(fresh, &s.state[0], s.q[0].Produced())
	old.Close()
	s.complete(0, cqe{wrid: s.post(3, 1), qpn: 17, opcode: 128})
	var wcs [4]cq.WC
	if n, _ := s.q[0].Poll(wcs[:]); n != 1 || wcs[0].ID != 3 || s.state[0].Late.Load() != 2 || s.state[0].Stray.Load() != 0 {
		t.Errorf("%d completions: %+v, %d late", n, wcs[0], s.state[0].Late.Load())
	}
	if n := s.srq.Room(); n != 8 {
		t.Errorf("room %d, want 8", n)
	}
}

// A closed ring gives back what it holds once, also beside a poller.
func TestReturnShared(t *testing.T) {
	for range 200 {
		s := newSharedScene(t, 8, 16)
		for i := range uint64(8) {
			s.complete(int(i&1), cqe{wrid: s.post(i, 1), qpn: 17 + uint32(i&1), opcode: 128})
		}
		var both sync.WaitGroup
		for _, q := range s.q {
			both.Go(func() { q.Poll(make([]cq.WC, 3)) })
			both.Go(func() { q.state.Set(cq.Closed); q.ReturnShared() })
		}
		both.Wait()
		if n := s.srq.Room(); n != 8 {
			t.Fatalf("room %d, want 8", n)
		}
		for _, q := range s.q {
			q.ReturnShared()
		}
		if n := s.srq.Room(); n != 8 {
			t.Fatalf("room %d, want 8", n)
		}
	}
}

// FuzzShared: whatever the driver writes, no receive of a shared queue ends that
// was not posted, and none ends twice, on either ring.
func FuzzShared(f *testing.F) {
	f.Add([]byte{0, 0, 0x10, 0, 0x20, 0x11, 0, 0x30})
	f.Add([]byte{0, 0, 0, 0, 0x10, 0, 0x10, 0, 0x11, 0, 0x20, 0x21, 0x40, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		s := newSharedScene(t, 4, 8)
		posted := map[uint64]bool{}
		var wrids []uint64
		id := uint64(0)
		program := program(p)
		for len(program) > 0 && len(p) < 4000 {
			switch op := program.byte(); op >> 4 {
			case 0, 5, 6:
				if s.srq.Room() > 0 {
					id++
					posted[id] = true
					wrids = append(wrids, s.post(id, 1))
				}
			case 1: // of something that was posted
				if len(wrids) > 0 {
					s.complete(int(op&1), cqe{wrid: wrids[int(program.byte())%len(wrids)], qpn: 17 + uint32(op>>1&3), status: uint32(op >> 3 & 1), opcode: 128})
				}
			case 2, 7, 8:
				var wcs [5]cq.WC
				q := s.q[op&1]
				n, _ := q.Poll(wcs[:op>>1&7%5])
				for _, w := range wcs[:n] {
					if !posted[w.ID] || w.QPN != 17+uint32(op&1) || w.Side != cq.RecvSide || w.Bytes > 1 {
						t.Fatalf("%+v", w)
					}
					delete(posted, w.ID)
				}
			case 3: // of anything
				s.complete(int(op&1), cqe{wrid: uint64(program.word())<<32 | uint64(program.word()), qpn: 17 + uint32(op&1), opcode: program.word()})
			case 4: // any word
				store32(s.driver[op&1].mem, int(program.byte())*4%len(s.driver[0].mem), program.word())
			}
			if room := s.srq.Room(); room != 4-len(posted) {
				t.Fatalf("room %d, %d posted", room, len(posted))
			}
		}
		for _, q := range s.q {
			q.ReturnShared()
		}
		if room := s.srq.Room(); room < 4-len(posted) || room > 4 {
			t.Fatalf("room %d, %d posted", room, len(posted))
		}
	})
}
