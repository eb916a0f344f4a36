package mlx5

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// load is a completion queue under a benchmark: its queue pairs always have
// enough posted for what the device completes next.
type load struct {
	q       *CQ
	device  *completer
	parties []*party
	recv    bool
	chunk   int // completions at a time
	quiet   int // requests without one before each request with one
	id      uint64
	wcs     []cq.WC
	pos     []uint16 // of the chunk, in order
}

func newLoad(tb testing.TB, recv bool, qps, entries, batch, quiet int) *load {
	l := &load{recv: recv, quiet: quiet, chunk: min(entries, qps*2048), wcs: make([]cq.WC, batch)}
	var eps cq.Endpoints
	var state cq.State
	var err error
	l.q, l.device, err = newTestCQ(aligned(64*entries), aligned(8), 64, 0, func(c *CQConfig) {
		c.Endpoints, c.State = &eps, &state
	})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range qps {
		l.parties = append(l.parties, newParty(&eps, &state, uint32(17+i), uint32(l.chunk/qps*(1+quiet))))
	}
	l.pos = make([]uint16, l.chunk)
	return l
}

// post posts a chunk.
func (l *load) post() {
	for i := range l.pos {
		p := l.parties[i%len(l.parties)]
		for range l.quiet {
			p.postSend(0, cq.OpWrite, 64, true, 1)
		}
		l.id++
		if l.recv {
			l.pos[i] = p.postRecv(l.id, 64)
		} else {
			l.pos[i], _ = p.postSend(l.id, cq.OpWrite, 64, false, 1)
		}
	}
}

// complete adds a chunk of completions.
func (l *load) complete() {
	c := completion{opcode: 0, sendOpcode: 8, bytes: 64}
	if l.recv {
		c = completion{opcode: 2, bytes: 64}
	}
	for i, pos := range l.pos {
		p := l.parties[i%len(l.parties)]
		c.uidx, c.qpn, c.counter = p.index, p.ep.QPN, pos
		l.device.add(&c)
	}
}

// drain polls a chunk away and returns how long that took.
func (l *load) drain(tb testing.TB) time.Duration {
	got := 0
	start := time.Now()
	for got < l.chunk {
		n, _ := l.q.Poll(l.wcs)
		if n == 0 {
			break
		}
		got += n
	}
	took := time.Since(start)
	if got != l.chunk {
		tb.Fatalf("%d of %d completions", got, l.chunk)
	}
	return took
}

// calibrate does what drain cannot do without to the same entries.
func (l *load) calibrate() time.Duration {
	i := l.q.next - uint32(l.chunk)
	start := time.Now()
	for n := 0; n < l.chunk; n += len(l.wcs) {
		calibrate(&l.q.ring, i, l.wcs)
		i += uint32(len(l.wcs))
	}
	return time.Since(start)
}

// lookUp is calibrate for calibrateLookUp.
func (l *load) lookUp() time.Duration {
	i, view := l.q.next-uint32(l.chunk), l.q.decode.endpoints.View()
	start := time.Now()
	for n := 0; n < l.chunk; n += len(l.wcs) {
		calibrateLookUp(&l.q.ring, i, l.wcs, view, l.recv)
		i += uint32(len(l.wcs))
	}
	return time.Since(start)
}

// BenchmarkPoll times Poll alone, per completion, and as a multiple of the
// calibration loop, x-floor. One iteration is one chunk of completions; medians are
// given. Beside it stand the time of a calibration loop that also looks up the queue
// of each entry, and x-look-up, the multiple of that. It is no floor, since Poll does
// not read all of an entry, but it says how much of x-floor is looking up.
// In other-core the ring is written by another core before it is read.
func BenchmarkPoll(b *testing.B) {
	for _, kind := range []string{"recv", "send"} {
		for _, qps := range []int{1, 64} {
			for _, entries := range []int{256, 4096, 65536} {
				for _, batch := range []int{1, 16, 32, 64} {
					for _, writer := range []string{"warm", "other-core"} {
						b.Run(fmt.Sprintf("%s/qps=%d/entries=%d/batch=%d/%s", kind, qps, entries, batch, writer), func(b *testing.B) {
							l := newLoad(b, kind == "recv", qps, entries, batch, 0)
							complete := l.complete
							if writer == "other-core" {
								var stop func()
								complete, stop = elsewhere(l.complete)
								defer stop()
							}
							benchmarkPoll(b, l, complete)
						})
					}
				}
			}
		}
	}
}

func benchmarkPoll(b *testing.B, l *load, complete func()) {
	var polls, floors, lookUps []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		l.post()
		complete()
		polls = append(polls, l.drain(b))
		// The same entries again, as cold as they were, and without Poll.
		l.device.producer -= uint32(l.chunk)
		complete()
		floors = append(floors, l.calibrate())
		l.device.producer -= uint32(l.chunk)
		complete()
		lookUps = append(lookUps, l.lookUp())
	}
	poll, floor, lookUp := median(polls), median(floors), median(lookUps)
	b.ReportMetric(float64(poll.Nanoseconds())/float64(l.chunk), "ns/CQE")
	b.ReportMetric(float64(floor.Nanoseconds())/float64(l.chunk), "floor-ns/CQE")
	b.ReportMetric(float64(poll)/float64(floor), "x-floor")
	b.ReportMetric(float64(lookUp.Nanoseconds())/float64(l.chunk), "look-up-ns/CQE")
	b.ReportMetric(float64(poll)/float64(lookUp), "x-look-up")
	b.ReportMetric(0, "ns/op") // most of an iteration is not timed
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// elsewhere makes f run on another thread, each time it is called.
func elsewhere(f func()) (call, stop func()) {
	var turn atomic.Uint32 // odd: the other's; 1<<31: over
	go func() {
		runtime.LockOSThread()
		for {
			switch v := turn.Load(); {
			case v == 1<<31:
				return
			case v&1 == 1:
				f()
				turn.Store(v + 1)
			}
		}
	}()
	call = func() {
		turn.Add(1)
		for turn.Load()&1 == 1 {
		}
	}
	return call, func() { turn.Store(1 << 31) }
}

// BenchmarkPollQuiet is BenchmarkPoll of send queues in which only every so many
// requests complete. It gives the time per completion too.
func BenchmarkPollQuiet(b *testing.B) {
	for _, every := range []int{2, 16, 64} {
		b.Run(fmt.Sprintf("every=%d", every), func(b *testing.B) {
			l := newLoad(b, false, 1, 256, 32, every-1)
			benchmarkPoll(b, l, l.complete)
		})
	}
}

func BenchmarkPollEmpty(b *testing.B) {
	l := newLoad(b, true, 1, 256, 32, 0)
	b.ReportAllocs()
	for b.Loop() {
		if n, drained := l.q.Poll(l.wcs); n != 0 || !drained {
			b.Fatal("completions out of nothing")
		}
	}
}
