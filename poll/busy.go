package poll

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// busyWaiters counts the open waiters that spin.
var busyWaiters atomic.Int32

func (Busy) newWait(w *Waiter) (waiting, error) {
	procs := runtime.GOMAXPROCS(0)
	if n := int(busyWaiters.Add(1)); n >= procs {
		busyWaiters.Add(-1)
		return nil, fmt.Errorf("poll: %d busy waiters on GOMAXPROCS=%d would leave no processor for the rest of the program: raise GOMAXPROCS or wait with poll.Event", n, procs)
	}
	return &busy{w: w, look: onePoll * int64(len(w.queues)) << lookShift}, nil
}

type busy struct {
	w    *Waiter
	look int64 // about what a look takes, in units of 2^-lookShift nanoseconds
}

const (
	// onePoll is about what one poll of a queue takes, in nanoseconds, before anything
	// was measured.
	onePoll = 15
	// spins is how many looks go by between two looks at the context, which cost
	// more.
	spins = 64
	// clocked is how many times spins between two at the clock, which only the
	// statistics want: the time of less than that is reckoned.
	clocked   = 16
	lookShift = 6
)

func (b *busy) wait(ctx context.Context, wcs []cq.WC) (int, error) {
	start := time.Time{}
	for i := int64(0); ; i++ {
		if i == clocked {
			start = b.clock(start)
			i = 0
		}
		for k := range int64(spins) {
			if n, err := b.w.look(wcs); n > 0 || err != nil {
				b.spent(i*spins + k)
				return n, err
			}
		}
		if err := b.w.ended(ctx); err != nil {
			b.spent((i + 1) * spins)
			return 0, err
		}
	}
}

// clock counts the time of so many looks as there are between two calls.
func (b *busy) clock(start time.Time) time.Time {
	now := time.Now()
	if start.IsZero() {
		b.spent(clocked * spins)
		return now
	}
	took := max(int64(now.Sub(start)), 0)
	b.look = took << lookShift / (clocked * spins)
	b.w.count.spun.Add(uint64(took))
	return now
}

// spent counts the time of some looks by what a look took of late.
func (b *busy) spent(looks int64) {
	b.w.count.spun.Add(uint64(looks * b.look >> lookShift))
}

func (b *busy) close() error {
	busyWaiters.Add(-1)
	return nil
}
