package poll

import (
	"math/rand/v2"
	"testing"
	"time"
)

// What a waiter makes of the gaps that it sees, without a clock.
func TestForecast(t *testing.T) {
	const most, sleep = 20_000, 9_000
	f := newForecast(most)
	if b := f.budget(); b != most {
		t.Errorf("knowing nothing it spins for %d, want %d", b, most)
	}
	// wait is one completion after a gap, with what spinning and waking make of it.
	wait := func(gap int64) (spun int64) {
		if spun = f.budget(); gap <= spun {
			f.came(gap)
			return gap
		}
		f.slept(spun, gap-spun+sleep)
		return spun
	}
	for range 3 {
		// Far apart: it spins no more than a few times, then never.
		spun, before := int64(0), f.budget()
		for range 1000 {
			spun += wait(1_000_000)
		}
		if spun > 4*before || f.budget() != 0 {
			t.Errorf("a thousand gaps of 1ms: spun for %d ns in all, next budget %d", spun, f.budget())
		}
		// Near again: after some ten it finds all by spinning.
		waits := 1
		for ; f.budget() == 0; waits++ {
			wait(2_000)
			if waits > 20 {
				t.Fatalf("sleeps still after %d gaps of 2us", waits)
			}
		}
		for range 1000 {
			wait(2_000)
			if f.budget() == 0 {
				t.Fatal("sleeps between completions 2us apart")
			}
		}
		// One pause among many short gaps does not stop it, many do.
		if wait(1_000_000); f.budget() == 0 {
			t.Error("one pause is the end of spinning")
		}
		for range 100 {
			wait(2_000)
		}
	}
	// It has learnt what a sleep costs, and does not spin for longer than that, for
	// gaps beyond it neither.
	for range 200 {
		f.slept(0, sleep)
	}
	if f.price < sleep*9/10 || f.price > sleep*11/10 || f.budget() != f.price {
		t.Errorf("sleeps of %d have the price %d, budget %d", sleep, f.price, f.budget())
	}
	for range 200 {
		f.came(sleep * 3 / 2)
	}
	if b := f.budget(); b != 0 {
		t.Errorf("spins for %d where gaps are longer than a sleep", b)
	}
}

// Whatever it sees, the numbers stay in their bounds.
func TestForecastBounds(t *testing.T) {
	for _, most := range []int64{1, 3, 100, leastPrice, 20_000, int64(time.Second), int64(time.Hour)} {
		rng := rand.New(rand.NewPCG(uint64(most), 1))
		f := newForecast(most)
		for range 10_000 {
			a, b := rng.Int64()>>rng.IntN(63), rng.Int64()>>rng.IntN(63)
			if rng.IntN(2) == 0 {
				f.came(a / 2)
			} else {
				f.slept(a/2, b/2)
			}
			if f.gap < 0 || f.gap > farGaps*most || f.price < min(most, leastPrice) || f.price > most || f.budget() > most || f.patience < leastPatience || f.patience > mostPatience {
				t.Fatalf("most %d: after %d and %d: %+v, budget %d", most, a, b, f, f.budget())
			}
		}
	}
}

// What waiting by the forecast costs in processor time, and how often it finds a sleeper,
// beside always spinning and always sleeping: it is never much dearer than sleeping, or
// than the spin that it was allowed, and where completions are near it seldom sleeps.
func TestForecastPays(t *testing.T) {
	const most = 20_000
	rng := rand.New(rand.NewPCG(1, 2))
	always := func(gap int64) func(int) int64 { return func(int) int64 { return gap } }
	random := func(mean float64) func(int) int64 {
		return func(int) int64 { return int64(rng.ExpFloat64() * mean) }
	}
	bursts := func(n int, short, long int64) func(int) int64 {
		return func(i int) int64 {
			if i%n == 0 {
				return long
			}
			return short
		}
	}
	for _, c := range []struct {
		name   string
		gap    func(i int) int64
		asleep float64 // share of waits that may end asleep
	}{
		{"1us", always(1_000), 0},
		{"8us", always(8_000), 0},
		{"19us", always(19_000), 0},
		{"25us", always(25_000), 1},
		{"100us", always(100_000), 1},
		{"1s", always(1_000_000_000), 1},
		{"2us on average", random(2_000), 0.01},
		{"8us on average", random(8_000), 0.6},
		{"30us on average", random(30_000), 1},
		{"every other one after 100us", bursts(2, 1_000, 100_000), 1},
		{"10 at a time, 2us", bursts(10, 2_000, 100_000), 0.15},
		{"100 at a time, 2us", bursts(100, 2_000, 1_000_000), 0.02},
	} {
		for _, wake := range []int64{6_000, 12_000, 50_000} {
			f := newForecast(most)
			var cost, spinning, sleeping, asleep int64
			const rounds = 10_000
			for i := range rounds {
				gap, wake := c.gap(i), wake+rng.Int64N(wake/2)
				spinning += gap
				sleeping += wake
				if budget := f.budget(); gap <= budget {
					f.came(gap)
					cost += gap
				} else {
					f.slept(budget, gap-budget+wake)
					cost += budget + wake
					asleep++
				}
			}
			share := float64(asleep) / rounds
			t.Logf("%s, waking in %d us: %.1f us a wait, asleep %.3f; spinning %.1f us, sleeping %.1f us", c.name, wake/1000,
				float64(cost)/rounds/1000, share, float64(spinning)/rounds/1000, float64(sleeping)/rounds/1000)
			if cost > max(sleeping, most*rounds)*5/4 || share > c.asleep {
				t.Errorf("%s, waking in %d us: too dear, or asleep too often", c.name, wake/1000)
			}
		}
	}
}
