package uverbs

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// Resizing keeps what is in the queue, in order, and nothing is lost or doubled
// beside traffic.
func TestResize(t *testing.T) {
	r := newRig(t, false)
	sq := r.a.SendQueue()
	post := func(id uint64) {
		t.Helper()
		sq.Write(id, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
		if err := sq.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	next, got := uint64(0), uint64(0)
	for _, depth := range []int{100, 33, 1000, 40} {
		for range 10 {
			post(next)
			next++
		}
		for _, w := range wait(t, r.sendQ, 3) {
			if w.ID != got {
				t.Fatalf("completion %d, want %d", w.ID, got)
			}
			got++
		}
		if err := r.sendQ.ResizeOwned(depth); err != nil {
			t.Fatal(err)
		}
		if n := r.sendQ.Depth(); n < depth {
			t.Errorf("depth %d after a resize to %d", n, depth)
		}
		for _, w := range wait(t, r.sendQ, 7) {
			if w.ID != got || w.Status != StatusSuccess {
				t.Fatalf("completion %+v, want %d", w, got)
			}
			got++
		}
	}
	if s := r.sendQ.Stats(); s != (CQStats{}) {
		t.Errorf("dropped %+v", s)
	}
	says(t, "to nothing", r.sendQ.ResizeOwned(0), ErrInvalid, "depth 0")
	says(t, "too deep", r.sendQ.ResizeOwned(1<<20), ErrInvalid, "1 to 32767")
	says(t, "below what is claimed", r.sendQ.ResizeOwned(31), ErrCQFull, "32 completions")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	says(t, "nobody polls", r.sendQ.Resize(ctx, 50), context.DeadlineExceeded)
	if _, err := r.pd.NewQP(RC, &QPOptions{SendCQ: r.sendQ, RecvCQ: r.recvQ, SendDepth: 8, RecvDepth: 8}); err != nil {
		t.Errorf("a resize that did not happen took room: %v", err)
	}
}

func TestResizeBesidePoller(t *testing.T) {
	r := newRig(t, false)
	sq := r.a.SendQueue()
	var stop atomic.Bool
	var wg sync.WaitGroup
	next := uint64(0)
	wg.Go(func() {
		var wcs [5]WC
		for !stop.Load() {
			n, err := r.sendQ.Poll(wcs[:])
			if err != nil {
				t.Error(err)
				return
			}
			for _, w := range wcs[:n] {
				if w.ID != next || w.Status != StatusSuccess {
					t.Errorf("completion %+v, want %d", w, next)
					return
				}
				next++
			}
		}
	})
	posted := uint64(0)
	for i := range 300 {
		for range 3 {
			if sq.Room() > 0 {
				sq.Write(posted, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
				posted++
			}
		}
		if err := sq.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := r.sendQ.Resize(t.Context(), 40+i%7*20); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(patience); !sq.requests.Idle() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	wg.Wait()
	if next != posted {
		t.Errorf("%d of %d completions", next, posted)
	}
}

// A ring that cannot be mapped any more is a dead queue, not a crash.
func TestResizeFails(t *testing.T) {
	r := newRig(t, false)
	r.k.FailAt(fakekernel.Map, 1, os.ErrInvalid)
	if err := r.sendQ.ResizeOwned(100); err == nil {
		t.Error("a resize without a map succeeded")
	}
	var wcs [1]WC
	if _, err := r.sendQ.Poll(wcs[:]); !errors.Is(err, ErrOverrun) {
		t.Errorf("poll: %v", err)
	}
}

func TestModerate(t *testing.T) {
	r := newRig(t, false)
	says(t, "soft-RoCE", r.sendQ.Moderate(10, time.Millisecond), ErrNotSupported, "driver")
	says(t, "too many", r.sendQ.Moderate(1<<16, 0), ErrInvalid, "65535")
	says(t, "too long", r.sendQ.Moderate(0, time.Second), ErrInvalid, "65.535ms")
}

// One of several pollers resizes a shared queue while the others poll it.
func TestResizeOwnedShared(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(8, &CQOptions{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		var wcs [4]WC
		for !stop.Load() {
			if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
				t.Errorf("Poll: %d, %v", n, err)
				return
			}
		}
	})
	for i := range 50 {
		if err := q.ResizeOwned(8 << (i % 3)); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	wg.Wait()
}

// Who waits for room learns that there will be none.
func TestResizeFailsBesideWaiter(t *testing.T) {
	r := newRig(t, false)
	sq := r.a.SendQueue()
	for sq.Room() > 0 {
		sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
	}
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- sq.WaitRoom(ctx, 1) }()
	m := &r.sendQ.mailbox
	for waits := 0; waits == 0; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		waits = len(m.waiters)
		m.mu.Unlock()
		if ctx.Err() != nil {
			t.Fatal("nobody waits")
		}
	}
	r.k.FailAt(fakekernel.Map, 1, os.ErrInvalid)
	if err := r.sendQ.ResizeOwned(100); err == nil {
		t.Error("a resize without a map succeeded")
	}
	says(t, "wait for room", <-waited, ErrOverrun)
}

// The waiter of a shared queue hears that another goroutine has lost its ring.
func TestResizeFailsBesideSleeper(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(8, &CQOptions{Shared: true, Events: true})
	if err != nil {
		t.Fatal(err)
	}
	woken := false
	_, detach, err := q.Attach(func() { woken = true })
	if err != nil {
		t.Fatal(err)
	}
	defer detach()
	if err := q.ResizeOwned(16); err != nil {
		t.Fatal(err)
	}
	if woken {
		t.Error("woken by a resize that lost nothing")
	}
	r.k.FailAt(fakekernel.Map, 1, os.ErrInvalid)
	if err := q.ResizeOwned(32); err == nil {
		t.Error("a resize without a map succeeded")
	}
	if !woken {
		t.Error("not woken, though the queue is dead")
	}
	var wcs [1]WC
	_, err = q.Poll(wcs[:])
	says(t, "poll", err, ErrOverrun)
}
