package uverbs

import (
	"errors"
	"io"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// Metering is what CQOptions.Stats can be: a *StatsOptions.
type Metering interface {
	count(q *CQ, op string) error
}

// StatsOptions make a completion queue count. The zero value counts all that CQStats
// has, and times one request in 64.
//
// Counting takes the poller less than 2 ns for each completion, of a queue that holds 64
// or more. Of a lesser one, or one that is nearly full, each poll looks what it leaves if
// that is anything, which takes some 3 ns more. Timing takes two readings of the clock,
// some 40 ns each, for each request that is timed.
type StatsOptions struct {
	// Name is the queue's in metrics, which otherwise have a number, unique in the
	// process.
	Name string
	// Sample: one request in so many is timed, and one arm. 0 means 64, and less
	// than 0 none.
	Sample int
	// HighWater is the share of the depth that OnHighWater is about, above 0 and
	// at most 1; 0 means 0.8.
	HighWater float64
	// OnHighWater, if not nil, is called when a poll found the queue filled to
	// HighWater, and not again before polls have found it less than half as full
	// as that. u.Occupied is what that poll found.
	//
	// The goroutine that polls calls it, at the beginning of its next Poll, before
	// that takes any completion; and it holds no lock, so the function may call all
	// methods of the queue but Poll, ResizeOwned and Close among them. Should it
	// panic, that Poll has taken nothing.
	OnHighWater func(u CQUsage)
}

const (
	defaultSample    = 64
	defaultHighWater = 0.8
)

func (o *StatsOptions) count(q *CQ, op string) error {
	if o == nil {
		return nil
	}
	if err := validShare(op, "StatsOptions.HighWater", o.HighWater); err != nil {
		return err
	}
	if int64(o.Sample) > math.MaxInt32/2 {
		return invalid("%s: StatsOptions.Sample %d: at most %d", op, o.Sample, math.MaxInt32/2)
	}
	m := meterOf(q)
	m.opts = *o
	switch {
	case o.Sample == 0:
		m.every = defaultSample
	case o.Sample > 0:
		m.every = uint32(o.Sample)
	}
	if o.OnHighWater != nil {
		m.levels[alarm].share = shareOr(o.HighWater)
	}
	return nil
}

// validShare refuses what is no share of a depth.
func validShare(op, name string, v float64) error {
	if !(v >= 0 && v <= 1) {
		return invalid("%s: %s %v: it is a share of the depth, above 0 and at most 1", op, name, v)
	}
	return nil
}

func shareOr(v float64) float64 {
	if v == 0 {
		return defaultHighWater
	}
	return v
}

// CQStats is what was counted of a completion queue. Late, Stray and Overruns are
// always counted; all else is zero unless the queue was made with CQOptions.Stats.
//
// In a service: Overruns above 0 is an alarm, completions are lost and the queue is
// dead; so is Stray above 0, the device is broken. EmptyShare above 0.3 while the
// service is busy says that its poller spins for little: wait for events, or adaptively
// (package poll). Look at PostToCompletion.P99 when it exceeds what the service can
// afford: a far greater P999 alone is most often the scheduler's or the collector's.
// HighWater near Usage's Depth asks for a deeper queue before it overruns.
type CQStats struct {
	// Late completions belonged to queue pairs that were closed before they
	// were polled.
	Late uint64
	// Stray completions belonged to no outstanding request. On a sound
	// device there are none.
	Stray uint64
	// Overruns is 1 when the queue is dead because completions were lost, else 0.
	Overruns uint64

	// Completions that Poll returned, and how many of them have which Status:
	// ByStatus[s] those of Status s, and the last one those of numbers that
	// InfiniBand does not define.
	Completions uint64
	ByStatus    [statusCounts]uint64
	// Polls is how often Poll looked, Empty how often it found nothing to return.
	Polls, Empty uint64
	// Batches counts the other polls by how many completions they returned:
	// Batches[0] those with one, Batches[i] those with more than 1<<(i-1) and up
	// to 1<<i, and the last one all larger ones too.
	Batches [batchSizes]uint64
	// Events that TakeEvent consumed; Spurious are those after which the next Poll
	// found nothing.
	Events, Spurious uint64
	// HighWater is the greatest number of completions that a poll found in the
	// ring. It may be too small by 7, and by less than a 32nd of the depth: of
	// polls that take few of many, not each counts how many it leaves.
	HighWater int
	// Grown is how often the queue became deeper by CQOptions.Grow, and GrowthErrors
	// how often that failed.
	Grown, GrowthErrors uint64
	// ArmToEvent is the time from Arm to the event being taken, which is how long
	// waits were, and PostToCompletion that from the Flush of a send-side request
	// to the Poll that returned its completion, of those that succeeded. Only some
	// are timed, see StatsOptions.Sample, at most one a Flush. Receives are not
	// timed: they wait for the peer.
	ArmToEvent, PostToCompletion LatencyStats
}

const (
	statusCounts = int(cq.StatusGeneral) + 2
	batchSizes   = 17
)

// EmptyShare is the share of polls that found nothing: 0 to 1, or 0 without any polls.
func (s *CQStats) EmptyShare() float64 {
	if s.Polls == 0 {
		return 0
	}
	return float64(s.Empty) / float64(s.Polls)
}

// LatencyStats sums up times that were measured. The quantiles are too large by less
// than one part in 32.
type LatencyStats struct {
	Count               uint64
	P50, P99, P999, Max time.Duration
}

func latencyStats(h *cq.Histogram) LatencyStats {
	return LatencyStats{h.Count(), time.Duration(h.Quantile(0.5)), time.Duration(h.Quantile(0.99)), time.Duration(h.Quantile(0.999)), time.Duration(h.Max())}
}

// Stats returns the counts so far. Any goroutine may call it, also after Close. What is
// counted meanwhile may be in some of the numbers and not in others.
func (q *CQ) Stats() CQStats {
	s := CQStats{Late: q.state.Late.Load(), Stray: q.state.Stray.Load(), Overruns: overruns(q)}
	if m := metered(q); m != nil {
		m.report(&s)
	}
	return s
}

// overruns is 1 if the queue is dead because completions were lost.
func overruns(q *CQ) uint64 {
	if q.state.Load()&cq.Dead == 0 {
		return 0
	}
	q.mailbox.mu.Lock()
	defer q.mailbox.mu.Unlock()
	if errors.Is(q.mailbox.dead, ErrOverrun) {
		return 1
	}
	return 0
}

func (m *cqMeter) report(s *CQStats) {
	s.Empty, s.Polls = m.batches[emptyBatches].Load(), 0
	for i := range m.batches[:emptyBatches] {
		n := m.batches[i].Load()
		s.Batches[min(i, batchSizes-1)] += n
		s.Polls += n
	}
	s.Polls += s.Empty
	for i := range m.failed {
		s.ByStatus[i] = m.failed[i].Load()
	}
	s.ByStatus[StatusSuccess] = m.good.Load()
	for _, n := range s.ByStatus {
		s.Completions += n
	}
	s.Events, s.Spurious, s.HighWater = m.events.Load(), m.spurious.Load(), int(m.high.Load())
	s.Grown, s.GrowthErrors = m.grown.Load(), m.stuck.Load()
	s.ArmToEvent, s.PostToCompletion = latencyStats(&m.armToEvent), latencyStats(&m.postToComplete)
}

// Metrics makes the queue a cq.MetricSource. Its metrics begin with goverbs_cq and have
// the labels device, the device's name, and cq, which is StatsOptions.Name, or
// a number that the process gives each queue when it is first asked.
// Without CQOptions.Stats there are few.
func (q *CQ) Metrics() []cq.Metric {
	id, meter := strconv.FormatUint(q.number(), 10), metered(q)
	if meter != nil && meter.opts.Name != "" {
		id = meter.opts.Name
	}
	labels := []cq.Label{{Name: "device", Value: q.dev.info.Name}, {Name: "cq", Value: id}}
	var all []cq.Metric
	add := func(m cq.Metric) {
		m.Name = "goverbs_cq_" + m.Name
		m.Labels = append(labels[:len(labels):len(labels)], m.Labels...)
		all = append(all, m)
	}
	u := q.Usage()
	add(gauge("depth", "Completions that the queue holds.", u.Depth))
	add(gauge("committed", "Completions that queue pairs may have outstanding.", u.Committed))
	add(gauge("occupied", "Completions in the queue that were not polled.", u.Occupied))
	add(counter("overruns", "Whether completions were lost because the queue was full; it is dead then.", overruns(q)))
	add(counter("late_completions", "Completions of queue pairs that were closed before.", q.state.Late.Load()))
	add(counter("stray_completions", "Completions that belong to no outstanding request.", q.state.Stray.Load()))
	if meter != nil {
		meter.metrics(add)
	}
	return all
}

// cqNumbers counts the queues that have a number.
var cqNumbers atomic.Uint64

// number tells the queue from all others, also from those of a device that is open a
// second time.
func (q *CQ) number() uint64 {
	q.waiterMu.Lock()
	defer q.waiterMu.Unlock()
	if q.num == 0 {
		q.num = cqNumbers.Add(1)
	}
	return q.num
}

func gauge(name, help string, v int) cq.Metric {
	return cq.Metric{Name: name, Type: cq.MetricGauge, Help: help, Value: float64(v)}
}

func counter(name, help string, v uint64) cq.Metric {
	return cq.Metric{Name: name, Help: help, Value: float64(v)}
}

func (m *cqMeter) metrics(add func(cq.Metric)) {
	var s CQStats
	m.report(&s)
	for i, n := range s.ByStatus {
		label := "other"
		switch i := Status(i); {
		case i == cq.StatusLocalEEC, i == cq.StatusLocalRDDViolation, i == cq.StatusRemoteInvalidRD, i == cq.StatusInvalidEECN, i == cq.StatusInvalidEECState:
			if n == 0 {
				continue // of a transport that no device has
			}
			fallthrough
		case int(i) < statusCounts-1:
			label = i.String()
		}
		c := counter("completions", "Completions that were polled, by status.", n)
		c.Labels = []cq.Label{{Name: "status", Value: label}}
		add(c)
	}
	add(counter("polls", "Polls of the queue.", s.Polls))
	add(counter("empty_polls", "Polls that found nothing.", s.Empty))
	batch := cq.Metric{Name: "batch_size", Type: cq.MetricHistogram, Help: "Completions of the polls that found some.", Sum: float64(s.Completions)}
	var n uint64
	for i := range s.Batches {
		n += s.Batches[i]
		limit := float64(uint(1) << i)
		if i == batchSizes-1 {
			limit = math.Inf(1)
		}
		batch.Buckets = append(batch.Buckets, cq.Bucket{Limit: limit, Count: n})
	}
	add(batch)
	add(counter("events", "Completion events that were taken.", s.Events))
	add(counter("spurious_wakeups", "Events after which a poll found nothing.", s.Spurious))
	add(gauge("high_water", "The most completions that a poll found in the queue.", s.HighWater))
	add(counter("growths", "Times that the queue was made deeper because it filled up.", s.Grown))
	add(counter("growth_errors", "Times that making it deeper failed.", s.GrowthErrors))
	add(cq.Metric{Name: "arm_to_event_seconds", Type: cq.MetricSummary, Unit: "seconds", Help: "Time from arming the queue to its event, of some.", Latency: &m.armToEvent})
	add(cq.Metric{Name: "post_to_completion_seconds", Type: cq.MetricSummary, Unit: "seconds", Help: "Time from the flush of a send-side request to the poll of its completion, of some.", Latency: &m.postToComplete})
}

// WriteOpenMetrics writes the queue's metrics in the OpenMetrics text format. Several
// queues, and waiters, go into one text by [cq.WriteOpenMetrics].
func (q *CQ) WriteOpenMetrics(w io.Writer) error { return cq.WriteOpenMetrics(w, q) }
