package cq

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// Histogram counts durations in nanoseconds, or other numbers, in buckets that
// grow with the number: what [Histogram.Quantile] says is exact below 64 and else
// too large by less than one part in 32. It holds every uint64 in 15 kB.
//
// The zero value is ready to use. Any goroutine may call every method at any time;
// none allocates. What is read while others record is a little of the one moment and a
// little of the other. A Histogram must not be copied.
type Histogram struct {
	buckets  [buckets]atomic.Uint64
	sum, max atomic.Uint64
}

// A number is its highest bits, of which there are subBits and the leading one, and how
// many follow. Numbers that have no more bits than that are their own bucket.
const (
	subBits = 5
	buckets = (64-subBits-1)<<subBits + 2<<subBits
)

// bucket is where a number is counted.
func bucket(v uint64) int {
	rest := max(bits.Len64(v)-(subBits+1), 0)
	return rest<<subBits + int(v>>rest)
}

// ceiling is the largest number that is counted in a bucket.
func ceiling(i int) uint64 {
	rest := max(i>>subBits-1, 0)
	return uint64(i-rest<<subBits+1)<<rest - 1
}

// Record counts one number: nanoseconds, where it is a duration.
func (h *Histogram) Record(v uint64) {
	h.buckets[bucket(v)].Add(1)
	h.sum.Add(v)
	raise(&h.max, v)
}

// raise makes a maximum no less than v.
func raise(most *atomic.Uint64, v uint64) {
	for was := most.Load(); v > was && !most.CompareAndSwap(was, v); was = most.Load() {
	}
}

// Count is how many numbers were recorded.
func (h *Histogram) Count() (n uint64) {
	for i := range h.buckets {
		n += h.buckets[i].Load()
	}
	return n
}

// Sum is the sum of all numbers that were recorded, modulo 2^64: 584 years, in
// nanoseconds.
func (h *Histogram) Sum() uint64 { return h.sum.Load() }

// Max is the largest number that was recorded, exactly, or 0.
func (h *Histogram) Max() uint64 { return h.max.Load() }

// Quantile is the number that a share of q of all recorded numbers do not exceed, as
// 0.99 for the 99th percentile: never less than the exact one, and larger by less than
// one part in 32. It is the least for q <= 0 and Max for q >= 1; 0 where nothing was
// recorded.
func (h *Histogram) Quantile(q float64) uint64 {
	n := h.Count()
	if n == 0 {
		return 0
	}
	if q >= 1 {
		return h.Max()
	}
	// The rank is counted from 1. What is no number is taken for 0.
	rank := uint64(1)
	if r := math.Ceil(q * float64(n)); r > 1 {
		rank = uint64(r)
	}
	var seen uint64
	for i := range h.buckets {
		if seen += h.buckets[i].Load(); seen >= rank {
			return min(ceiling(i), h.Max())
		}
	}
	return h.Max()
}

// Merge adds all that was recorded in another histogram.
func (h *Histogram) Merge(o *Histogram) {
	for i := range o.buckets {
		if n := o.buckets[i].Load(); n > 0 {
			h.buckets[i].Add(n)
		}
	}
	h.sum.Add(o.sum.Load())
	raise(&h.max, o.max.Load())
}

// Reset forgets all that was recorded. What others record meanwhile may be forgotten
// in part.
func (h *Histogram) Reset() {
	for i := range h.buckets {
		h.buckets[i].Store(0)
	}
	h.sum.Store(0)
	h.max.Store(0)
}
