package uverbs

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// ends counts what came of requests, by side and id.
type ends struct {
	t  testing.TB
	mu sync.Mutex
	n  map[Side]map[uint64]int
	// synthetic is how many the library made up.
	synthetic int
}

func newEnds(t testing.TB) *ends {
	return &ends{t: t, n: map[Side]map[uint64]int{SendSide: {}, RecvSide: {}}}
}

func (e *ends) add(w WC) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n[w.Side][w.ID]++
	if e.n[w.Side][w.ID] > 1 {
		e.t.Errorf("request %d on the %v side ended %d times: %+v", w.ID, w.Side, e.n[w.Side][w.ID], w)
	}
	if w.Status != StatusSuccess && w.Status != StatusFlushed {
		e.t.Errorf("completion %+v", w)
	}
}

func (e *ends) want(sends, recvs int) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.n[SendSide]) != sends || len(e.n[RecvSide]) != recvs {
		e.t.Errorf("%d sends and %d receives ended, want %d and %d", len(e.n[SendSide]), len(e.n[RecvSide]), sends, recvs)
	}
}

// Drain and Shutdown bring every request to its end, once, whichever CQ it is
// on; then the queue pair can be made new.
func TestShutdown(t *testing.T) {
	for name, how := range map[string]func(ctx context.Context, r *rig, e *ends) error{
		"drain": func(ctx context.Context, r *rig, e *ends) error { return r.a.Drain(ctx, e.add) },
		"shutdown beside a poller": func(ctx context.Context, r *rig, e *ends) error {
			var stop atomic.Bool
			var wg sync.WaitGroup
			for _, q := range []*CQ{r.sendQ, r.recvQ} {
				wg.Go(func() {
					var wcs [3]WC
					for !stop.Load() {
						n, err := q.Poll(wcs[:])
						if err != nil {
							t.Error(err)
						}
						for _, w := range wcs[:n] {
							e.add(w)
						}
					}
				})
			}
			defer wg.Wait()
			defer stop.Store(true)
			return r.a.Shutdown(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, false)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for round := range 3 {
				e := newEnds(t)
				for i := range uint64(9) {
					r.a.RecvQueue().Recv(i, r.mr.Span(0, 8))
				}
				if err := r.a.RecvQueue().Flush(); err != nil {
					t.Fatal(err)
				}
				for i := range uint64(5) {
					r.a.SendQueue().Write(i, r.peer.Regions[0].At(0), r.mr.Span(4096, 8))
				}
				// Quiet ones at the very end: nobody reports them.
				for range 3 {
					r.a.SendQueue().Write(99, r.peer.Regions[0].At(0), r.mr.Span(4096, 8), Unsignaled)
				}
				if err := r.a.SendQueue().Flush(); err != nil {
					t.Fatal(err)
				}
				if err := how(ctx, r, e); err != nil {
					t.Fatal(err)
				}
				e.want(5, 9)
				if r.a.SendQueue().Room() != 16 || r.a.RecvQueue().Room() != 16 {
					t.Errorf("room for %d sends and %d receives", r.a.SendQueue().Room(), r.a.RecvQueue().Room())
				}
				r.a.SendQueue().Write(1, r.peer.Regions[0].At(0), r.mr.Span(4096, 8))
				says(t, "send after shutdown", r.a.SendQueue().Flush(), ErrState, "shut down")
				r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
				says(t, "receive after shutdown", r.a.RecvQueue().Flush(), ErrState, "shut down")
				if err := r.a.Shutdown(ctx); err != nil {
					t.Errorf("second shutdown: %v", err)
				}
				// Both sides start anew.
				if err := r.b.Drain(ctx, func(WC) {}); err != nil {
					t.Fatal(err)
				}
				for _, qp := range []*QP{r.a, r.b} {
					if err := qp.Restart(); err != nil {
						t.Fatalf("round %d: %v", round, err)
					}
				}
				if err := r.connect(); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			if s := r.sendQ.Stats(); s != (CQStats{}) {
				t.Errorf("dropped %+v", s)
			}
		})
	}
}

// Nobody polls: the shutdown ends with its context and can be finished later.
func TestShutdownCancelled(t *testing.T) {
	r := newRig(t, false)
	r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
	if err := r.a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	why := errors.New("no patience")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, why)
	defer cancel()
	if err := r.a.Shutdown(ctx); !errors.Is(err, why) {
		t.Fatalf("%v, want %v", err, why)
	}
	says(t, "restart before the end", r.a.Restart(), ErrState)
	e := newEnds(t)
	if err := r.a.Drain(t.Context(), e.add); err != nil {
		t.Fatal(err)
	}
	e.want(0, 1)
	if err := r.a.Close(); err != nil {
		t.Fatal(err)
	}
	says(t, "shutdown after Close", r.a.Shutdown(t.Context()), os.ErrClosed)
	says(t, "restart after Close", r.a.Restart(), os.ErrClosed)
}

// A reset by hand ends what was outstanding, and the queue pair does not leave
// RESET before that was polled.
func TestResetByHand(t *testing.T) {
	r := newRig(t, false)
	for i := range uint64(4) {
		r.a.RecvQueue().Recv(i, r.mr.Span(0, 8))
	}
	if err := r.a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := r.a.Modify(StateReset); err != nil {
		t.Fatal(err)
	}
	says(t, "out of RESET", r.a.Modify(StateInit, AttrAccess(0), AttrPKeyIndex(0), AttrPort(1)), ErrState, "poll the CQ")
	for i, w := range wait(t, r.recvQ, 4) {
		if w.ID != uint64(i) || w.Status != StatusFlushed || w.Side != RecvSide {
			t.Errorf("completion %+v", w)
		}
	}
	if err := r.a.Restart(); err != nil {
		t.Error(err)
	}
}

// Room comes when the poller has seen completions, and the poster is told.
func TestWaitRoom(t *testing.T) {
	r := newRig(t, true)
	sq := r.a.SendQueue()
	says(t, "too much", sq.WaitRoom(t.Context(), 17), ErrInvalid, "holds 16")
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wcs [4]WC
		for !stop.Load() {
			if _, err := r.sendQ.Poll(wcs[:]); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(50 * time.Microsecond)
		}
	}()
	for i := range uint64(500) {
		if err := sq.WaitRoom(t.Context(), 1+int(i%7)); err != nil {
			t.Fatal(err)
		}
		for range 1 + int(i%7) {
			sq.Write(i, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
		}
		if err := sq.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	<-done
	wait(t, r.sendQ, 16-sq.Room())
	for sq.Room() > 0 {
		sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
	}
	says(t, "staged", sq.WaitRoom(t.Context(), 3), ErrInvalid, "Flush first")
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	says(t, "nobody polls", sq.WaitRoom(ctx, 3), context.DeadlineExceeded)
	time.AfterFunc(10*time.Millisecond, func() { r.a.Close() })
	says(t, "closed meanwhile", sq.WaitRoom(t.Context(), 3), os.ErrClosed)
}
