package paired

import (
	"math"
	"testing"
)

func TestRatio(t *testing.T) {
	// By hand: logs are ln 1.1, ln 1.2, ln 1.0, ln 1.1; their mean is 0.093236, deviation 0.074466,
	// t(3) = 2.353.
	r, err := New([]float64{11, 24, 10, 22}, []float64{10, 20, 10, 20}, 1.3)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 5e-4 {
			t.Errorf("%s is %.5f, want %.5f", what, got, want)
		}
	}
	near("ratio", r.Mean, 1.09772)
	near("low", r.Low, 1.00564)
	near("high", r.High, 1.19824)
	near("least pair", r.Min, 1.0)
	near("greatest pair", r.Max, 1.2)
	if r.N != 4 || r.Verdict() != "met" {
		t.Errorf("n %d, %s; want 4, met", r.N, r.Verdict())
	}
	for target, want := range map[float64]string{1.0: "missed", 1.1: "undecided", 1.2: "met"} {
		if r.Target = target; r.Verdict() != want {
			t.Errorf("target %g: %s, want %s", target, r.Verdict(), want)
		}
	}
}

func TestRatioRefusesNonsense(t *testing.T) {
	for _, tt := range []struct{ a, b []float64 }{
		{nil, nil}, {[]float64{1}, []float64{1}}, {[]float64{1, 2}, []float64{1}}, {[]float64{1, 0}, []float64{1, 1}}, {[]float64{1, 1}, []float64{1, math.NaN()}},
	} {
		if _, err := New(tt.a, tt.b, 1); err == nil {
			t.Errorf("%v against %v gave a ratio", tt.a, tt.b)
		}
	}
}

func TestMedian(t *testing.T) {
	if m := Median([]float64{5, 1, 3}); m != 3 {
		t.Errorf("odd: %g", m)
	}
	if m := Median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("even: %g", m)
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

// What shall be much is judged the other way round, and without a target there is no verdict.
func TestAtLeast(t *testing.T) {
	r, err := NewAtLeast([]float64{11, 24, 10, 22}, []float64{10, 20, 10, 20}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[float64]string{1.0: "met", 1.1: "undecided", 1.2: "missed", 0: ""} {
		if r.Target = target; r.Verdict() != want {
			t.Errorf("at least %g: %q, want %q", target, r.Verdict(), want)
		}
	}
	r.Target = 1
	if got, want := r.String(), "1.098 (90% interval 1.006 to 1.198, pairs 1.000 to 1.200, n 4), target >= 1.00: met"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.Target = 0
	if got, want := r.String(), "1.098 (90% interval 1.006 to 1.198, pairs 1.000 to 1.200, n 4)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if r, err := NewAtLeast(nil, nil, 1); err == nil || r.AtLeast {
		t.Errorf("of nothing: %v, %v", r, err)
	}
}
