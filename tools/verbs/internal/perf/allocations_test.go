package perf

import (
	"runtime"
	"strings"
	"testing"
)

// The loops, and what they call of the library, allocate nothing for a message. They are
// told from all else by the profile of memory: what the model does for each message, and
// what timers and the rest of the program do on a busy machine, is of no account here.
func TestAllocations(t *testing.T) {
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	defer func() { runtime.MemProfileRate = rate }()
	const iters = 2000
	for _, name := range []string{"send_bw", "write_bw", "read_bw", "atomic_bw", "send_lat", "write_lat", "read_lat", "send_bw -b", "send_bw UD", "send_lat UD", "send_bw -e", "send_lat -e"} {
		t.Run(name, func(t *testing.T) {
			test, way, _ := strings.Cut(name, " ")
			c := config(t, test, func(c *Config) { c.Iters, c.NoPeak = iters, false })
			switch way {
			case "-b":
				c.Bidirectional = true
			case "-e":
				c.Wait = Event
			case "":
			default:
				c.Transport = way
			}
			a, b := openPair(t, fabric(t), c, c)
			before, _ := loopAllocations(t)
			pc, ps := playBoth(t.Context(), t.Context(), a, b, nil)
			after, all := loopAllocations(t)
			if pc.err != nil || ps.err != nil {
				t.Fatal(pc.err, ps.err)
			}
			a.Close()
			b.Close()
			// A loop begins with a few, and the runtime may make again what it needs to
			// block a goroutine after a collection of garbage.
			if n := after - before; n > iters/20 {
				t.Errorf("%.2f allocations a message", float64(n)/iters)
			} else {
				t.Logf("%d allocations", n)
			}
			if all == 0 {
				t.Error("the profile knows no loop")
			}
		})
	}
}

// loopAllocations counts what the loops of this process have allocated so far: without the
// model, and with it.
func loopAllocations(t *testing.T) (own, all int64) {
	t.Helper()
	for range 3 { // the profile is as of the last collections
		runtime.GC()
	}
	var records []runtime.MemProfileRecord
	for n, ok := runtime.MemProfile(nil, true); !ok; {
		records = make([]runtime.MemProfileRecord, n+100)
		n, ok = runtime.MemProfile(records, true)
		records = records[:min(n, len(records))]
	}
	for i := range records {
		inLoop, inModel := false, false
		for frames := runtime.CallersFrames(records[i].Stack()); ; {
			f, more := frames.Next()
			switch f.Function {
			case "github.com/goverbs/goverbs/tools/verbs/internal/perf.(*stream).run", "github.com/goverbs/goverbs/tools/verbs/internal/perf.(*game).play":
				inLoop = true
			}
			inModel = inModel || strings.Contains(f.Function, "/mlx5/model.") || strings.Contains(f.Function, "/uverbs/sim.")
			if !more {
				break
			}
		}
		if inLoop {
			if all += records[i].AllocObjects; !inModel {
				own += records[i].AllocObjects
			}
		}
	}
	return own, all
}
