package uverbs

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Over random traffic on several queue pairs, with requests that are quiet, refused by
// the peer, flushed, void by a reset or discarded by Close, each status is counted as
// often as the program saw it, no request is timed twice, and no time outlives its
// request.
func TestStatsRandom(t *testing.T) {
	for seed := range uint64(4) {
		r := newRig(t, false)
		q, err := r.dev.NewCQ(300, &CQOptions{Shared: seed%2 == 1, Stats: &StatsOptions{Sample: 1 + int(seed%3)}, Grow: &Growth{To: 2000, At: 0.2}})
		if err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(seed, 11))
		var seen [statusCounts]uint64
		var all, quiet uint64 // posted requests
		polls, empty := uint64(0), uint64(0)
		poll := func(most int) int {
			wcs := make([]WC, most)
			n, err := q.Poll(wcs)
			if err != nil {
				t.Fatal(err)
			}
			if polls++; n == 0 {
				empty++
			}
			for _, w := range wcs[:n] {
				seen[w.Status]++
			}
			return n
		}
		drain := func() {
			for i := 0; i < 3; {
				if poll(32) == 0 {
					i++
				}
			}
		}
		link := func() {
			if err := r.b.Close(); err != nil {
				t.Fatal(err)
			}
			r.a, r.b = sampledQP(t, r, q), sampledQP(t, r, r.recvQ)
			if err := r.connect(); err != nil {
				t.Fatal(err)
			}
		}
		link()
		bad := r.peer.Regions[0]
		bad.RKey ^= 0x5500
		for range 400 {
			sq := r.a.SendQueue()
			for n := rnd.IntN(6); n > 0 && sq.Room() > 0; n-- {
				all++
				switch rnd.IntN(30) {
				case 0:
					sq.Write(1, bad.At(0), r.mr.Span(0, 8))
				case 1, 2, 3, 4, 5:
					quiet++
					sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8), Unsignaled)
				default:
					sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
				}
			}
			if err := sq.Flush(); err != nil {
				t.Fatal(err)
			}
			switch rnd.IntN(12) {
			case 0:
				poll(0)
			case 1, 2, 3, 4, 5:
				poll(1 + rnd.IntN(40))
			}
			state, err := r.a.QueryState()
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case rnd.IntN(40) == 0:
				if err := r.a.Close(); err != nil {
					t.Fatal(err)
				}
				drain()
				link()
			case state == StateErr || rnd.IntN(40) == 0:
				if err := r.a.Modify(StateReset); err != nil {
					t.Fatal(err)
				}
				drain()
				if err := r.a.Close(); err != nil {
					t.Fatal(err)
				}
				link()
			}
		}
		for end := time.Now().Add(patience); !r.a.sq.requests.Idle(); {
			if r.a.sq.requests.Quiet() && r.a.sq.Room() > 0 { // nobody hears of the last ones without another
				all++
				r.post(t, 1)
			}
			poll(32)
			if time.Now().After(end) {
				t.Fatal("requests do not end")
			}
		}
		s := q.Stats()
		if s.ByStatus != seen || s.Polls != polls || s.Empty != empty {
			t.Errorf("seed %d: %d polls, %d empty, saw %v, counted %+v", seed, polls, empty, seen, s)
		}
		if n := s.PostToCompletion.Count; n == 0 || n > all-quiet || n > seen[StatusSuccess] {
			t.Errorf("seed %d: %d of %d requests, %d of them quiet, are timed; %d succeeded", seed, n, all, quiet, seen[StatusSuccess])
		}
		if seen[StatusRemoteAccess] == 0 || seen[StatusFlushed] == 0 {
			t.Errorf("seed %d: too tame: %v", seed, seen)
		}
		// What is void is let go when something else completes.
		r.post(t, 1)
		for r.a.sq.requests.Outstanding() > 0 {
			poll(8)
		}
		metered(q).free(t)
	}
}

// liar is a ring whose device says anything.
type liar struct {
	toldRing
	rnd *rand.Rand
}

func (l *liar) Holds(uint32) bool { return l.rnd.IntN(2) == 0 }

func (l *liar) Capacity() uint32 { return []uint32{0, 1, 100, 1 << 24, 1<<32 - 1}[l.rnd.IntN(5)] }

// A device that lies about how full its ring is makes the gauges lie, and no more.
func TestStatsHostile(t *testing.T) {
	r := newRig(t, false)
	calls := 0
	q, told := r.statsQ(t, &StatsOptions{OnHighWater: func(u CQUsage) { calls++ }})
	l := &liar{rnd: rand.New(rand.NewPCG(12, 13))}
	l.CompletionRing, l.state = told.CompletionRing, told.state
	q.ring = l
	wcs := make([]WC, 64)
	var sum uint64
	for range 5000 {
		b := batch(l.rnd.IntN(65), Status(l.rnd.Uint32()))
		l.batches, sum = [][]WC{b}, sum+uint64(len(b))
		l.left.Store(l.rnd.Uint32())
		if n, err := q.Poll(wcs); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
		if u := q.Usage(); u.Depth != 100 || u.Occupied < 0 {
			t.Fatalf("%+v", u)
		}
	}
	if s := q.Stats(); s.Completions != sum || s.Polls != 5000 || calls == 0 {
		t.Errorf("%d completions, counted %+v; %d calls", sum, s, calls)
	}
}
