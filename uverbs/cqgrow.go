package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

// GrowthPolicy is what CQOptions.Grow can be: a *Growth, such as GrowTo makes.
type GrowthPolicy interface {
	grow(q *CQ, op string, compressed bool) error
}

// Growth makes a completion queue twice as deep, or more where that is not enough, when
// it fills up: when a poll finds so much in it, or when the queue pairs claim so much of
// it. A NewQP that does not fit fails with ErrCQFull as ever, and
// fits after the growth that it has asked for.
//
// The goroutine that polls exchanges the ring, at the beginning of its next Poll, as
// ResizeOwned does: completions in it stay, none is lost. That takes it a system call
// and memory; a poll that has nothing to grow allocates nothing. NewCQ refuses the
// policy where rings cannot be exchanged: see Resize and Compress.
type Growth struct {
	// To is the greatest depth. The device's limit, DeviceAttr.MaxCQE, holds too.
	To int
	// At is the share of the depth that makes the queue grow, above 0 and at most
	// 1; 0 means 0.8.
	At float64
	// OnGrow, if not nil, is told of each growth, by the poller, within its Poll and
	// with no lock held: the depth before and after, and the error of one that
	// failed, after which the depth is what it was, unless the ring was lost: then
	// the Poll says so too. It is tried again when the queue has been less than half
	// as full in between, or queue pairs claim more.
	OnGrow func(from, to int, err error)
}

// GrowTo makes a completion queue grow up to a depth.
func GrowTo(depth int) *Growth { return &Growth{To: depth} }

func (g *Growth) grow(q *CQ, op string, compressed bool) error {
	if g == nil {
		return nil
	}
	if g.To < 1 {
		return invalid("%s: Growth.To %d: at least 1", op, g.To)
	}
	if err := validShare(op, "Growth.At", g.At); err != nil {
		return err
	}
	if compressed {
		return fmt.Errorf("goverbs: %s: %s that grows: %w: its completions may be compressed, and such a ring cannot be exchanged", q.dev.info.Name, op, ErrNotSupported)
	}
	if err := q.dev.exchangesRings(op + " that grows"); err != nil {
		return err
	}
	m := meterOf(q)
	policy := *g
	policy.To = min(g.To, q.dev.attr.MaxCQE)
	m.policy, m.levels[growth].share = &policy, shareOr(g.At)
	return nil
}

func (m *cqMeter) crowded(claimed int) {
	if g, room := m.policy, m.q.room; g != nil && room < g.To && m.levels[growth].exceeded(claimed, room) {
		m.wanted.Store(int64(claimed))
		m.leave(1 << growth)
		go m.q.wakeWaiter() // which may call anything, and the device's lock is held
	}
}

// run makes the queue of m deeper. The poller calls it and holds nothing.
func (g *Growth) run(m *cqMeter) {
	q, d := m.q, m.q.dev
	wanted := int(m.wanted.Swap(0))
	d.mu.Lock()
	from := q.room
	d.mu.Unlock()
	if from >= g.To || q.state.Load()&(cq.Closed|cq.Dead) != 0 {
		return
	}
	to := min(2*from, g.To)
	for to < g.To && m.levels[growth].exceeded(wanted, to) {
		to = min(2*to, g.To)
	}
	err := q.ResizeOwned(to)
	if err != nil {
		m.stuck.Add(1)
	} else {
		m.grown.Add(1)
	}
	if g.OnGrow != nil {
		d.mu.Lock()
		to = q.room
		d.mu.Unlock()
		g.OnGrow(from, to, err)
	}
}
