package poll

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// member is a queue of a group. It is a queue itself: a Waiter that polls it has the
// completions handled, and learns only that there were some. So any strategy serves a
// group, and knows nothing of it.
type member struct {
	count memberCounters // first, as such counters have to be

	p      *groupPoller
	q      cq.Queue
	number int
	gone   chan struct{} // closed when the poller has let go

	// out is set when the queue is to leave: nothing is polled any more.
	out atomic.Bool

	// Guarded by the group's mu.
	picks  int
	served bool // the poller knows the queue
	freed  bool // gone is closed

	// The poller's.
	pollErr error         // what Poll said, which stays
	waitErr error         // what arming, or taking an event, said
	visited time.Duration // the poller's handling, at the last visit
	mod     *Moderator
	cpus    []int // near the queue's device, once located
	located bool
}

// memberCounters are raised by the poller alone; gap is a time.Duration.
type memberCounters struct{ completions, batches, full, events, gap cq.Counter }

func newMember(p *groupPoller, q cq.Queue, number int) *member {
	m := &member{p: p, q: q, number: number, gone: make(chan struct{})}
	if policy := p.g.o.Moderation; policy != nil {
		if t, ok := q.(Moderated); ok {
			m.mod = newModerator(t, policy)
		}
	}
	return m
}

// Poll is for a Waiter.
func (m *member) Poll([]cq.WC) (int, error) { return m.visit(), nil }

// visit takes a budget of completions and has them handled. It returns 1 if the poller
// has something else to do than to wait, and else 0.
func (m *member) visit() int {
	p := m.p
	if m.out.Load() || m.pollErr != nil {
		p.looked(false)
		return 0
	}
	n, err := m.q.Poll(p.buf)
	if p.g.o.MeasureGaps {
		m.measure()
	}
	if n > 0 {
		m.handle(n)
	} else if err != nil {
		m.pollErr, p.failing = err, true
	}
	worked := n > 0 || err != nil
	p.looked(worked)
	if worked {
		return 1
	}
	return 0
}

// handle has the handler see what is in the poller's buffer.
func (m *member) handle(n int) {
	p := m.p
	m.count.completions.Add(uint64(n))
	m.count.batches.Add(1)
	if n == len(p.buf) {
		m.count.full.Add(1)
	}
	if m.mod != nil {
		m.mod.Completions(n)
	}
	if !p.g.o.MeasureGaps {
		p.g.handler(m.q, p.buf[:n])
		return
	}
	start := time.Now()
	p.g.handler(m.q, p.buf[:n])
	p.handling += time.Since(start)
}

// measure notes how long the queue was not visited. What takes time between two visits
// is handlers, and sleep, which does not count.
func (m *member) measure() {
	now := m.p.handling
	if d := uint64(now - m.visited); d > m.count.gap.Load() {
		m.count.gap.Add(d - m.count.gap.Load())
	}
	m.visited = now
}

// looked counts a visit.
func (p *groupPoller) looked(found bool) {
	p.fruit = p.fruit || found
	p.taking = false
	if p.looks++; p.looks < len(p.serving) {
		return
	}
	p.count.rounds.Add(1)
	if !p.fruit {
		p.count.empty.Add(1)
	}
	p.looks, p.fruit = 0, false
}

// Arm is for a Waiter.
func (m *member) Arm(solicited bool) error {
	if m.out.Load() {
		return nil
	}
	err := m.q.Arm(solicited)
	if err != nil {
		m.waitErr, m.p.failing = err, true
	}
	return err
}

// EventsFirst is for a Waiter.
func (m *member) EventsFirst() bool {
	q, ok := m.q.(cq.EventsFirst)
	return ok && q.EventsFirst()
}

// TakeEvent is for a Waiter. It takes events once for each sleep.
func (m *member) TakeEvent() (bool, error) {
	p := m.p
	if !p.taking {
		p.taking = true
		p.count.parks.Add(1)
	}
	if m.out.Load() {
		return false, nil
	}
	ok, err := m.q.TakeEvent()
	if err != nil {
		m.waitErr, p.failing = err, true
	}
	if ok {
		m.count.events.Add(1)
		if m.mod != nil {
			m.mod.Event()
		}
	}
	return ok, err
}

// Attach is for a Waiter.
func (m *member) Attach(wake func()) (fd int, detach func(), err error) {
	fd, detach, err = m.q.Attach(wake)
	if err != nil {
		m.waitErr, m.p.failing = err, true
	}
	return fd, detach, err
}

// unmoderate leaves the queue as it was found. It is the poller's.
func (m *member) unmoderate() {
	if m.mod != nil {
		m.mod.Close() // fails on a queue that has failed, where it does not matter
		m.mod = nil
	}
}

// letGo says that the poller does not touch the queue any more. The group's mu is held.
func (m *member) letGo() {
	if !m.freed {
		m.freed = true
		close(m.gone)
		g := m.p.g
		g.leaving = slices.DeleteFunc(g.leaving, func(o *member) bool { return o == m })
	}
}
