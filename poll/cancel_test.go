package poll

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// How long a Wait goes on after its context was cancelled, beside how long a goroutine
// takes that receives from the context's channel and does nothing else: one round with
// the one, one with the other, alternately. The numbers are printed, not judged; what is
// judged is that each Wait ends, with the right error. GOVERBS_ROUNDS sets how many
// rounds, 10000 for a p99 that means something.
func TestCancelLatency(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	for _, c := range []struct {
		name    string
		s       Strategy
		channel bool // with a descriptor
	}{
		{"busy", Busy{}, false},
		{"event without descriptor", Event{}, false},
		{"adaptive without descriptor", Adaptive{}, false},
		{"event", Event{}, true},
		{"adaptive", Adaptive{}, true},
		{"event on a thread", Event{Thread: true}, true},
		{"adaptive on a thread", Adaptive{Thread: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := &fakeQueue{}
			if c.channel && !withPipe(t, q) {
				t.Skip("declared skip: no descriptors here")
			}
			w, err := NewWaiter(c.s, q)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			var ours, bare cq.Histogram
			var wcs [4]cq.WC
			waits := uint64(0)
			for range roundsOr(t, 20) {
				cancelled(t, &bare, threads(c.s), func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				}, func() bool { return true })
				waits++
				parks := w.Stats().Parks
				cancelled(t, &ours, threads(c.s), func(ctx context.Context) error {
					n, err := w.Wait(ctx, wcs[:])
					if n != 0 {
						t.Errorf("%d completions", n)
					}
					return err
				}, func() bool {
					s := w.Stats()
					return s.Parks > parks || c.s == Busy{} && s.Waits == waits
				})
				if t.Failed() {
					t.FailNow()
				}
			}
			p := func(h *cq.Histogram, q float64) time.Duration { return time.Duration(h.Quantile(q)) }
			t.Logf("%d rounds, from cancel to the return: p50 %v, p99 %v; bare channel: p50 %v, p99 %v; p99 %v above", ours.Count(),
				p(&ours, 0.5), p(&ours, 0.99), p(&bare, 0.5), p(&bare, 0.99), p(&ours, 0.99)-p(&bare, 0.99))
		})
	}
}

// cancelled has a goroutine wait, cancels it when it is about to sleep, and records how
// long it takes to return.
func cancelled(t *testing.T, h *cq.Histogram, locked bool, wait func(context.Context) error, sleeps func() bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	end := make(chan time.Time)
	started := make(chan bool)
	go func() {
		if locked {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
		}
		started <- true
		err := wait(ctx)
		now := time.Now()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		end <- now
	}()
	<-started
	until(t, sleeps)
	time.Sleep(200 * time.Microsecond) // about to sleep, and asleep by now
	start := time.Now()
	cancel()
	h.Record(uint64((<-end).Sub(start)))
}
