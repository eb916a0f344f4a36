package uverbs

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// meter is what a CQ tells of its poller's work. It is an interface so that programs
// which count nothing do not have the code: only options that ask for it make one. For
// the same reason its methods have no types that no others need.
type meter interface {
	// polled counts what a poll found, unless it is of the many that the queue's
	// tally is enough for: n completions of the ring, and whether that was all that
	// it held, and ends of requests that the device did not end.
	polled(n, ends int, drained bool)
	// level looks how full the ring was when a poll began that took n completions
	// from it.
	level(n int)
	// due does what polled, or crowded, left for before the next poll. The poller
	// calls it and holds nothing.
	due()
	// armed comes before each arm, event after each event.
	armed()
	event()
	// resized is told by the poller that the ring holds another number of
	// completions.
	resized()
	// crowded is told how many completions queue pairs claim, or would if they
	// could. The device's mu is held.
	crowded(claimed int)
	// sample makes a send queue note when requests are posted.
	sample(sq *SendQueue)
}

// cqMeter is the meter. The poller alone writes to it but for what is atomic; counters
// are read by anybody.
type cqMeter struct {
	q     *CQ
	opts  StatsOptions
	base  time.Time // clocks count from it
	every uint32    // one request in so many is sampled; 0: none

	pollTally
	failed [statusCounts]cq.Counter
	high   cq.Counter // the greatest occupancy

	events   atomic.Uint64
	spurious cq.Counter
	woken    atomic.Bool // an event was taken, and nothing polled since

	levels       [2]level      // alarm and growth
	above        uint32        // an occupancy from which on something changes; low: under which
	found        atomic.Uint32 // the occupancy when the alarm was raised
	chores       atomic.Uint32 // what due has to do
	policy       *Growth
	wanted       atomic.Int64 // completions that queue pairs claim or asked for, if they are why to grow
	grown, stuck cq.Counter

	arms           uint32 // until the next that is sampled
	armedAt        atomic.Int64
	armToEvent     cq.Histogram
	postToComplete cq.Histogram
	samples        samples
}

// The levels, and as bits, the chores.
const (
	alarm = iota
	growth
)

// maxBlind: of so many completions that polls take while they leave others, one poll
// looks how many it leaves; in small rings of fewer.
const maxBlind = 8

// metered is the meter of the queue, or nil.
func metered(q *CQ) *cqMeter {
	m, _ := q.meter.(*cqMeter)
	return m
}

// meterOf is the meter of a queue that is being made.
func meterOf(q *CQ) *cqMeter {
	if m := metered(q); m != nil {
		return m
	}
	m := &cqMeter{q: q, base: time.Now()}
	m.levels[alarm].chore, m.levels[growth].chore = 1<<alarm, 1<<growth
	q.meter, q.tally = m, &m.pollTally
	q.state.Failures = make([]uint32, statusCounts)
	q.state.Set(cq.Metered)
	return m
}

// now is a reading of the monotonic clock, never 0.
func (m *cqMeter) now() int64 { return int64(time.Since(m.base)) + 1 }

func (m *cqMeter) polled(n, ends int, drained bool) {
	all := n + ends
	if m.woken.Load() {
		m.woken.Store(false)
		if all == 0 {
			m.spurious.Add(1)
		}
	}
	bad := ends
	m.failed[StatusFlushed].Add(uint64(ends))
	if m.q.state.Load()&cq.Look != 0 {
		for i, n := range m.q.state.Failures {
			m.failed[i].Add(uint64(n))
			bad += int(n)
		}
		clear(m.q.state.Failures)
	}
	m.batches[bits.Len32(uint32(all-1))].Add(1)
	m.good.Add(uint64(all - bad))
	if all > 0 && m.samples.set.Load() != 0 {
		m.collect(bad != 0)
	}
	if m.q.state.Load()&cq.Look != 0 && m.samples.set.Load() == 0 {
		m.q.state.Clear(cq.Look)
		if m.samples.set.Load() != 0 || m.woken.Load() { // which may have come before that
			m.q.state.Set(cq.Look)
		}
	}
	if !drained || uint32(n)-m.low >= m.span {
		m.level(n)
	}
}

// level is how full a ring is to be for something to happen, once each time.
type level struct {
	share   float64 // of the depth
	at, low uint32  // completions: it is reached, and it is over
	chore   uint32  // what to do
	reached bool
}

// set makes the level one of a ring that holds depth completions.
func (l *level) set(depth int) {
	l.at, l.low, l.reached = math.MaxUint32, 0, false
	if l.share > 0 {
		l.at = uint32(max(math.Ceil(l.share*float64(depth)), 1))
		l.low = (l.at + 1) / 2
	}
}

// exceeded says whether n completions are as many as the level of a ring that holds
// depth.
func (l *level) exceeded(n, depth int) bool { return float64(n) >= l.share*float64(depth) }

func (m *cqMeter) level(n int) {
	m.blind = m.stride
	// It matters only if it was fuller than it has to be for something to happen, or
	// emptier.
	k := uint32(n)
	if k < m.above && !m.q.ring.Holds(m.above-k) && (k >= m.low || m.q.ring.Holds(m.low-k)) {
		return
	}
	was := k + unread(m.q.ring)
	if high := uint32(m.high.Load()); was > high {
		m.high.Add(uint64(was - high))
	}
	for i := range m.levels {
		l := &m.levels[i]
		switch {
		case l.reached:
			l.reached = was >= l.low
		case was >= l.at:
			l.reached = true
			if i == alarm {
				m.found.Store(was)
			}
			m.leave(l.chore)
		}
	}
	m.watch()
}

// watch settles what is remarkable.
func (m *cqMeter) watch() {
	m.above, m.low = uint32(m.high.Load())+1, 0
	for i := range m.levels {
		if l := &m.levels[i]; l.reached {
			m.low = max(m.low, l.low)
		} else {
			m.above = min(m.above, l.at)
		}
	}
	m.span = m.above - min(m.low, m.above)
}

// unread is how many completions are in a ring. What there is of them is there in order.
func unread(ring cq.CompletionRing) uint32 {
	low, top := uint32(0), ring.Capacity()
	for low < top {
		if mid := top - (top-low)/2; ring.Holds(mid) {
			low = mid
		} else {
			top = mid - 1
		}
	}
	return low
}

// leave leaves something to the next poll.
func (m *cqMeter) leave(chore uint32) {
	m.chores.Or(chore)
	m.q.state.Set(cq.Due)
}

func (m *cqMeter) due() {
	m.q.state.Clear(cq.Due)
	chores := m.chores.Swap(0)
	found := m.found.Load()
	if chores&(1<<growth) != 0 {
		m.policy.run(m)
	}
	if chores&(1<<alarm) != 0 {
		u := m.q.Usage()
		u.Occupied = int(found)
		m.opts.OnHighWater(u)
	}
}

func (m *cqMeter) resized() {
	m.q.dev.mu.Lock()
	room := m.q.room
	m.q.dev.mu.Unlock()
	for i := range m.levels {
		m.levels[i].set(room)
	}
	m.stride = int32(max(min(maxBlind, room/32), 1)) - 1
	m.blind = 0
	m.watch()
}

func (m *cqMeter) event() {
	m.events.Add(1)
	m.woken.Store(true)
	m.q.state.Set(cq.Look)
	if at := m.armedAt.Swap(0); at != 0 {
		m.armToEvent.Record(uint64(max(m.now()-at, 0)))
	}
}

func (m *cqMeter) armed() {
	if m.every == 0 {
		return
	}
	if m.arms > 0 {
		m.arms--
		m.armedAt.Store(0)
		return
	}
	m.arms = m.every - 1
	m.armedAt.Store(m.now())
}
