package uverbs

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// toldRing is a ring that gives what it is told to: the next of its batches to each poll.
type toldRing struct {
	cq.CompletionRing
	batches [][]WC
	left    atomic.Uint32 // how many completions are there after that
	state   *cq.State
}

func (s *toldRing) Poll(wcs []WC) (int, bool) {
	n := 0
	if len(s.batches) > 0 {
		n = copy(wcs, s.batches[0])
		s.batches = s.batches[1:]
		for i := range wcs[:n] {
			if wcs[i].Status != StatusSuccess {
				s.state.Failed(wcs[i].Status) // as Endpoint.Fail does
			}
		}
	}
	return n, s.left.Load() == 0
}

func (s *toldRing) Holds(n uint32) bool { return s.left.Load() >= n }

// told makes a queue of 100 completions with such a ring.
func told(t testing.TB, r *rig, opts *CQOptions) (*CQ, *toldRing) {
	t.Helper()
	q, err := r.dev.NewCQ(100, opts)
	if err != nil {
		t.Fatal(err)
	}
	s := &toldRing{CompletionRing: q.ring, state: &q.state}
	q.ring = s
	q.room = 100
	q.meter.resized()
	return q, s
}

func (r *rig) statsQ(t testing.TB, opts *StatsOptions) (*CQ, *toldRing) {
	t.Helper()
	return told(t, r, &CQOptions{Stats: opts})
}

// batch is n completions of the statuses, the last of them repeated.
func batch(n int, statuses ...Status) []WC {
	all := make([]WC, n)
	for i := range all {
		if len(statuses) > 0 {
			all[i].Status = statuses[min(i, len(statuses)-1)]
		}
	}
	return all
}

// Everything that polls find is counted, once.
func TestStatsCount(t *testing.T) {
	r := newRig(t, false)
	for _, shared := range []bool{false, true} {
		q, ring := told(t, r, &CQOptions{Shared: shared, Stats: &StatsOptions{}})
		rnd := rand.New(rand.NewPCG(5, 6))
		var want CQStats
		wcs := make([]WC, 1<<17)
		for range 2000 {
			n := 0
			if rnd.IntN(3) > 0 {
				n = 1 + rnd.IntN(1<<rnd.IntN(10))
			}
			b := batch(n)
			for i := range b {
				if rnd.IntN(50) == 0 {
					b[i].Status = Status(rnd.IntN(30))
				}
				want.ByStatus[min(int(b[i].Status), statusCounts-1)]++
				want.Completions++
			}
			ring.batches = append(ring.batches, b)
			want.Polls++
			if n == 0 {
				want.Empty++
			} else {
				want.Batches[int(math.Ceil(math.Log2(float64(n))))]++
			}
			want.HighWater = max(want.HighWater, n)
			if got, err := q.Poll(wcs); got != n || err != nil {
				t.Fatalf("poll: %d, %v, want %d", got, err, n)
			}
		}
		for _, n := range []int{1 << 16, 1<<16 + 1, 1 << 17} {
			ring.batches = append(ring.batches, batch(n))
			want.Polls++
			want.Completions += uint64(n)
			want.ByStatus[0] += uint64(n)
			want.HighWater = max(want.HighWater, n)
			want.Batches[batchSizes-1]++
			q.Poll(wcs)
		}
		if got := q.Stats(); got != want {
			t.Errorf("shared %v: counted\n%+v, want\n%+v", shared, got, want)
		}
		if s := q.Stats(); s.EmptyShare() != float64(want.Empty)/float64(want.Polls) {
			t.Errorf("empty share %v", s.EmptyShare())
		}
	}
	if s := new(CQStats); s.EmptyShare() != 0 {
		t.Error("an empty share without polls")
	}
}

// A queue without the option counts nothing.
func TestStatsOff(t *testing.T) {
	r := newRig(t, false)
	for _, opts := range []*CQOptions{nil, {Stats: (*StatsOptions)(nil), Grow: (*Growth)(nil)}} {
		q, err := r.dev.NewCQ(10, opts)
		if err != nil {
			t.Fatal(err)
		}
		q.Poll(make([]WC, 1))
		if s := q.Stats(); s != (CQStats{}) || q.state.Load() != 0 || q.meter != nil {
			t.Errorf("counted %+v, state %b, meter %v", s, q.state.Load(), q.meter)
		}
	}
	r.sendQ.mailbox.kill(r.sendQ, ErrOverrun)
	r.recvQ.mailbox.kill(r.recvQ, ErrDeviceGone)
	if s := r.sendQ.Stats(); s != (CQStats{Overruns: 1}) {
		t.Errorf("after an overrun: %+v", s)
	}
	if s := r.recvQ.Stats(); s != (CQStats{}) {
		t.Errorf("after the device is gone: %+v", s)
	}
}

func TestStatsOptionsRefused(t *testing.T) {
	r := newRig(t, false)
	for _, c := range []struct {
		o    CQOptions
		says string
	}{
		{CQOptions{Stats: &StatsOptions{HighWater: -0.1}}, "HighWater -0.1"},
		{CQOptions{Stats: &StatsOptions{HighWater: 1.01}}, "HighWater 1.01"},
		{CQOptions{Stats: &StatsOptions{HighWater: math.NaN()}}, "HighWater NaN"},
		{CQOptions{Stats: &StatsOptions{Sample: math.MaxInt32}}, "Sample 2147483647"},
		{CQOptions{Grow: GrowTo(0)}, "Growth.To 0"},
		{CQOptions{Grow: &Growth{To: 8, At: 2}}, "Growth.At 2"},
	} {
		_, err := r.dev.NewCQ(10, &c.o)
		says(t, c.says, err, ErrInvalid, c.says)
	}
}

// The function is called when the queue fills up, once, until it has been far emptier.
func TestHighWater(t *testing.T) {
	r := newRig(t, false)
	var calls []CQUsage
	q, ring := r.statsQ(t, &StatsOptions{OnHighWater: func(u CQUsage) { calls = append(calls, u) }})
	wcs := make([]WC, 128)
	for i, c := range []struct {
		batch, left, calls int
		drained            bool
	}{
		{batch: 79, calls: 0},
		{batch: 80, calls: 0}, // the next poll tells
		{batch: 0, calls: 1},
		{batch: 79, calls: 1},
		{batch: 10, left: 70, calls: 1},
		{batch: 10, left: 60, calls: 2},
		{batch: 10, left: 90, calls: 2}, // it has not been below 40
		{batch: 10, left: 30, calls: 2},
		{batch: 10, left: 90, calls: 2},
		{batch: 10, left: 29, calls: 2},
		{batch: 10, left: 90, calls: 2},
		{batch: 1, calls: 3},
	} {
		ring.batches = append(ring.batches, batch(c.batch))
		ring.left.Store(uint32(c.left))
		if n, err := q.Poll(wcs); n != c.batch || err != nil {
			t.Fatalf("poll %d: %d, %v", i, n, err)
		}
		if len(calls) != c.calls {
			t.Fatalf("%d calls after poll %d, want %d: %+v", len(calls), i, c.calls, calls)
		}
	}
	for i, want := range []int{80, 80, 100} {
		if calls[i].Occupied != want || calls[i].Depth != 100 {
			t.Errorf("call %d: %+v, want %d occupied", i, calls[i], want)
		}
	}
	if s := q.Stats(); s.HighWater != 100 {
		t.Errorf("high-water %d", s.HighWater)
	}
	if u := q.Usage(); u != (CQUsage{Depth: 100, HighWater: 100}) {
		t.Errorf("usage %+v", u)
	}
}

// Polls that take few of many miss the high water by less than is documented, however
// the queue fills and empties.
func TestHighWaterOfSmallPolls(t *testing.T) {
	r := newRig(t, false)
	rnd := rand.New(rand.NewPCG(21, 22))
	for _, depth := range []int{1, 31, 63, 64, 100, 250, 1000} {
		slack := max(min(7, depth/32-1), 0)
		wcs := make([]WC, 12)
		for range 4 {
			q, err := r.dev.NewCQ(1000, &CQOptions{Stats: &StatsOptions{}})
			if err != nil {
				t.Fatal(err)
			}
			ring := &toldRing{CompletionRing: q.ring, state: &q.state}
			q.ring, q.room = ring, depth
			q.meter.resized()
			there, high := 0, 0
			for range 1000 {
				there = min(there+rnd.IntN(4), depth)
				if rnd.IntN(100) == 0 {
					there = min(there+rnd.IntN(depth+1), depth)
				}
				high = max(high, there)
				n := min(there, 1+rnd.IntN(4)+rnd.IntN(2)*rnd.IntN(8))
				there -= n
				ring.batches = append(ring.batches[:0], batch(n))
				ring.left.Store(uint32(there))
				if got, err := q.Poll(wcs); got != n || err != nil {
					t.Fatal(got, err)
				}
				if there > 0 && n <= slack {
					continue // the next polls find most of what this one did
				}
				if got := int(metered(q).high.Load()); got > high || got < high-slack {
					t.Fatalf("depth %d: high water %d, want %d, or up to %d less", depth, got, high, slack)
				}
			}
		}
	}
}

// What the function does cannot break the queue.
func TestHighWaterCallbacks(t *testing.T) {
	r := newRig(t, true)
	var q *CQ
	for name, c := range map[string]struct {
		call func(CQUsage)
		err  error
	}{
		"methods": {call: func(CQUsage) {
			_, _, _, _ = q.Stats(), q.Usage(), q.Depth(), q.Metrics()
			if err := errors.Join(q.Arm(false), q.ResizeOwned(200)); err != nil {
				t.Error(err)
			}
		}},
		"close": {call: func(CQUsage) {
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}, err: os.ErrClosed},
		"panic": {call: func(CQUsage) { panic("the program's") }},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				var err error
				q, err = r.dev.NewCQ(100, &CQOptions{Shared: shared, Events: true, Stats: &StatsOptions{OnHighWater: c.call}})
				if err != nil {
					t.Fatal(err)
				}
				real := q.ring
				q.ring = &toldRing{CompletionRing: real, batches: [][]WC{batch(127)}}
				wcs := make([]WC, 127)
				if n, err := q.Poll(wcs); n != 127 || err != nil {
					t.Fatal(n, err)
				}
				q.ring = real
				func() {
					defer func() {
						if p := recover(); (p != nil) != (name == "panic") {
							t.Errorf("panic %v", p)
						}
					}()
					if n, err := q.Poll(wcs); n != 0 || !errors.Is(err, c.err) {
						t.Errorf("poll: %d, %v, want %v", n, err, c.err)
					}
				}()
				if n, err := q.Poll(wcs); n != 0 || !errors.Is(err, c.err) {
					t.Errorf("poll after it: %d, %v, want %v", n, err, c.err)
				}
				if err := q.Close(); c.err == nil && err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
	}
}

// Counting, and what comes of it, allocates nothing.
func TestStatsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("declared skip: the race detector itself allocates")
	}
	r := newRig(t, true)
	for _, shared := range []bool{false, true} {
		q, ring := told(t, r, &CQOptions{Shared: shared, Events: true, Stats: &StatsOptions{Sample: 1, OnHighWater: func(CQUsage) {}}, Grow: GrowTo(100)})
		wcs := make([]WC, 128)
		all := [][]WC{batch(90), nil, batch(3, StatusFlushed), batch(1)}
		if n := testing.AllocsPerRun(100, func() {
			ring.batches = all
			for i := range all {
				ring.left.Store(uint32(i % 2 * 5))
				q.Poll(wcs)
			}
			q.Stats()
			q.Usage()
		}); n != 0 {
			t.Errorf("shared %v: polling allocates %v times", shared, n)
		}
		q.meter.armed()
		if n := testing.AllocsPerRun(100, func() {
			q.meter.armed()
			q.meter.event()
		}); n != 0 {
			t.Errorf("shared %v: events allocate %v times", shared, n)
		}
	}
}

// What any goroutine may call is called while others poll.
func TestStatsBesidePollers(t *testing.T) {
	r := newRig(t, false)
	var high atomic.Int32
	q, err := r.dev.NewCQ(20, &CQOptions{Shared: true, Stats: &StatsOptions{Sample: 1, HighWater: 0.05, OnHighWater: func(CQUsage) { high.Add(1) }}, Grow: &Growth{To: 500, At: 0.1}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 8, RecvDepth: 4})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.pd.NewQP(RC, &QPOptions{SendCQ: r.sendQ, RecvCQ: r.recvQ, SendDepth: 8, RecvDepth: 4})
	if err != nil {
		t.Fatal(err)
	}
	r.a, r.b = a, b
	if err := r.connect(); err != nil {
		t.Fatal(err)
	}
	const total = 400
	sq, posted := a.SendQueue(), 0
	post := func() {
		for posted < total && sq.Room() > 0 {
			sq.Write(uint64(posted), r.peer.Regions[0].At(0), r.mr.Span(0, 8))
			posted++
		}
		if err := sq.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	post() // so many at once that the queue grows, however fast they are polled later
	var got atomic.Int32
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var wcs [4]WC
			for got.Load() < total {
				n, err := q.Poll(wcs[:])
				if err != nil {
					t.Error(err)
					return
				}
				got.Add(int32(n))
				runtime.Gosched()
			}
		})
	}
	wg.Go(func() {
		for last := uint64(0); got.Load() < total; {
			s := q.Stats()
			if s.Completions < last {
				t.Errorf("%d completions after %d", s.Completions, last)
				return
			}
			last = s.Completions
			if u := q.Usage(); u.Occupied > u.Depth && u.Depth >= 20 {
				t.Errorf("%+v", u)
				return
			}
			var text bytes.Buffer
			if err := q.WriteOpenMetrics(&text); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	for posted < total {
		post()
	}
	wg.Wait()
	s := q.Stats()
	if s.Completions != total || s.ByStatus[StatusSuccess] != total || s.PostToCompletion.Count == 0 || s.PostToCompletion.Count > total {
		t.Errorf("%+v", s)
	}
	if high.Load() == 0 || s.HighWater == 0 || s.Grown == 0 {
		t.Errorf("%d calls, high-water %d, grown %d times", high.Load(), s.HighWater, s.Grown)
	}
}

// The metrics of queues with and without statistics are one valid text.
func TestCQMetrics(t *testing.T) {
	r := newRig(t, false)
	q, ring := r.statsQ(t, &StatsOptions{Name: `a "queue"`})
	ring.batches = [][]WC{batch(3, StatusSuccess, StatusFlushed, 99), nil, batch(2, Status(17))}
	for range 3 {
		q.Poll(make([]WC, 4))
	}
	other, _ := r.statsQ(t, &StatsOptions{})
	var b strings.Builder
	if err := cq.WriteOpenMetrics(&b, q, other, r.sendQ); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, line := range []string{
		"# TYPE goverbs_cq_depth gauge",
		`goverbs_cq_depth{device="rxe0",cq="a \"queue\""} 100`,
		`goverbs_cq_committed{device="rxe0",cq="` + strconv.FormatUint(r.sendQ.number(), 10) + `"} 32`,
		`goverbs_cq_completions_total{device="rxe0",cq="a \"queue\"",status="success"} 1`,
		`goverbs_cq_completions_total{device="rxe0",cq="a \"queue\"",status="flushed"} 1`,
		`goverbs_cq_completions_total{device="rxe0",cq="a \"queue\"",status="invalid EE context number"} 2`,
		`goverbs_cq_completions_total{device="rxe0",cq="a \"queue\"",status="other"} 1`,
		`goverbs_cq_completions_total{device="rxe0",cq="` + strconv.FormatUint(other.number(), 10) + `",status="transport retry exceeded"} 0`,
		`goverbs_cq_polls_total{device="rxe0",cq="a \"queue\""} 3`,
		`goverbs_cq_empty_polls_total{device="rxe0",cq="a \"queue\""} 1`,
		`goverbs_cq_batch_size_bucket{device="rxe0",cq="a \"queue\"",le="1.0"} 0`,
		`goverbs_cq_batch_size_bucket{device="rxe0",cq="a \"queue\"",le="2.0"} 1`,
		`goverbs_cq_batch_size_bucket{device="rxe0",cq="a \"queue\"",le="+Inf"} 2`,
		`goverbs_cq_batch_size_sum{device="rxe0",cq="a \"queue\""} 5`,
		`goverbs_cq_high_water{device="rxe0",cq="a \"queue\""} 3`,
		"# UNIT goverbs_cq_post_to_completion_seconds seconds",
		`goverbs_cq_post_to_completion_seconds_count{device="rxe0",cq="a \"queue\""} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
			break
		}
	}
	if strings.Contains(text, "EE context number") && strings.Count(text, "EE context number") != 1 {
		t.Error("a status of no device where there was none")
	}
	if n := strings.Count(text, "# EOF"); n != 1 || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("%d ends", n)
	}
	if err := cq.WriteOpenMetrics(&b, q, q); err == nil {
		t.Error("the same queue twice")
	}
	if err := cq.WriteOpenMetrics(&b, r.sendQ, newRig(t, false).sendQ); err != nil {
		t.Errorf("queues of a device that is open twice: %v", err)
	}
}
