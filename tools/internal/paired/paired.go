// Package paired judges a measurement that was taken alternately with another one, so that
// what the machine does besides hits both.
//
//	r, err := paired.New(ours, theirs, 0.5)
//	fmt.Println(r) // 0.412 (90% interval 0.405 to 0.419, ...), target <= 0.50: met
package paired

import (
	"fmt"
	"math"
	"sort"
)

// A Ratio is what pairs of measurements say about measured / reference.
type Ratio struct {
	N      int     `json:"n"`
	Mean   float64 `json:"ratio"` // geometric mean over the pairs
	Low    float64 `json:"low"`   // 90% interval of the mean
	High   float64 `json:"high"`
	Min    float64 `json:"min"` // spread of single pairs
	Max    float64 `json:"max"`
	Target float64 `json:"target"`
	// AtLeast is that the ratio shall not be less than the target, instead of not more.
	AtLeast bool `json:"at_least,omitempty"`
}

// t90 is the two-sided 90% quantile of Student's distribution by degrees of freedom, from 1; beyond
// the table the last is close enough to err on the wide side.
var t90 = []float64{6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725,
	1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697}

// New compares pairs of positive measurements, taken alternately so that drift of the machine
// hits both. Ratios are averaged as logarithms: twice as slow and twice as fast cancel.
func New(measured, reference []float64, target float64) (Ratio, error) {
	n := len(measured)
	if n != len(reference) || n < 2 {
		return Ratio{}, fmt.Errorf("a ratio needs at least two pairs, not %d and %d measurements", n, len(reference))
	}
	logs := make([]float64, n)
	sum := 0.0
	for i := range logs {
		if !(measured[i] > 0) || !(reference[i] > 0) {
			return Ratio{}, fmt.Errorf("pair %d is %g and %g: times must be more than 0", i+1, measured[i], reference[i])
		}
		logs[i] = math.Log(measured[i] / reference[i])
		sum += logs[i]
	}
	mean := sum / float64(n)
	squares := 0.0
	for _, l := range logs {
		squares += (l - mean) * (l - mean)
	}
	half := t90[min(n-2, len(t90)-1)] * math.Sqrt(squares/float64(n-1)/float64(n))
	sort.Float64s(logs)
	return Ratio{N: n, Mean: math.Exp(mean), Low: math.Exp(mean - half), High: math.Exp(mean + half),
		Min: math.Exp(logs[0]), Max: math.Exp(logs[n-1]), Target: target}, nil
}

// NewAtLeast is New for what shall be much, such as messages a second.
func NewAtLeast(measured, reference []float64, target float64) (Ratio, error) {
	r, err := New(measured, reference, target)
	r.AtLeast = err == nil
	return r, err
}

// Verdict is "met", "missed", or "undecided" when the interval straddles the target; "" where the
// target is 0, which stands for none.
func (r Ratio) Verdict() string {
	low, high, target := r.Low, r.High, r.Target
	if r.AtLeast {
		low, high, target = -high, -low, -target
	}
	switch {
	case r.Target == 0:
		return ""
	case high <= target:
		return "met"
	case low > target:
		return "missed"
	}
	return "undecided"
}

// String prints everything needed to judge the figure.
func (r Ratio) String() string {
	text := fmt.Sprintf("%.3f (90%% interval %.3f to %.3f, pairs %.3f to %.3f, n %d)", r.Mean, r.Low, r.High, r.Min, r.Max, r.N)
	switch {
	case r.Target == 0:
		return text
	case r.AtLeast:
		return fmt.Sprintf("%s, target >= %.2f: %s", text, r.Target, r.Verdict())
	}
	return fmt.Sprintf("%s, target <= %.2f: %s", text, r.Target, r.Verdict())
}

// Median is the middle of some numbers, or the mean of the two in the middle.
func Median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := append([]float64(nil), x...)
	sort.Float64s(s)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
