package trace

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/goverbs/goverbs/tools/internal/paired"
	"github.com/goverbs/goverbs/uverbs"
)

// costVariable asks for the measurement of TestGuestTraceCost, with so many
// pairs of runs.
const costVariable = "GOVERBS_TRACE_COST"

// messages posts writes, one doorbell each, and polls them, so many times.
func (b *bench) messages(t *testing.T, n int) time.Duration {
	t.Helper()
	var wcs [8]uverbs.WC
	start := time.Now()
	for range n {
		b.write(t, 1)
		for got := 0; got == 0; {
			var err error
			if got, err = b.cq.Poll(wcs[:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return time.Since(start)
}

// traced runs a load with probes attached.
func (b *bench) traced(t *testing.T, o Options, look bool, load func() time.Duration) time.Duration {
	t.Helper()
	p, err := readPrivileges(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	tr, err := openWith(o, p, types)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		var err error
		for look && ctx.Err() == nil && err == nil {
			time.Sleep(100 * time.Millisecond)
			_, err = tr.Snapshot(func() error { _, err := listCQs(); return err })
		}
		ended <- err
	}()
	took := load()
	cancel()
	if err := errors.Join(<-ended, tr.Close()); err != nil {
		t.Fatal(err)
	}
	return took
}

// What the levels cost the programs: the time of as many messages, polled or
// waited for, with probes and without, in turn. It prints ratios and judges
// nothing.
func TestGuestTraceCost(t *testing.T) {
	probesMustBePossible(t)
	pairs, err := strconv.Atoi(os.Getenv(costVariable))
	if err != nil || pairs < 2 {
		t.Skipf("declared skip: a measurement; %s=20 makes it with 20 pairs of runs", costVariable)
	}
	b := newBench(t, 16, 16, &uverbs.CQOptions{Events: true})
	polled := func() time.Duration { return b.messages(t, 500) }
	waited := func() time.Duration {
		start := time.Now()
		b.rounds(t, 200)
		return time.Since(start)
	}
	for _, tt := range []struct {
		name string
		o    Options
		look bool // take a snapshot now and then
		load func() time.Duration
	}{
		{"500 polled messages, pull with a snapshot each 100 ms", Options{}, true, polled},
		{"500 polled messages, every CQE", Options{EveryCQE: true}, false, polled},
		{"500 polled messages, syscalls", Options{Syscalls: true}, false, polled},
		{"200 messages with events, events", Options{Events: true}, false, waited},
		{"200 messages with events, all levels", Options{Events: true, Syscalls: true, EveryCQE: true}, false, waited},
	} {
		var with, without []float64
		tt.load() // warm
		for i := range pairs {
			if i%2 == 0 {
				without = append(without, tt.load().Seconds())
			}
			with = append(with, b.traced(t, tt.o, tt.look, tt.load).Seconds())
			if i%2 == 1 {
				without = append(without, tt.load().Seconds())
			}
		}
		r, err := paired.New(with, without, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: with / without, time: %v", tt.name, r)
	}
}
