package poll

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// What the counters count.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{}
		w, err := NewWaiter(Event{}, q)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		wcs := make([]cq.WC, 300)
		wait := func(want int) {
			t.Helper()
			if n, err := w.Wait(t.Context(), wcs); n != want || err != nil {
				t.Fatal(n, err)
			}
		}
		var want Stats
		check := func(what string) {
			t.Helper()
			if s := w.Stats(); s != want {
				t.Errorf("%s:\n%+v, want\n%+v", what, s, want)
			}
		}
		check("new")
		for i, n := range []int{1, 2, 3, 4, 5, 8, 9, 64, 65, 128, 129, 300} {
			q.add(make([]uint64, n)...)
			wait(n)
			want.Waits++
			want.Looks++
			want.Completions += uint64(n)
			want.Batches[[]int{0, 1, 2, 2, 3, 3, 4, 6, 7, 7, 8, 8}[i]]++
			check("there at once")
		}
		// Asleep for an hour, but for a wake-up for nothing.
		time.AfterFunc(time.Minute, q.poke)
		time.AfterFunc(time.Hour, func() { q.add(1) })
		wait(1)
		want.Waits++
		want.Looks += 5 // on entry, armed, spurious, armed again, event
		want.EmptyLooks += 4
		want.Parks += 2
		want.Spurious++
		want.Completions++
		want.Batches[0]++
		want.Slept += time.Hour
		check("asleep")
		// Its event is taken by the next Wait that finds nothing.
		time.AfterFunc(time.Hour, func() { q.add(1) })
		wait(1)
		want.Waits++
		want.Looks += 3
		want.EmptyLooks += 2
		want.Parks++
		want.Events++
		want.Completions++
		want.Batches[0]++
		want.Slept += time.Hour
		check("asleep again")
		if e, s := want.EmptyShare(), want.SpinShare(); e != float64(want.EmptyLooks)/float64(want.Looks) || s != 0 {
			t.Error(e, s)
		}
	})
}

// The time that a busy waiter spins for is about the time that passes.
func TestStatsBusy(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	q := &fakeQueue{}
	w, err := NewWaiter(Busy{}, q)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var wcs [4]cq.WC
	before := time.Duration(0)
	// The ends of a wait are reckoned, and the processor may be away just then.
	until(t, func() bool {
		start := time.Now()
		time.AfterFunc(10*time.Millisecond, func() { q.add(1) })
		if n, err := w.Wait(t.Context(), wcs[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		took := time.Since(start)
		s := w.Stats()
		spun := s.Spun - before
		before = s.Spun
		if spun > 2*took || s.SpinShare() != 1 || s.EmptyShare() == 0 || s.EmptyShare() == 1 || s.Parks != 0 {
			t.Errorf("%v of %v, %+v", spun, took, s)
		}
		return spun > took*9/10
	})
	if z := (Stats{}); z.EmptyShare() != 0 || z.SpinShare() != 0 {
		t.Error("shares of nothing")
	}
}

// Two waiters in one text.
func TestWaiterMetrics(t *testing.T) {
	var all []cq.MetricSource
	for range 2 {
		w, err := NewWaiter(Event{}, &aQueue{3})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var wcs [4]cq.WC
		for range 2 {
			if _, err := w.Wait(t.Context(), wcs[:]); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, w)
	}
	var text strings.Builder
	if err := cq.WriteOpenMetrics(&text, all...); err != nil {
		t.Fatal(err)
	}
	a, b := all[0].Metrics()[0].Labels[0], all[1].Metrics()[0].Labels[0]
	if a.Name != "waiter" || a == b || b != all[1].Metrics()[0].Labels[0] {
		t.Errorf("labels %v and %v", a, b)
	}
	for _, l := range []cq.Label{a, b} {
		for _, line := range []string{
			`goverbs_waiter_waits_total{waiter="N"} 2`,
			`goverbs_waiter_completions_total{waiter="N"} 6`,
			`goverbs_waiter_batch_size_bucket{waiter="N",le="2.0"} 0`,
			`goverbs_waiter_batch_size_bucket{waiter="N",le="4.0"} 2`,
			`goverbs_waiter_batch_size_bucket{waiter="N",le="+Inf"} 2`,
			`goverbs_waiter_batch_size_sum{waiter="N"} 6`,
			`goverbs_waiter_slept_seconds_total{waiter="N"} 0`,
		} {
			if line = strings.ReplaceAll(line, "N", l.Value); !strings.Contains(text.String(), line+"\n") {
				t.Errorf("no line %q in\n%s", line, &text)
			}
		}
	}
	var one strings.Builder
	if err := all[0].(*Waiter).WriteOpenMetrics(&one); err != nil || !strings.HasSuffix(one.String(), "# EOF\n") {
		t.Error(err, &one)
	}
}
