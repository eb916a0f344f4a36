package poll

import (
	"math/bits"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// Stats is what a Waiter has done since it was made.
type Stats struct {
	// Waits counts calls of Wait, and Completions what they returned.
	Waits, Completions uint64
	// Looks counts rounds over the waiter's queues, EmptyLooks those that found
	// nothing. A busy service whose empty share is above 0.3 has more pollers
	// than work.
	Looks, EmptyLooks uint64
	// Parks counts how often the waiter slept, Events the parks that a device
	// ended by reporting a completion, and Spurious those that ended with
	// neither a completion nor a reason to return from Wait; a switch of strategy
	// may be one of these. An event is counted when it is taken, which the next
	// Wait may do.
	Parks, Events, Spurious uint64
	// Spun is the time that went into looking again and again, Slept that of the
	// parks, waking included. Spinning for less than some microseconds is reckoned
	// from the number of looks, as reading a clock costs more than a look.
	Spun, Slept time.Duration
	// Batches says how many completions the looks that found some found:
	// Batches[0] counts those with 1, Batches[i] those with more than 1<<(i-1)
	// and at most 1<<i, and the last one also all larger ones.
	Batches [BatchSizes]uint64
}

// BatchSizes is how many sizes of batches Stats tells apart: 1, 2, 4 and so on up to
// 128, and more.
const BatchSizes = 9

// EmptyShare is the share of looks that found nothing, from 0 to 1.
func (s *Stats) EmptyShare() float64 { return share(s.EmptyLooks, s.Looks) }

// SpinShare is the share of the waiting that was spinning, from 0 to 1.
func (s *Stats) SpinShare() float64 { return share(uint64(s.Spun), uint64(s.Spun+s.Slept)) }

func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// counters are the numbers of one poller, which alone raises them.
type counters struct {
	waits, looks, found, completions cq.Counter
	parks, events, spurious          cq.Counter
	spun, slept                      cq.Counter // nanoseconds
	batches                          [BatchSizes]cq.Counter
}

// took counts a look that found n completions, n > 0.
func (c *counters) took(n int) {
	c.found.Add(1)
	c.completions.Add(uint64(n))
	c.batches[min(bits.Len(uint(n-1)), BatchSizes-1)].Add(1)
}

// Stats returns the numbers so far. Any goroutine may call it, at any time; beside a
// Wait that is under way the numbers need not be of one moment.
func (w *Waiter) Stats() Stats {
	c := &w.count
	s := Stats{
		// What is counted last is read first, so that no part exceeds its whole.
		Completions: c.completions.Load(),
		Spurious:    c.spurious.Load(),
		Events:      c.events.Load(),
		Parks:       c.parks.Load(),
		Spun:        time.Duration(c.spun.Load()),
		Slept:       time.Duration(c.slept.Load()),
	}
	for i := range s.Batches {
		s.Batches[i] = c.batches[i].Load()
	}
	// At most one look is under way, which is not known to be empty.
	found := c.found.Load()
	s.Looks = max(c.looks.Load(), found)
	s.EmptyLooks = s.Looks - found
	s.Waits = c.waits.Load()
	return s
}
