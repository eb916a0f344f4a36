package perf

import (
	"math"
	"math/bits"
	"slices"
)

// times are the times between messages, in ticks. Recording allocates nothing, and does no
// more than it has to: with it a side may keep the other one waiting.
type times struct {
	nsec  float64 // of a tick; to be set when the last one was recorded
	begun bool
	last  int64
	each  []int64 // within its capacity
	rest  tally   // of those that had no room there
}

// maxEach is how many times are kept one by one: 32 MB.
const maxEach = 1 << 22

// newTimes makes room for n times that are kept one by one.
func newTimes(n int64) *times {
	return &times{each: touched[int64](min(n, maxEach)), nsec: 1}
}

// mark notes a message. The time between two is one.
func (t *times) mark(now int64) {
	d := max(now-t.last, 0) // counters of processors may differ
	t.last = now
	switch {
	case !t.begun:
		t.begun = true
	case len(t.each) < cap(t.each):
		t.each = append(t.each, d)
	default:
		t.rest.add(d)
	}
}

// all says whether all times were kept one by one.
func (t *times) all() bool { return t.rest.n == 0 }

// tally is what all times come to.
func (t *times) tally() *tally {
	all := t.rest
	for _, d := range t.each {
		all.add(d)
	}
	return &all
}

// A tally is what times come to of which the single ones are forgotten.
type tally struct {
	n     int64
	least int64
	most  int64
	sum   int64
	high  uint64 // of the sum of squares
	low   uint64
	over  [buckets]int64
}

// add adds a time.
func (y *tally) add(d int64) {
	if y.n == 0 || d < y.least {
		y.least = d
	}
	y.most = max(y.most, d)
	y.n++
	y.sum += d
	// In whole numbers, which take no time where the processor is an emulated one.
	high, low := bits.Mul64(uint64(d), uint64(d))
	var carry uint64
	y.low, carry = bits.Add64(y.low, low, 0)
	y.high, _ = bits.Add64(y.high, high, carry)
	y.over[bucketOf(uint64(d))]++
}

// touched makes room for n of something in memory that is there. Else the kernel would find a
// page when a loop first gets to it: of one message in 512 that takes longer than the message.
func touched[T any](n int64) []T {
	room := make([]T, n)
	clear(room)
	return room[:0]
}

// usec is a number of ticks in microseconds, where parts of it are one latency.
func (t *times) usec(ticks float64, parts int) float64 {
	return ticks * t.nsec / 1e3 / float64(parts)
}

// The buckets are exact below 64 ticks, and 32 to each doubling above.
const (
	exact   = 64
	perPow  = exact / 2
	buckets = exact + (64-6)*perPow
)

func bucketOf(v uint64) int {
	if v < exact {
		return int(v)
	}
	shift := bits.Len64(v) - 6
	return exact + (shift-1)*perPow + int(v>>shift) - perPow
}

// bucketEnd is the largest number in a bucket.
func bucketEnd(b int) uint64 {
	if b < exact {
		return uint64(b)
	}
	shift := (b-exact)/perPow + 1
	return (uint64((b-exact)%perPow+perPow+1) << shift) - 1
}

// latency is what the times come to, where parts of them are one latency.
func (t *times) latency(parts int) *Latency {
	y := t.tally()
	if y.n == 0 {
		return nil
	}
	usec := func(ticks float64) float64 { return t.usec(ticks, parts) }
	mean := float64(y.sum) / float64(y.n)
	squares := (float64(y.high)*(1<<64) + float64(y.low)) / float64(y.n)
	l := &Latency{N: y.n, Min: usec(float64(y.least)), Max: usec(float64(y.most)), Avg: usec(mean)}
	l.Stdev = usec(math.Sqrt(max(0, squares-mean*mean)))
	q := t.quantile(y)
	l.Typical, l.P99, l.P999 = usec(q(0.5)), usec(q(0.99)), usec(q(0.999))
	return l
}

// quantile returns a function that tells quantiles in ticks: exactly, where all times were
// kept, and else too large by less than one part in 32.
func (t *times) quantile(y *tally) func(q float64) float64 {
	rank := func(q float64) int64 { return min(y.n-1, int64(q*float64(y.n))) }
	if t.all() {
		sorted := slices.Clone(t.each)
		slices.Sort(sorted)
		return func(q float64) float64 { return float64(sorted[rank(q)]) }
	}
	return func(q float64) float64 {
		left := rank(q)
		for b, n := range y.over {
			if left -= n; left < 0 {
				return min(float64(bucketEnd(b)), float64(y.most))
			}
		}
		return float64(y.most)
	}
}

// histogram lists the buckets that are not empty.
func (t *times) histogram(parts int) []Bucket {
	var all []Bucket
	for b, n := range t.tally().over {
		if n > 0 {
			all = append(all, Bucket{t.usec(float64(bucketEnd(b)), parts), n})
		}
	}
	return all
}
