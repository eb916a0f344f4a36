package perf

import (
	"math"
	"math/bits"
	"slices"
)

// times are the times between messages, in ticks. Recording allocates nothing.
type times struct {
	nsec  float64 // of a tick; to be set when the last one was recorded
	begun bool
	last  int64
	n     int64
	least int64
	most  int64
	sum   int64
	high  uint64 // of the sum of squares
	low   uint64
	each  []int64 // within its capacity; the rest is in the spread only
	all   bool    // each holds them all
	over  [buckets]int64
}

// maxEach is how many times are kept one by one: 32 MB.
const maxEach = 1 << 22

// newTimes makes room for n times that are kept one by one.
func newTimes(n int64) *times {
	return &times{each: make([]int64, 0, min(n, maxEach)), all: true, nsec: 1}
}

// mark notes a message. The time between two is one.
func (t *times) mark(now int64) {
	if !t.begun {
		t.begun, t.last = true, now
		return
	}
	d := max(now-t.last, 0) // counters of processors may differ
	t.last = now
	if t.n == 0 || d < t.least {
		t.least = d
	}
	t.most = max(t.most, d)
	t.n++
	t.sum += d
	// In whole numbers, which take no time where the processor is an emulated one.
	high, low := bits.Mul64(uint64(d), uint64(d))
	var carry uint64
	t.low, carry = bits.Add64(t.low, low, 0)
	t.high, _ = bits.Add64(t.high, high, carry)
	t.over[bucketOf(uint64(d))]++
	if len(t.each) < cap(t.each) {
		t.each = append(t.each, d)
	} else {
		t.all = false
	}
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
	if t.n == 0 {
		return nil
	}
	usec := func(ticks float64) float64 { return t.usec(ticks, parts) }
	mean := float64(t.sum) / float64(t.n)
	squares := (float64(t.high)*(1<<64) + float64(t.low)) / float64(t.n)
	l := &Latency{N: t.n, Min: usec(float64(t.least)), Max: usec(float64(t.most)), Avg: usec(mean)}
	l.Stdev = usec(math.Sqrt(max(0, squares-mean*mean)))
	q := t.quantile()
	l.Typical, l.P99, l.P999 = usec(q(0.5)), usec(q(0.99)), usec(q(0.999))
	return l
}

// quantile returns a function that tells quantiles in ticks: exactly, where all times were
// kept, and else too large by less than one part in 32.
func (t *times) quantile() func(q float64) float64 {
	rank := func(q float64) int64 { return min(t.n-1, int64(q*float64(t.n))) }
	if t.all {
		sorted := slices.Clone(t.each)
		slices.Sort(sorted)
		return func(q float64) float64 { return float64(sorted[rank(q)]) }
	}
	return func(q float64) float64 {
		left := rank(q)
		for b, n := range t.over {
			if left -= n; left < 0 {
				return min(float64(bucketEnd(b)), float64(t.most))
			}
		}
		return float64(t.most)
	}
}

// histogram lists the buckets that are not empty.
func (t *times) histogram(parts int) []Bucket {
	var all []Bucket
	for b, n := range t.over {
		if n > 0 {
			all = append(all, Bucket{t.usec(float64(bucketEnd(b)), parts), n})
		}
	}
	return all
}
