package poll

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// GroupStats are counts of a Group. Those of a poller that spins are up to 256 rounds
// old, others are as of now.
type GroupStats struct {
	Pollers []PollerStats // by number
}

// PollerStats are the counts of one poller.
type PollerStats struct {
	// CPUs are the processors that the poller is bound to; none if it is not bound.
	CPUs []int
	// Rounds is how often it has looked at all its queues, and EmptyRounds in how many
	// of these there was nothing.
	Rounds, EmptyRounds uint64
	// Parks is how often it has slept.
	Parks uint64
	// Queues are those that it serves. The counts of a queue end with its leaving.
	Queues []QueueStats
}

// QueueStats are the counts of one queue of a group.
type QueueStats struct {
	Queue cq.Queue
	// Completions were handled in Batches, of which Full were as large as the budget:
	// more may have been waiting. A queue with many of these is a flooded one.
	Completions, Batches, Full uint64
	// Events were taken.
	Events uint64
	// Picks is how many queue pairs are on it by Group.Pick.
	Picks int
	// MaxGap is the longest time that handlers took between two visits of the queue,
	// with GroupOptions.MeasureGaps.
	MaxGap time.Duration
}

// Stats returns the counts so far.
func (g *Group) Stats() GroupStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	var s GroupStats
	for _, p := range g.pollers {
		t := PollerStats{
			CPUs:        slices.Clone(p.bound),
			EmptyRounds: p.empty.Load(),
			Rounds:      p.rounds.Load(),
			Parks:       p.parks.Load(),
		}
		for _, m := range p.wanted {
			t.Queues = append(t.Queues, QueueStats{
				Queue:       m.q,
				Full:        m.full.Load(),
				Batches:     m.batches.Load(),
				Completions: m.completions.Load(),
				Events:      m.events.Load(),
				Picks:       m.picks,
				MaxGap:      time.Duration(m.gap.Load()),
			})
		}
		s.Pollers = append(s.Pollers, t)
	}
	return s
}

// Completions is how many completions the group's present queues had.
func (s GroupStats) Completions() (n uint64) {
	for _, p := range s.Pollers {
		for _, q := range p.Queues {
			n += q.Completions
		}
	}
	return n
}
