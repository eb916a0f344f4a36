package uverbs

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// growthCall is what OnGrow was told.
type growthCall struct {
	from, to int
	err      error
}

// growing makes a queue that grows and tells of it.
func growing(t *testing.T, r *rig, depth int, g Growth) (*CQ, *[]growthCall) {
	t.Helper()
	calls := new([]growthCall)
	g.OnGrow = func(from, to int, err error) { *calls = append(*calls, growthCall{from, to, err}) }
	q, err := r.dev.NewCQ(depth, &CQOptions{Grow: &g})
	if err != nil {
		t.Fatal(err)
	}
	return q, calls
}

// pollEmpty polls for nothing.
func pollEmpty(t *testing.T, q *CQ) {
	t.Helper()
	if n, err := q.Poll(nil); n != 0 || err != nil {
		t.Fatalf("poll: %d, %v", n, err)
	}
}

// A queue grows when completions that nobody polls fill it, before it overruns, and none
// is lost.
func TestGrowWhenFull(t *testing.T) {
	r := newRig(t, false)
	q, calls := growing(t, r, 15, Growth{To: 100}) // soft-RoCE has 2^n-1
	a, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 200, RecvDepth: 1, AllowOverrun: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.pd.NewQP(RC, &QPOptions{CQ: r.recvQ})
	if err != nil {
		t.Fatal(err)
	}
	// What queue pairs claim makes it grow too: that is another test.
	metered(q).chores.Store(0)
	metered(q).wanted.Store(0)
	r.a, r.b = a, b
	if err := r.connect(); err != nil {
		t.Fatal(err)
	}
	next, posted := uint64(0), uint64(0)
	for _, c := range []struct{ post, poll, depth int }{
		{10, 1, 15},
		{2, 1, 15},  // 11 are there
		{2, 1, 31},  // 12 of 15
		{13, 1, 31}, // 24
		{2, 1, 63},  // 25 of 31
		{26, 1, 63}, // 50
		{2, 1, 127}, // 51 of 63: what soft-RoCE makes of the 100 that are allowed
		{60, 1, 127},
		{0, 109, 127},
	} {
		for range c.post {
			a.SendQueue().Write(posted, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
			posted++
			if err := a.SendQueue().Flush(); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(patience); q.Usage().Occupied < int(posted-next); {
			if time.Now().After(end) {
				t.Fatalf("%d of %d completions are there", q.Usage().Occupied, posted-next)
			}
		}
		for _, w := range wait(t, q, min(c.poll, int(posted-next))) {
			if w.ID != next || w.Status != StatusSuccess {
				t.Fatalf("completion %+v, want %d", w, next)
			}
			next++
		}
		if c.poll == 1 {
			pollEmpty(t, q)
		}
		if d := q.Depth(); d != c.depth {
			t.Errorf("depth %d after %d were posted, want %d; grown: %+v", d, posted, c.depth, *calls)
		}
	}
	if next != posted {
		t.Errorf("%d of %d completions", next, posted)
	}
	if s := q.Stats(); s.Grown != 3 || s.GrowthErrors != 0 || len(*calls) != 3 || s.Overruns != 0 {
		t.Errorf("%+v, told of %+v", s, *calls)
	}
}

// It grows when queue pairs claim it, and makes room for one that did not fit.
func TestGrowWhenClaimed(t *testing.T) {
	r := newRig(t, false)
	q, calls := growing(t, r, 63, Growth{To: 1000, At: 1})
	woken := make(chan struct{}, 9)
	q.wake = func() { woken <- struct{}{} }
	qp := func(depth int) error {
		_, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: depth - 1, RecvDepth: 1})
		return err
	}
	if err := qp(62); err != nil {
		t.Fatal(err)
	}
	pollEmpty(t, q)
	if len(*calls) != 0 {
		t.Fatalf("grown already: %+v", *calls)
	}
	says(t, "what does not fit", qp(200), ErrCQFull, "make the CQ deeper")
	<-woken // for the poller may sleep
	pollEmpty(t, q)
	if err := qp(200); err != nil {
		t.Error(err)
	}
	if d := q.Depth(); d != 511 || len(*calls) != 1 {
		t.Errorf("depth %d, grown %+v", d, *calls)
	}
	says(t, "what never fits", qp(2000), ErrCQFull, "make the CQ deeper")
	<-woken
	pollEmpty(t, q)
	if d := q.Depth(); d != 1023 {
		t.Errorf("depth %d: it grows as far as it may", d)
	}
	says(t, "what never fits", qp(2000), ErrCQFull, "make the CQ deeper")
	pollEmpty(t, q)
	if s := q.Stats(); s.Grown != 2 || s.GrowthErrors != 0 || len(*calls) != 2 {
		t.Errorf("%+v, told of %+v", s, *calls)
	}
}

// A growth that fails is counted and told, loses nothing, and is not tried all the time.
func TestGrowFails(t *testing.T) {
	r := newRig(t, false)
	q, calls := growing(t, r, 15, Growth{To: 1000})
	// The command fails: the queue is what it was.
	r.k.Fail(func(c fakekernel.Call) error {
		if c.Command == abi.IB_USER_VERBS_CMD_RESIZE_CQ {
			return os.ErrPermission
		}
		return nil
	})
	if _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 30}); !errors.Is(err, ErrCQFull) {
		t.Fatal(err)
	}
	for range 3 {
		pollEmpty(t, q)
	}
	if s := q.Stats(); s.Grown != 0 || s.GrowthErrors != 1 || len(*calls) != 1 || q.Depth() != 15 {
		t.Errorf("%+v, told of %+v, depth %d", s, *calls, q.Depth())
	}
	if c := (*calls)[0]; c.from != 15 || c.to != 15 || !errors.Is(c.err, os.ErrPermission) {
		t.Errorf("%+v", c)
	}
	// The new ring cannot be mapped: there is none any more.
	r.k.FailAt(fakekernel.Map, 1, os.ErrInvalid)
	if _, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 30}); !errors.Is(err, ErrCQFull) {
		t.Fatal(err)
	}
	var wcs [1]WC
	if _, err := q.Poll(wcs[:]); !errors.Is(err, ErrOverrun) {
		t.Errorf("poll: %v", err)
	}
	if s := q.Stats(); s.GrowthErrors != 2 || s.Overruns != 1 || len(*calls) != 2 {
		t.Errorf("%+v, told of %+v", s, *calls)
	}
}

// Where rings cannot be exchanged the policy is refused.
func TestGrowRefused(t *testing.T) {
	r := newRig(t, false)
	r.k.SetRelease("5.15.0-91-generic")
	_, err := r.dev.NewCQ(15, &CQOptions{Grow: GrowTo(100)})
	says(t, "this kernel", err, ErrNotSupported, "needs 6.0.3")
	if _, err := r.dev.NewCQ(15, &CQOptions{}); err != nil {
		t.Error(err)
	}
	r.k.SetRelease("6.1.192")
	_, err = r.dev.NewCQ(15, &CQOptions{Grow: GrowTo(100), Compression: Compress()})
	says(t, "a ring of compressed completions", err, ErrNotSupported, "cannot be exchanged")
}

// Up and down, by the policy and by Resize, while requests complete: every one comes to
// its end, in order.
func TestGrowBesideResize(t *testing.T) {
	r := newRig(t, false)
	q, calls := growing(t, r, 15, Growth{To: 300, At: 0.5})
	a, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 14, RecvDepth: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.pd.NewQP(RC, &QPOptions{CQ: r.recvQ})
	if err != nil {
		t.Fatal(err)
	}
	r.a, r.b = a, b
	if err := r.connect(); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(9, 10))
	sq := a.SendQueue()
	var next, posted uint64
	var wcs [7]WC
	for next < 3000 {
		for range rnd.IntN(14) {
			if sq.Room() > 0 && posted < 3000 {
				sq.Write(posted, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
				posted++
			}
		}
		if err := sq.Flush(); err != nil {
			t.Fatal(err)
		}
		if rnd.IntN(20) == 0 {
			if err := q.ResizeOwned(15 + rnd.IntN(50)); err != nil {
				t.Fatal(err)
			}
		}
		n, err := q.Poll(wcs[:rnd.IntN(8)])
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wcs[:n] {
			if w.ID != next || w.Status != StatusSuccess {
				t.Fatalf("completion %+v, want %d", w, next)
			}
			next++
		}
	}
	if s := q.Stats(); s.Completions != 3000 || s.Grown != uint64(len(*calls)) || s.Grown == 0 || s.GrowthErrors != 0 {
		t.Errorf("%+v", s)
	}
}
