package cq

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// near2to32 moves an idle table to just below the wrap of its numbers.
func near2to32(r *Requests, below uint32) {
	r.staged, r.tail, r.head = -below, -below, -below
}

func TestRequestsEndOnce(t *testing.T) {
	for _, depth := range []uint32{1, 2, 3, 7, 16, 100} {
		for _, below := range []uint32{0, 50, 1} {
			var st State
			r := NewRequests(depth, SendSide, 17, &st)
			near2to32(r, below)
			rng := rand.New(rand.NewPCG(uint64(depth), uint64(below)))
			type posted struct {
				seq          uint32
				id           uint64
				quiet, event bool
			}
			var inFlight []posted
			id := uint64(1000)
			for step := 0; step < 3000; step++ {
				if want := int(depth) - len(inFlight); r.Room() > want {
					t.Fatalf("depth %d: Room %d with %d in flight", depth, r.Room(), len(inFlight))
				}
				for n := rng.IntN(4); n > 0 && r.Room() > 0; n-- {
					id++
					quiet := rng.IntN(3) > 0
					seq, signal := r.Stage(id, OpSend, uint32(id)*3, quiet)
					if !quiet && !signal {
						t.Fatalf("a signalled request was staged quiet")
					}
					inFlight = append(inFlight, posted{seq, id, quiet, signal})
				}
				r.Commit()
				if r.Room() == 0 {
					some := false
					for _, p := range inFlight {
						some = some || p.event
					}
					if !some {
						t.Fatalf("depth %d: the queue is full and nothing in it completes", depth)
					}
				}
				// The device ends a few, in order; quiet ones say nothing.
				for n := rng.IntN(4); n > 0 && len(inFlight) > 0; n-- {
					p := inFlight[0]
					inFlight = inFlight[1:]
					fails := rng.IntN(10) == 0
					if !p.event && !fails {
						continue
					}
					st := StatusSuccess
					if fails {
						st = StatusFlushed
					}
					var w WC
					show, ok := r.Complete(p.seq, st, &w)
					if !ok || show != (!p.quiet || fails) || w.ID != p.id || w.Side != SendSide || w.QPN != 17 {
						t.Fatalf("request %d ended as show=%v ok=%v %+v", p.id, show, ok, w)
					}
					if !fails && (w.Bytes != uint32(p.id)*3 || w.Opcode != OpSend) {
						t.Fatalf("request %d ended with %+v", p.id, w)
					}
					if _, again := r.Complete(p.seq, st, &w); again {
						t.Fatalf("request %d ended twice", p.id)
					}
				}
			}
		}
	}
}

func TestRequestsRefuseWhatWasNotPosted(t *testing.T) {
	var st State
	r := NewRequests(8, RecvSide, 17, &st)
	var w WC
	for _, seq := range []uint32{0, 1, 7, 8, 1 << 31, ^uint32(0)} {
		if _, ok := r.Complete(seq, StatusSuccess, &w); ok {
			t.Errorf("request %d ended, none was posted", seq)
		}
	}
	r.Stage(1, OpRecv, 0, false)
	if _, ok := r.Complete(0, StatusSuccess, &w); ok {
		t.Error("a request that was staged and not committed ended")
	}
	r.Commit()
	if _, ok := r.Complete(1<<30, StatusSuccess, &w); ok {
		t.Error("a request from another lap ended")
	}
}

func TestRequestsRollback(t *testing.T) {
	var st State
	r := NewRequests(4, SendSide, 1, &st)
	r.Stage(1, OpSend, 0, true)
	r.Commit()
	r.Stage(2, OpSend, 0, false)
	r.Stage(3, OpSend, 0, false)
	r.Rollback(2)
	if r.Room() != 3 || r.Staged() != 0 {
		t.Fatalf("Room %d, Staged %d after a rollback, want 3 and 0", r.Room(), r.Staged())
	}
	var w WC
	if _, ok := r.Complete(1, StatusSuccess, &w); ok {
		t.Error("a request that was taken back ended")
	}
	// The queue must not fill up with quiet requests after a rollback of the
	// one that was to be heard of.
	heard := false
	for r.Room() > 0 {
		_, signal := r.Stage(4, OpSend, 0, true)
		heard = heard || signal
	}
	if !heard {
		t.Error("the queue is full of requests that nobody hears of")
	}
	r.Commit()
	r.Rollback(1) // also after publication
	if r.Room() != 1 {
		t.Errorf("Room %d, want 1", r.Room())
	}
}

func TestRequestsAbandon(t *testing.T) {
	var st State
	r := NewRequests(8, RecvSide, 5, &st)
	for i := uint64(0); i < 8; i++ {
		r.Stage(100+i, OpRecv, 0, false)
	}
	r.Commit()
	var w WC
	r.Complete(2, StatusSuccess, &w) // out of order
	var wcs [5]WC
	var got []uint64
	for {
		n, done := r.Abandon(wcs[:], r.Tail(), false)
		for _, w := range wcs[:n] {
			if w.Status != StatusFlushed || w.Flags&FlagSynthetic == 0 || w.Side != RecvSide || w.QPN != 5 {
				t.Fatalf("abandoned as %+v", w)
			}
			got = append(got, w.ID)
		}
		if done {
			break
		}
	}
	want := []uint64{100, 101, 103, 104, 105, 106, 107}
	if len(got) != len(want) {
		t.Fatalf("abandoned %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("abandoned %v, want %v", got, want)
		}
	}
	if r.Room() != 8 {
		t.Errorf("Room %d, want 8", r.Room())
	}
}

// Requests that are posted after those that are abandoned are none of theirs, also
// when all of those have ended by themselves.
func TestRequestsAbandonUntil(t *testing.T) {
	for _, below := range []uint32{0, 2} { // also over the wrap of their numbers
		var st State
		r := NewRequests(4, RecvSide, 5, &st)
		near2to32(r, below)
		var w WC
		r.Stage(1, OpRecv, 0, false)
		r.Stage(2, OpRecv, 0, false)
		r.Commit()
		until := r.Tail()
		r.Stage(3, OpRecv, 0, false)
		r.Commit()
		r.Complete(-below, StatusSuccess, &w)
		var wcs [4]WC
		if n, done := r.Abandon(wcs[:], until, false); n != 1 || !done || wcs[0].ID != 2 {
			t.Errorf("abandoned %d, %v: %+v, want request 2 alone", n, done, wcs[:n])
		}
		if n, done := r.Abandon(wcs[:], until, false); n != 0 || !done {
			t.Errorf("abandoned again: %d, %v: %+v", n, done, wcs[:n])
		}
		if show, ok := r.Complete(2-below, StatusSuccess, &w); !show || !ok || w.ID != 3 || !r.Idle() {
			t.Errorf("the request after them: %v, %v, %+v, idle %v", show, ok, w, r.Idle())
		}
	}
}

// Quiet requests that the device carried out end without a word; what it did not
// carry out does not.
func TestRequestsAbandonCarried(t *testing.T) {
	var st State
	r := NewRequests(8, SendSide, 5, &st)
	r.Stage(1, OpWrite, 0, true)
	r.Stage(2, OpWrite, 0, false)
	r.Stage(3, OpWrite, 0, true)
	r.Commit()
	var wcs [4]WC
	if r.Idle() || r.Vacant() != 5 {
		t.Errorf("idle %v, room for %d", r.Idle(), r.Vacant())
	}
	if n, done := r.Abandon(wcs[:0], r.Tail(), true); n != 0 || done {
		t.Errorf("without a place: %d, %v", n, done)
	}
	if n, done := r.Abandon(wcs[:], r.Tail(), true); n != 1 || !done || wcs[0].ID != 2 {
		t.Errorf("%d, %v, %+v", n, done, wcs[0])
	}
	if !r.Idle() {
		t.Error("not idle")
	}
}

// A poster and a poller on two goroutines: every request ends once, with its
// own id, and the race detector sees the edges.
func TestRequestsTwoGoroutines(t *testing.T) {
	const total = 200000
	var st State
	r := NewRequests(64, SendSide, 1, &st)
	device := make(chan uint32, 64)
	go func() {
		defer close(device)
		for i := uint64(0); i < total; {
			if r.Room() == 0 {
				runtime.Gosched() // there may be one processor only
				continue
			}
			seq, _ := r.Stage(i, OpWrite, uint32(i), false)
			r.Commit()
			device <- seq
			i++
		}
	}()
	next := uint64(0)
	for seq := range device {
		var w WC
		if _, ok := r.Complete(seq, StatusSuccess, &w); !ok || w.ID != next || w.Bytes != uint32(next) {
			t.Fatalf("completion %d: ok=%v %+v", next, ok, w)
		}
		next++
	}
	if next != total {
		t.Fatalf("%d of %d ended", next, total)
	}
}

func TestWRID(t *testing.T) {
	for _, index := range []uint32{0, 1, 77, MaxEndpoints - 1} {
		for _, side := range []Side{SendSide, RecvSide} {
			for _, seq := range []uint32{0, 1, 1 << 31, ^uint32(0)} {
				i, s, q, ok := SplitWRID(MakeWRID(index, side, seq))
				if !ok || i != index || s != side || q != seq {
					t.Fatalf("%d %v %d came back as %d %v %d %v", index, side, seq, i, s, q, ok)
				}
			}
		}
	}
	for bit := 57; bit < 64; bit++ {
		if _, _, _, ok := SplitWRID(1 << bit); ok {
			t.Errorf("bit %d was accepted", bit)
		}
	}
}
