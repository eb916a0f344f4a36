package uverbs_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// cqLoad is a stream of numbered messages whose sends and receives complete on one
// queue.
type cqLoad struct {
	*pair
	sent, ended, received uint64 // messages; sent ones are numbered
	posted                uint64 // receives
	ok                    uint64 // completions that succeeded, of both sides
	others                map[uverbs.Status]uint64
}

// loadDepth is how many messages may be under way.
const loadDepth = 64

func newCQLoad(t *testing.T, depth int, opts *uverbs.CQOptions) *cqLoad {
	t.Helper()
	p := newPair(t, false)
	q, err := p.dev.NewCQ(depth, opts)
	if err != nil {
		t.Fatal(err)
	}
	l := &cqLoad{pair: p, others: make(map[uverbs.Status]uint64)}
	for qp, o := range map[**uverbs.QP]*uverbs.QPOptions{
		&p.a: {SendDepth: loadDepth, RecvDepth: 1}, &p.b: {SendDepth: 1, RecvDepth: loadDepth},
	} {
		o.CQ = q
		if *qp, err = p.pd.NewQP(uverbs.RC, o); err != nil {
			t.Fatal(err)
		}
	}
	p.q = q
	p.connect(t)
	return l
}

// post sends as many messages as fit and have a receive, up to a number.
func (l *cqLoad) post(t *testing.T, until uint64) {
	t.Helper()
	rq, sq := l.b.RecvQueue(), l.a.SendQueue()
	for rq.Room() > 0 {
		rq.Recv(l.posted, l.mr.Span(0, 64))
		l.posted++
	}
	if err := rq.Flush(); err != nil {
		t.Fatal(err)
	}
	for sq.Room() > 0 && l.sent < until && l.sent < l.posted {
		sq.SendImm(l.sent, uint32(l.sent), l.mr.Span(4096, 8))
		l.sent++
	}
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
}

// took looks at completions: each side's come in the order of their numbers.
func (l *cqLoad) took(t *testing.T, wcs []uverbs.WC) {
	t.Helper()
	for _, w := range wcs {
		if w.Status != uverbs.StatusSuccess {
			l.others[w.Status]++
			continue
		}
		l.ok++
		if w.Side == uverbs.SendSide {
			if w.ID != l.ended {
				t.Fatalf("completion %+v, want send %d", w, l.ended)
			}
			l.ended++
			continue
		}
		if n, ok := w.Imm(); !ok || n != uint32(l.received) || w.ID != l.received {
			t.Fatalf("completion %+v, want message %d", w, l.received)
		}
		l.received++
	}
}

// Numbered completions come while the queue is made deeper and less deep, by its poller,
// by another goroutine and by its own policy: none is lost, none comes twice.
func TestGuestResizeUnderLoad(t *testing.T) {
	const depth = 2*loadDepth + 2 // what the queue pairs claim
	for name, grow := range map[string]uverbs.GrowthPolicy{
		"resize": nil,
		"growth": &uverbs.Growth{To: 2000, At: 0.4},
	} {
		t.Run(name, func(t *testing.T) {
			l := newCQLoad(t, depth, &uverbs.CQOptions{Stats: &uverbs.StatsOptions{}, Grow: grow})
			total := uint64(guestRounds(t, 6000)+1) / 2 // messages have two completions
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var resizes atomic.Int64
			var other sync.WaitGroup
			defer other.Wait()
			defer cancel()
			other.Go(func() {
				rnd := rand.New(rand.NewPCG(1, 2))
				for {
					if err := l.q.Resize(ctx, depth+rnd.IntN(700)); err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						return
					}
					resizes.Add(1)
					time.Sleep(time.Millisecond)
				}
			})
			rnd := rand.New(rand.NewPCG(3, 4))
			var wcs [48]uverbs.WC
			for idle := time.Now(); l.ended < total || l.received < total; {
				l.post(t, total)
				n, err := l.q.Poll(wcs[:1+rnd.IntN(len(wcs))])
				if err != nil {
					t.Fatal(err)
				}
				l.took(t, wcs[:n])
				if n > 0 {
					idle = time.Now()
				} else if time.Since(idle) > time.Minute {
					t.Fatalf("nothing completes: %d sent, %d ended, %d received", l.sent, l.ended, l.received)
				}
				if rnd.IntN(10) == 0 {
					if err := l.q.ResizeOwned(depth + rnd.IntN(50)); err != nil {
						t.Fatal(err)
					}
					resizes.Add(1)
				}
			}
			s := l.q.Stats()
			t.Logf("%d completions, %d resizes, grown %d times, at most %d in the queue", l.ok, resizes.Load(), s.Grown, s.HighWater)
			if s.Completions != 2*total || s.ByStatus[uverbs.StatusSuccess] != 2*total || s.Late+s.Stray+s.Overruns+s.GrowthErrors != 0 {
				t.Errorf("%d completions, counted %+v", 2*total, s)
			}
			if resizes.Load() == 0 {
				t.Error("never resized")
			}
		})
	}
}

// What is counted is what the program saw: completions by their statuses, events, and
// the times that the sampled ones took, failures included.
func TestGuestStats(t *testing.T) {
	l := newCQLoad(t, 256, &uverbs.CQOptions{Events: true, Stats: &uverbs.StatsOptions{Sample: 4}})
	w, err := poll.NewWaiter(poll.Event{}, l.q)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wcs [16]uverbs.WC
	const total = 600
	for l.ended < total || l.received < total {
		l.post(t, total)
		n, err := w.Wait(ctx, wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		l.took(t, wcs[:n])
	}
	s := l.q.Stats()
	if s.PostToCompletion.Count == 0 || s.PostToCompletion.Count > total || s.PostToCompletion.P50 <= 0 || s.PostToCompletion.P999 > s.PostToCompletion.Max+s.PostToCompletion.Max/32 {
		t.Errorf("post to completion: %+v", s.PostToCompletion)
	}
	if s.Events > 0 && s.ArmToEvent.Count == 0 || s.ArmToEvent.Count > s.Events || s.Spurious > s.Events {
		t.Errorf("%+v", s)
	}
	// And to the end: everything that is left is flushed.
	l.post(t, total+10)
	bad := l.peer.Regions[0]
	bad.RKey ^= 0x5500
	if l.a.SendQueue().Room() > 0 {
		l.a.SendQueue().Write(1, bad.At(0), l.mr.Span(0, 8))
	}
	if err := l.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, qp := range []*uverbs.QP{l.a, l.b} {
		if err := qp.Drain(ctx, func(w uverbs.WC) { l.took(t, []uverbs.WC{w}) }); err != nil {
			t.Fatal(err)
		}
	}
	s = l.q.Stats()
	sum := l.ok
	for status, n := range l.others {
		sum += n
		if s.ByStatus[status] != n {
			t.Errorf("%d of %v, counted %d", n, status, s.ByStatus[status])
		}
	}
	if len(l.others) == 0 || s.ByStatus[uverbs.StatusSuccess] != l.ok || s.Completions != sum {
		t.Errorf("%d succeeded and %v, counted %+v", l.ok, l.others, s)
	}
	batches := s.Empty
	for _, n := range s.Batches {
		batches += n
	}
	if batches != s.Polls {
		t.Errorf("%d polls, of which %d", s.Polls, batches)
	}
	if u := l.q.Usage(); u.Occupied != 0 || u.Committed != 2*loadDepth+2 || u.Depth < 256 || u.HighWater != s.HighWater || u.HighWater == 0 {
		t.Errorf("%+v", u)
	}
	var text bytes.Buffer
	if err := l.q.WriteOpenMetrics(&text); err != nil || !bytes.HasSuffix(text.Bytes(), []byte("# EOF\n")) {
		t.Errorf("%v: %s", err, text.Bytes())
	}
}
