package waiting

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
	"github.com/goverbs/goverbs/uverbs"
)

// Config is what to measure.
type Config struct {
	// Open opens a device.
	Open func(name string) (*uverbs.Device, error)
	// Devices are those of client and server, which may be the same.
	Devices [2]string
	// Server is the command that serves in a process of its own, for which [Serve] is the
	// program. Nil: a goroutine of this process serves.
	Server []string

	Ways        []string        // of [Ways]
	Batches     []int           // completions that are taken at a time, 1 to 128
	Outstanding int             // writes under way of a flood
	Paces       []time.Duration // between paced messages
	Rounds      int
	Slice       time.Duration // how long a variant is measured in a round
}

// Default are the choices of the command.
func Default() Config {
	return Config{Ways: []string{"busy", "event", "adaptive"}, Batches: []int{1, 8, 32, 128}, Outstanding: 128, Paces: []time.Duration{10 * time.Microsecond, 100 * time.Microsecond}, Rounds: 12, Slice: 200 * time.Millisecond}
}

// mostOutstanding keeps the queues within what all devices have.
const mostOutstanding = 2048

// Validate checks what needs no device. Its errors are *usage.Errors.
func (c *Config) Validate() error {
	switch {
	case len(c.Ways) == 0:
		return usage.Errorf("no way to wait is chosen")
	case len(c.Batches) == 0:
		return usage.Errorf("no batch is chosen")
	case c.Outstanding < 1 || c.Outstanding > mostOutstanding:
		return usage.Errorf("%d writes under way: allowed are 1 to %d", c.Outstanding, mostOutstanding)
	case len(c.Paces) == 0:
		return usage.Errorf("no pace is chosen")
	case c.Slice < time.Millisecond || c.Slice > time.Minute:
		return usage.Errorf("slices of %v: allowed are 1ms to 1m", c.Slice)
	}
	for i, b := range c.Batches {
		if b < 1 || b > mostBatch {
			return usage.Errorf("batch %d: allowed are 1 to %d", b, mostBatch)
		}
		if slices.Contains(c.Batches[:i], b) {
			return usage.Errorf("batch %d is given twice", b)
		}
	}
	for i, p := range c.Paces {
		if p <= 0 || p > time.Second {
			return usage.Errorf("a message each %v: allowed is above 0 and up to 1s", p)
		}
		if slices.Contains(c.Paces[:i], p) {
			return usage.Errorf("pace %v is given twice", p)
		}
	}
	for i, name := range c.Ways {
		if _, err := findWay(name); err != nil {
			return err
		}
		if slices.Contains(c.Ways[:i], name) {
			return usage.Errorf("%s is given twice", name)
		}
	}
	return checkRounds(c.Rounds)
}

// checkRounds checks a number of rounds.
func checkRounds(n int) error {
	if n < 1 || n > 10000 {
		return usage.Errorf("%d rounds: allowed are 1 to 10000", n)
	}
	return nil
}
