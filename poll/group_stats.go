package poll

import (
	"slices"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// GroupStats are counts of a Group.
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
	// Parks is how often it has slept, and Spurious how often it woke for nothing. A
	// park is counted when its events are taken, which may be before the next one.
	Parks, Spurious uint64
	// Spun is the time that went into looking again and again with Adaptive, and Slept
	// that of the parks.
	Spun, Slept time.Duration
	// Queues are those that it serves, in the order in which they came. The counts of
	// a queue end with its leaving.
	Queues []QueueStats
}

// QueueStats are the counts of one queue of a group.
type QueueStats struct {
	Queue cq.Queue
	// Number tells the queue from all others that the group has, or had.
	Number int
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

// pollerWaits are what the waiters of a poller have counted.
type pollerWaits struct {
	spurious    uint64
	spun, slept time.Duration
}

func (w *pollerWaits) add(s Stats) {
	w.spurious += s.Spurious
	w.spun += s.Spun
	w.slept += s.Slept
}

// waitBy notes what the poller waits by from now on.
func (p *groupPoller) waitBy(w *Waiter) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if p.waits != nil && p.waits != p.spinning { // that one goes on, and does neither
		p.waited.add(p.waits.Stats())
	}
	p.waits = w
}

// Stats returns the counts so far. They need not be of one moment.
func (g *Group) Stats() GroupStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	var s GroupStats
	for _, p := range g.pollers {
		waited := p.waited
		if p.waits != nil {
			waited.add(p.waits.Stats())
		}
		t := PollerStats{
			CPUs: slices.Clone(p.bound),
			// What is counted last is read first.
			EmptyRounds: p.count.empty.Load(),
			Rounds:      p.count.rounds.Load(),
			Parks:       p.count.parks.Load(),
			Spurious:    waited.spurious,
			Spun:        waited.spun,
			Slept:       waited.slept,
		}
		for _, m := range p.wanted {
			t.Queues = append(t.Queues, QueueStats{
				Queue:       m.q,
				Number:      m.number,
				Full:        m.count.full.Load(),
				Batches:     m.count.batches.Load(),
				Completions: m.count.completions.Load(),
				Events:      m.count.events.Load(),
				Picks:       m.picks,
				MaxGap:      time.Duration(m.count.gap.Load()),
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

// Metrics implements cq.MetricSource: the counts of Stats, with the labels group, which is
// GroupOptions.Name, poller and, for those of queues, queue, which is QueueStats.Number.
// A busy service whose share of empty rounds is above 0.3 has more pollers than work; a
// queue whose full batches grow as fast as its batches is flooded.
func (g *Group) Metrics() []cq.Metric {
	var all []cq.Metric
	for i, p := range g.Stats().Pollers {
		labels := []cq.Label{{Name: "group", Value: g.o.Name}, {Name: "poller", Value: strconv.Itoa(i)}}
		add := func(name, unit, help string, value float64) {
			all = append(all, cq.Metric{Name: name, Type: cq.MetricCounter, Unit: unit, Help: help, Labels: labels, Value: value})
		}
		add("goverbs_group_rounds", "", "Looks of a poller at all its queues.", float64(p.Rounds))
		add("goverbs_group_empty_rounds", "", "Looks of a poller at all its queues that found nothing.", float64(p.EmptyRounds))
		add("goverbs_group_parks", "", "Times that a poller slept.", float64(p.Parks))
		add("goverbs_group_spurious_wakeups", "", "Times that a poller woke for nothing.", float64(p.Spurious))
		add("goverbs_group_spun_seconds", "seconds", "Time that a poller spun.", p.Spun.Seconds())
		add("goverbs_group_slept_seconds", "seconds", "Time that a poller slept.", p.Slept.Seconds())
		for _, q := range p.Queues {
			labels = append(slices.Clone(labels[:2]), cq.Label{Name: "queue", Value: strconv.Itoa(q.Number)})
			add("goverbs_group_completions", "", "Completions of a queue that were handled.", float64(q.Completions))
			add("goverbs_group_batches", "", "Batches that a queue's completions were handled in.", float64(q.Batches))
			add("goverbs_group_full_batches", "", "Batches of a queue that were as large as the budget.", float64(q.Full))
			add("goverbs_group_events", "", "Events of a queue that were taken.", float64(q.Events))
		}
	}
	return all
}
