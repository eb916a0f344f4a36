package cq

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// exact is the quantile that Histogram.Quantile approximates.
func exact(sorted []uint64, q float64) uint64 {
	if q >= 1 {
		return sorted[len(sorted)-1]
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
}

// TestHistogramBuckets holds that the buckets cover all numbers without a gap or an
// overlap, in order, and are narrow enough.
func TestHistogramBuckets(t *testing.T) {
	for i := range buckets {
		top := ceiling(i)
		if bucket(top) != i {
			t.Fatalf("the ceiling of bucket %d, %d, is in bucket %d", i, top, bucket(top))
		}
		if top == math.MaxUint64 {
			if i != buckets-1 {
				t.Fatalf("bucket %d of %d ends at the largest number", i, buckets)
			}
			return
		}
		if bucket(top+1) != i+1 {
			t.Fatalf("%d is in bucket %d, not %d", top+1, bucket(top+1), i+1)
		}
		if i > 0 {
			if low := ceiling(i-1) + 1; (top-low)*32 > low {
				t.Fatalf("bucket %d is from %d to %d", i, low, top)
			}
		}
	}
	t.Fatal("no bucket has the largest number")
}

// TestHistogramQuantiles compares with the quantiles of the numbers themselves, over
// numbers of all sizes.
func TestHistogramQuantiles(t *testing.T) {
	kinds := map[string]func(r *rand.Rand) uint64{
		"constant":    func(*rand.Rand) uint64 { return 4711 },
		"small":       func(r *rand.Rand) uint64 { return r.Uint64N(64) },
		"uniform":     func(r *rand.Rand) uint64 { return r.Uint64N(1e6) },
		"exponential": func(r *rand.Rand) uint64 { return uint64(r.ExpFloat64() * 20_000) },
		"all sizes":   func(r *rand.Rand) uint64 { return r.Uint64() >> r.Uint64N(64) },
		"two modes": func(r *rand.Rand) uint64 {
			if r.IntN(50) == 0 {
				return 1e9 + r.Uint64N(1e9)
			}
			return 900 + r.Uint64N(200)
		},
	}
	for name, draw := range kinds {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for _, n := range []int{1, 2, 63, 1000, 20_000} {
				h := new(Histogram)
				all := make([]uint64, n)
				var sum uint64
				for i := range all {
					all[i] = draw(r)
					sum += all[i]
					h.Record(all[i])
				}
				slices.Sort(all)
				if h.Count() != uint64(n) || h.Max() != all[n-1] || h.Sum() != sum {
					t.Fatalf("%d numbers: count %d, max %d of %d, sum %d of %d", n, h.Count(), h.Max(), all[n-1], h.Sum(), sum)
				}
				for _, q := range []float64{-1, 0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1, 2} {
					got, want := h.Quantile(q), exact(all, q)
					if got < want || got-want > want/32 {
						t.Errorf("%d numbers: quantile %v is %d, exactly %d", n, q, got, want)
					}
				}
			}
		})
	}
}

func TestHistogramEmpty(t *testing.T) {
	h := new(Histogram)
	if h.Count() != 0 || h.Sum() != 0 || h.Max() != 0 || h.Quantile(0.5) != 0 || h.Quantile(1) != 0 {
		t.Error("an empty histogram says something")
	}
	h.Record(5)
	if got := h.Quantile(math.NaN()); got != 5 {
		t.Errorf("quantile NaN of one 5 is %d", got)
	}
	h.Reset()
	if h.Count() != 0 || h.Sum() != 0 || h.Max() != 0 || h.Quantile(0.5) != 0 {
		t.Error("a histogram that was reset says something")
	}
}

func TestHistogramMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var one, two, both Histogram
	for i := range 10_000 {
		v := r.Uint64() >> r.Uint64N(64)
		both.Record(v)
		if i%3 == 0 {
			one.Record(v)
		} else {
			two.Record(v)
		}
	}
	one.Merge(&two)
	one.Merge(new(Histogram))
	if one.Count() != both.Count() || one.Sum() != both.Sum() || one.Max() != both.Max() {
		t.Error("count, sum or maximum differ")
	}
	for i := range both.buckets {
		if one.buckets[i].Load() != both.buckets[i].Load() {
			t.Fatalf("bucket %d: %d, want %d", i, one.buckets[i].Load(), both.buckets[i].Load())
		}
	}
}

// TestHistogramConcurrent has several goroutines record while others read.
func TestHistogramConcurrent(t *testing.T) {
	const writers, each = 4, 5000
	var h Histogram
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				h.Record(uint64(w*each + i))
			}
		})
	}
	wg.Go(func() {
		for h.Count() < writers*each {
			if q, most := h.Quantile(0.99), uint64(writers*each); q > most {
				t.Errorf("quantile %d of numbers below %d", q, most)
				return
			}
		}
	})
	wg.Wait()
	if h.Count() != writers*each || h.Max() != writers*each-1 || h.Sum() != writers*each*(writers*each-1)/2 {
		t.Errorf("count %d, max %d, sum %d", h.Count(), h.Max(), h.Sum())
	}
}

func TestHistogramAllocatesNothing(t *testing.T) {
	h, o := new(Histogram), new(Histogram)
	if n := testing.AllocsPerRun(100, func() {
		h.Record(12345)
		h.Merge(o)
		_, _, _ = h.Quantile(0.99), h.Count(), h.Max()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHistogramRecord(b *testing.B) {
	var h Histogram
	for i := range b.N {
		h.Record(uint64(i) & 0xfffff)
	}
}
