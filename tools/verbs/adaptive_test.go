package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/tools/internal/paired"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

// These are the measurements of waiters on the model that compare strategies of package
// poll, which itself knows no devices. What they print is not judged.

// polledCQ counts polls.
type polledCQ struct {
	cq.Queue
	polls atomic.Int64
}

func (q *polledCQ) Poll(wcs []cq.WC) (int, error) {
	q.polls.Add(1)
	return q.Queue.Poll(wcs)
}

// Waiters that sleep poll nothing and cost nothing, however long. GOVERBS_IDLE sets for
// how long, as 30s, and has the processor's time printed.
func TestIdleWaiters(t *testing.T) {
	idle := 200 * time.Millisecond
	if s := os.Getenv("GOVERBS_IDLE"); s != "" {
		var err error
		if idle, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	const queues = 64
	for _, s := range []poll.Strategy{poll.Event{}, poll.Adaptive{}} {
		f := uverbstest.NewFabric(t, &sim.Options{})
		dev := f.Device("sim0")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var waiters []*poll.Waiter
		var qs []*polledCQ
		var closers []*uverbs.CQ
		for range queues {
			q, err := dev.NewCQ(16, &uverbs.CQOptions{Events: true})
			if err != nil {
				t.Fatal(err)
			}
			p := &polledCQ{Queue: q}
			w, err := poll.NewWaiter(s, p)
			if err != nil {
				t.Fatal(err)
			}
			qs, waiters, closers = append(qs, p), append(waiters, w), append(closers, q)
			all.Go(func() {
				var wcs [16]uverbs.WC
				if n, err := w.Wait(ctx, wcs[:]); !errors.Is(err, context.Canceled) {
					t.Errorf("%d, %v", n, err)
				}
			})
		}
		for deadline, i := time.Now().Add(time.Minute), 0; i < queues; time.Sleep(time.Millisecond) {
			for i < queues && waiters[i].Stats().Parks > 0 {
				i++
			}
			if time.Now().After(deadline) {
				t.Fatalf("waiter %d does not sleep: %+v", i, waiters[i].Stats())
			}
		}
		polls := func() (n int64) {
			for _, q := range qs {
				n += q.polls.Load()
			}
			return n
		}
		before, used := polls(), processorTime(t)
		time.Sleep(idle)
		n, cost := polls()-before, processorTime(t)-used
		t.Logf("%T: %d waiters idle for %v: %d polls, %v of processor time", s, queues, idle, n, cost)
		if n != 0 {
			t.Errorf("%T: %d polls while idle", s, n)
		}
		cancel()
		all.Wait()
		for i, w := range waiters {
			if s := w.Stats(); s.Parks != 1 || s.Events != 0 || s.Spurious != 0 || s.Completions != 0 {
				t.Errorf("waiter %d: %+v", i, s)
			}
			if err := errors.Join(w.Close(), closers[i].Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// echo answers each message on its end of a link, polling without rest, until ctx ends.
func echo(ctx context.Context, e *uverbstest.End) error {
	var wcs [16]uverbs.WC
	for i := 0; ; i++ {
		n, err := e.CQ.Poll(wcs[:])
		if err != nil {
			return err
		}
		for _, w := range wcs[:n] {
			if err := w.Err(); err != nil {
				return err
			}
			if w.Side == uverbs.RecvSide {
				e.QP.RecvQueue().Recv(1, e.MR.Span(0, 64))
				e.QP.SendQueue().SendInline(2, pingText)
			}
		}
		if n > 0 {
			if err := errors.Join(e.QP.RecvQueue().Flush(), e.QP.SendQueue().Flush()); err != nil {
				return err
			}
		}
		if i%1024 == 0 {
			if ctx.Err() != nil {
				return nil
			}
			runtime.Gosched()
		}
	}
}

var pingText = []byte("sixteen bytes 16")

// What adaptive waiting gives of what busy waiting gives while the queue is loaded:
// round trips to a peer that polls without rest, with the one strategy and the other by
// turns in one process. GOVERBS_PAIRS sets how many.
func TestAdaptiveLoaded(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("declared skip: one processor: a busy waiter needs two")
	}
	pairs, trips := 3, 200
	if s := os.Getenv("GOVERBS_PAIRS"); s != "" {
		var err error
		if pairs, err = strconv.Atoi(s); err != nil || pairs < 2 {
			t.Fatalf("GOVERBS_PAIRS=%q", s)
		}
		trips = 5000
	}
	l := uverbstest.PairWith(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var peer sync.WaitGroup
	defer peer.Wait()
	defer cancel()
	l.B.QP.RecvQueue().Recv(1, l.B.MR.Span(0, 64))
	l.B.QP.RecvQueue().Recv(1, l.B.MR.Span(0, 64))
	l.B.Flush()
	peer.Go(func() {
		if err := echo(ctx, l.B); err != nil {
			t.Error(err)
		}
	})
	w, err := poll.NewWaiter(poll.Event{}, l.A.CQ)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	run := func(s poll.Strategy, n int) float64 {
		if err := w.SetStrategy(s); err != nil {
			t.Fatal(err)
		}
		var wcs [16]uverbs.WC
		start := time.Now()
		for range n {
			l.A.QP.RecvQueue().Recv(1, l.A.MR.Span(0, 64))
			l.A.QP.SendQueue().SendInline(2, pingText)
			l.A.Flush()
			for back := false; !back; {
				n, err := w.Wait(ctx, wcs[:])
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range wcs[:n] {
					if err := c.Err(); err != nil {
						t.Fatal(err)
					}
					back = back || c.Side == uverbs.RecvSide
				}
			}
		}
		return float64(time.Since(start)) / float64(n)
	}
	var busy, adaptive, event []float64
	adapt := poll.Adaptive{}
	run(adapt, trips)
	run(poll.Busy{}, trips)
	parks := uint64(0)
	for i := range pairs {
		// The one that comes second finds the processors as the other left them.
		if i%2 == 0 {
			busy = append(busy, run(poll.Busy{}, trips))
		}
		before := w.Stats().Parks
		adaptive = append(adaptive, run(adapt, trips))
		parks += w.Stats().Parks - before
		if i%2 == 1 {
			busy = append(busy, run(poll.Busy{}, trips))
		}
		event = append(event, run(poll.Event{}, trips/10))
	}
	for name, x := range map[string][]float64{"adaptive": adaptive, "event": event} {
		r, err := paired.New(busy, x, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("round trips a second, %s of busy: %.3f (90%% interval %.3f to %.3f, n %d); ns a trip: busy %.0f, %s %.0f", name, r.Mean, r.Low, r.High, r.N, paired.Median(busy), name, paired.Median(x))
	}
	t.Logf("adaptive slept %d times in %d trips", parks, pairs*trips)
}
