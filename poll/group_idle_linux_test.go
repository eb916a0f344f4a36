package poll_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
)

// processTime is the processor time that the process has had.
func processTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A group of 64 queues with nothing to do polls nothing, and costs next to nothing: what is
// asked for is less than 0.3 s of processor time in 30 s. GOVERBS_ROUNDS sets the seconds,
// and from 30 holds it to that.
func TestGroupIdles(t *testing.T) {
	seconds, real := roundsOr(t, 0)
	idle := 200 * time.Millisecond
	if real {
		idle = time.Duration(min(seconds, 60)) * time.Second
	}
	for name, s := range map[string]poll.Strategy{"event": poll.Event{}, "adaptive": poll.Adaptive{}} {
		t.Run(name, func(t *testing.T) {
			_, l := newLines(t, 64)
			g := l.group(t, func(cq.Queue, []cq.WC) {}, &poll.GroupOptions{Pollers: 4, Strategy: s})
			end := background(t, g)
			if err := l.write(5, 1); err != nil {
				t.Fatal(err)
			}
			// It is at rest when a while goes by without a round.
			rounds := func() (n uint64) {
				for _, p := range g.Stats().Pollers {
					n += p.Rounds
				}
				return n
			}
			for last, deadline := uint64(0), time.Now().Add(time.Minute); ; {
				time.Sleep(50 * time.Millisecond)
				n := rounds()
				if n == last && n > 0 {
					break
				}
				if last = n; time.Now().After(deadline) {
					t.Fatal("it does not come to rest")
				}
			}
			before, used := rounds(), processTime(t)
			time.Sleep(idle)
			after, cost := rounds(), processTime(t)-used
			// What the machine had put off, with nobody to say when it is at rest, is one
			// round of each or two.
			if n := after - before; n > 8 || real && n > 0 {
				t.Errorf("%d rounds over the queues in %v", after-before, idle)
			}
			t.Logf("%v of processor time in %v, %d polls", cost, idle, 16*(after-before))
			if real && seconds >= 30 && cost > 300*time.Millisecond {
				t.Error("more than 0.3 s")
			}
			end()
		})
	}
}
