package perf

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Buckets follow each other without gaps, and are no wider than one part in 32.
func TestBuckets(t *testing.T) {
	if got := bucketOf(math.MaxUint64); got != buckets-1 {
		t.Fatalf("the largest number is in bucket %d of %d", got, buckets)
	}
	for b := range buckets {
		end := bucketEnd(b)
		if got := bucketOf(end); got != b {
			t.Fatalf("bucket %d ends with %d, which is in %d", b, end, got)
		}
		if b == buckets-1 {
			break
		}
		if got := bucketOf(end + 1); got != b+1 {
			t.Fatalf("%d behind bucket %d is in %d", end+1, b, got)
		}
		if wide := bucketEnd(b+1) - end; wide > 1 && float64(wide) > float64(end+1)/32+1 {
			t.Fatalf("bucket %d is %d wide at %d", b+1, wide, end)
		}
	}
}

// What the times come to is what their definition says, also where not all were kept.
func TestLatency(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, kept := range []int64{1000, 10} {
		tm := newTimes(kept)
		tm.nsec = 0.5
		var all []float64
		now := int64(12345)
		tm.mark(now)
		for range 1000 {
			d := rng.Int64N(1 << rng.IntN(30))
			now += d
			tm.mark(now)
			all = append(all, float64(d)*0.5/1e3/2)
		}
		slices.Sort(all)
		sum := 0.0
		for _, v := range all {
			sum += v
		}
		mean, squares := sum/1000, 0.0
		for _, v := range all {
			squares += (v - mean) * (v - mean)
		}
		l := tm.latency(2)
		near := func(what string, got, want, off float64) {
			if math.Abs(got-want) > off*want+1e-6 {
				t.Errorf("%d kept: %s is %v, want %v", kept, what, got, want)
			}
		}
		if l.N != 1000 || l.Min != all[0] || l.Max != all[999] {
			t.Errorf("%d kept: %+v, least %v, most %v", kept, l, all[0], all[999])
		}
		near("average", l.Avg, mean, 1e-9)
		near("deviation", l.Stdev, math.Sqrt(squares/1000), 1e-6)
		off := 0.0
		if kept < 1000 {
			off = 1.0 / 31
		}
		near("median", l.Typical, all[500], off)
		near("p99", l.P99, all[990], off)
		near("p999", l.P999, all[999], off)
		var n int64
		last := -1.0
		for _, b := range tm.histogram(2) {
			if b.Usec <= last || b.Count <= 0 {
				t.Errorf("bucket %+v behind %v", b, last)
			}
			n, last = n+b.Count, b.Usec
		}
		if n != 1000 || last < l.Max {
			t.Errorf("the histogram has %d times up to %v, the longest is %v", n, last, l.Max)
		}
	}
	if l := newTimes(5).latency(1); l != nil {
		t.Errorf("no times are %+v", l)
	}
}

// A counter that goes back, as those of two processors may, is no negative time.
func TestBackwards(t *testing.T) {
	tm := newTimes(4)
	for _, now := range []int64{100, 50, 60} {
		tm.mark(now)
	}
	if l := tm.latency(1); l.Min != 0 || l.N != 2 || l.Max != 0.01 {
		t.Errorf("%+v", l)
	}
}

// The best stretch is found, also where most moments were forgotten, and none is made up.
func TestPeak(t *testing.T) {
	p := newPeak()
	if p.best() != 0 {
		t.Error("a rate of nothing")
	}
	for i := int64(0); i < 100; i++ {
		at := 100 * i
		if i >= 60 {
			at -= 90 * (i - 59) // ten times as fast
			if i > 70 {
				at = 100*i - 90*11
			}
		}
		p.add(at, 10*i, 10*i)
	}
	if got := p.best(); got != 1 {
		t.Errorf("the best stretch has %v a tick, want 1", got)
	}
	p = newPeak()
	for i := int64(0); i < 10*maxMarks; i++ {
		p.add(100*i, 10*i+50, 10*i)
	}
	if got := p.best(); got >= 0.1 || got < 0.09 {
		t.Errorf("a steady 0.1 with messages under way peaks at %v", got)
	}
	if len(p.marks) > maxMarks {
		t.Errorf("%d moments are remembered", len(p.marks))
	}
}
