package waiting

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

// The two workloads.
const (
	paced = "paced" // one message at a time, and pauses between
	flood = "flood" // many writes under way
)

// how is a way to wait.
type how struct {
	name string
	make func() poll.Strategy
	lock bool // the goroutine owns its thread
	pin  bool // which stays on one processor
}

// ways are all of them.
var ways = []how{
	{"busy", func() poll.Strategy { return poll.Busy{} }, true, false},
	{"event", func() poll.Strategy { return poll.Event{} }, false, false},
	{"adaptive", func() poll.Strategy { return poll.Adaptive{} }, true, false},
	{"busy-unlocked", func() poll.Strategy { return poll.Busy{} }, false, false},
	{"busy-pinned", func() poll.Strategy { return poll.Busy{} }, true, true},
	{"event-thread", func() poll.Strategy { return poll.Event{Thread: true} }, true, false},
}

// own gives the goroutine the thread that its way asks for. It keeps a thread that is pinned,
// which then ends with it.
func (h *how) own() (release func(), err error) {
	if !h.lock {
		return func() {}, nil
	}
	runtime.LockOSThread()
	if !h.pin {
		return runtime.UnlockOSThread, nil
	}
	return func() {}, pin(false)
}

// Ways are the names of the ways to wait, those first that are measured unless others are
// asked for.
func Ways() []string {
	var names []string
	for _, h := range ways {
		names = append(names, h.name)
	}
	return names
}

// findWay is the way of a name.
func findWay(name string) (how, error) {
	i := slices.IndexFunc(ways, func(h how) bool { return h.name == name })
	if i < 0 {
		return how{}, usage.Errorf("no way to wait is %q: there are %s", name, strings.Join(Ways(), ", "))
	}
	return ways[i], nil
}

// variant is one thing that is measured, and what came of it so far.
type variant struct {
	workload string
	how      how
	batch    int           // completions that are taken at a time
	pace     time.Duration // between messages; 0 of a flood

	left                      string // why it is left out
	messages                  uint64
	p50, p99, p999, rate, cpu []float64 // of each round: usec, messages per second, processors
}

// String names it.
func (v *variant) String() string {
	if v.workload == paced {
		return fmt.Sprintf("%s each %v, %s", v.workload, v.pace, v.how.name)
	}
	return fmt.Sprintf("%s, %s, batch %d", v.workload, v.how.name, v.batch)
}

// pacedBatch is the batch where one message comes at a time.
const pacedBatch = 32

// variants are what a Config asks for.
func (c *Config) variants() (all []*variant, err error) {
	var hows []how
	for _, name := range c.Ways {
		h, err := findWay(name)
		if err != nil {
			return nil, err
		}
		hows = append(hows, h)
	}
	for _, p := range c.Paces {
		for _, h := range hows {
			all = append(all, &variant{workload: paced, how: h, batch: pacedBatch, pace: p})
		}
	}
	for _, h := range hows {
		for _, b := range c.Batches {
			all = append(all, &variant{workload: flood, how: h, batch: b})
		}
	}
	return all, nil
}
