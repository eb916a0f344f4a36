package poll

import (
	"io"
	"math"
	"strconv"
	"sync/atomic"

	"github.com/goverbs/goverbs/cq"
)

// Metrics makes a Waiter a [cq.MetricSource]. The label waiter tells waiters apart: it
// is a number that the process gives each when it is first asked. For a name that says
// more, write Stats().Metrics with labels of your own.
func (w *Waiter) Metrics() []cq.Metric {
	s := w.Stats()
	return s.Metrics(cq.Label{Name: "waiter", Value: strconv.FormatUint(w.number(), 10)})
}

// WriteOpenMetrics writes the statistics in the OpenMetrics text format. Those of several
// waiters and queues go into one text with [cq.WriteOpenMetrics].
func (w *Waiter) WriteOpenMetrics(out io.Writer) error { return cq.WriteOpenMetrics(out, w) }

// waiterNumbers counts the waiters that have a number.
var waiterNumbers atomic.Uint64

func (w *Waiter) number() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.num == 0 {
		w.num = waiterNumbers.Add(1)
	}
	return w.num
}

// Metrics are the statistics as metrics with these labels.
func (s *Stats) Metrics(labels ...cq.Label) []cq.Metric {
	counter := func(name, unit, help string, v float64) cq.Metric {
		return cq.Metric{Name: "goverbs_waiter_" + name, Type: cq.MetricCounter, Unit: unit, Help: help, Labels: labels, Value: v}
	}
	batches := cq.Metric{Name: "goverbs_waiter_batch_size", Type: cq.MetricHistogram, Help: "Completions found by one look that found some.", Labels: labels, Sum: float64(s.Completions)}
	sum := uint64(0)
	for i, n := range s.Batches {
		limit := float64(uint64(1) << i)
		if i == len(s.Batches)-1 {
			limit = math.Inf(1)
		}
		sum += n
		batches.Buckets = append(batches.Buckets, cq.Bucket{Limit: limit, Count: sum})
	}
	return []cq.Metric{
		counter("waits", "", "Calls of Wait.", float64(s.Waits)),
		counter("completions", "", "Completions that Wait returned.", float64(s.Completions)),
		counter("looks", "", "Rounds over the queues.", float64(s.Looks)),
		counter("empty_looks", "", "Rounds that found nothing. Alert when they are more than 30% of all in a busy service.", float64(s.EmptyLooks)),
		counter("parks", "", "Times that the waiter slept.", float64(s.Parks)),
		counter("events", "", "Sleeps that a completion event ended.", float64(s.Events)),
		counter("spurious_wakeups", "", "Sleeps that ended with neither a completion nor a reason to return.", float64(s.Spurious)),
		counter("spun_seconds", "seconds", "Time that went into looking again and again.", s.Spun.Seconds()),
		counter("slept_seconds", "seconds", "Time asleep, waking included.", s.Slept.Seconds()),
		batches,
	}
}
