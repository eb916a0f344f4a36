package cq

// Faults that other projects' completion queues had, one test for each kind. The
// numbers are those of a collection of such reports; the addresses are where they
// are public.

import "testing"

// A stale number, taken for one that has wrapped, ends what has not ended: counters
// jumped 65536 ahead, and waits came back early.
// https://github.com/ROCm/mori/pull/431
// https://github.com/deepseek-ai/DeepEP/pull/371
// Only numbers between the oldest outstanding request and the newest are taken, and
// each of them once, wherever the window stands.
func TestBug34OnlyTheWindow(t *testing.T) {
	for _, depth := range []uint32{1, 3, 8} {
		for _, head := range []uint32{0, 1<<16 - 2, 1 << 16, 1<<31 - 2, 1<<32 - 3, 1<<32 - 1} {
			var state State
			r := NewRequests(depth, RecvSide, 17, &state)
			// The queue has been used so often before.
			r.head, r.tail, r.staged = head, head, head
			for id := range uint64(depth) {
				r.Stage(id, OpRecv, 8, false)
			}
			r.Commit()
			refused := func(seq uint32) {
				t.Helper()
				var w WC
				if _, ok := r.Complete(seq, StatusSuccess, &w); ok {
					t.Fatalf("depth %d from %#x: request %#x ended as %+v", depth, head, seq, w)
				}
				if r.Oldest(seq) {
					t.Fatalf("depth %d from %#x: request %#x is the oldest", depth, head, seq)
				}
			}
			forged := func() {
				for _, d := range []uint32{depth, depth + 1, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1 << 24, 1 << 31} {
					refused(head + depth - 1 + d)
					refused(head - d)
				}
				for lap := uint32(1); lap < 70000; lap += 257 { // the same slots, other laps
					refused(head + lap*(r.mask+1))
				}
			}
			for i := depth; i > 0; i-- { // the newest first, so that all of it stays open
				forged()
				var w WC
				if _, ok := r.Complete(head+i-1, StatusSuccess, &w); !ok || w.ID != uint64(i-1) {
					t.Fatalf("depth %d from %#x: request %#x: %v, %+v", depth, head, head+i-1, ok, w)
				}
				refused(head + i - 1)
			}
			if n := r.Outstanding(); n != 0 || r.Room() != int(depth) {
				t.Errorf("depth %d from %#x: %d outstanding, room %d", depth, head, n, r.Room())
			}
		}
	}
}
