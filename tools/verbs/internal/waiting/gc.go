package waiting

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/internal/waitreport"
)

// gcPercent makes the collector work nearly without rest.
const gcPercent = 10

// RunGC measures how fast loops run that poll while other goroutines allocate flat out, in
// proportion to without them and with the collector off. When ctx ends it returns what
// it has, and the cause.
func RunGC(ctx context.Context, c LoopConfig, tell func(done, of int)) (*waitreport.LoopReport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := loopSet{}
	with, without := make([][]float64, len(loops)), make([][]float64, len(loops))
	cycles, err := gcRounds(ctx, c, set, with, without, tell)
	err = errors.Join(err, set.close())
	r := waitreport.NewLoops("GC flat out", "GC off", usec(c.Slice))
	for i, l := range loops {
		r.Add(l.name, l.what, l.model, with[i], without[i])
	}
	r.Note("Flat out: %s that allocate, GOGC=%d; %.0f collections a second. Off: nothing allocates.", plural.Of(allocators(), "goroutine"), gcPercent, cycles)
	r.Judge()
	r.Interrupted = ctx.Err() != nil
	if len(with[len(loops)-1]) == 0 {
		r = nil
	}
	return r, err
}

// gcRounds measures the rounds and returns how many collections there were in a second.
func gcRounds(ctx context.Context, c LoopConfig, set loopSet, with, without [][]float64, tell func(done, of int)) (cycles float64, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var collections, loaded float64
	for round := range c.Rounds {
		for i, l := range loops {
			if tell != nil {
				tell(round*len(loops)+i, c.Rounds*len(loops))
			}
			var pair [2]float64 // off, flat out
			for k := range pair {
				if ctx.Err() != nil {
					return perSecond(collections, loaded), context.Cause(ctx)
				}
				k = (k + round) % 2
				var stop func() uint32
				if k == 1 {
					stop = allocate()
				}
				var n uint32
				if pair[k], err = set.run(l.name, c.Slice); k == 1 {
					n = stop()
				}
				if err != nil {
					return 0, err
				}
				if k == 1 {
					collections += float64(n)
					loaded += c.Slice.Seconds()
				}
			}
			without[i], with[i] = append(without[i], pair[0]), append(with[i], pair[1])
		}
	}
	return perSecond(collections, loaded), nil
}

func perSecond(n, seconds float64) float64 {
	if seconds == 0 {
		return 0
	}
	return n / seconds
}

// allocators is how many goroutines allocate: as many as there are processors besides that
// of the loop.
func allocators() int { return max(1, runtime.GOMAXPROCS(0)-1) }

// node is what they allocate: it has pointers, for the collector to follow.
type node struct {
	next *node
	data [6]uint64
}

// liveNodes is how many nodes each keeps.
const liveNodes = 1 << 17

// allocate begins to allocate flat out, with the collector on. stop ends it and returns how
// many collections there were.
func allocate() (stop func() uint32) {
	var over atomic.Bool
	var all sync.WaitGroup
	before := collections()
	debug.SetGCPercent(gcPercent)
	for range allocators() {
		all.Go(func() {
			live := make([]*node, liveNodes)
			for i := 0; !over.Load(); i++ {
				at := i % len(live)
				live[at] = &node{next: live[(at*7+1)%len(live)]}
				live[at].next = nil // no chain lives for ever
			}
		})
	}
	return func() uint32 {
		over.Store(true)
		all.Wait()
		debug.SetGCPercent(-1)
		n := collections() - before
		runtime.GC() // what they left behind is nobody's
		return n
	}
}

// collections is how many collections there have been.
func collections() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumGC
}
