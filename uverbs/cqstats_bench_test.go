package uverbs

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// steadyRing is a ring that always has a batch of completions.
type steadyRing struct {
	cq.CompletionRing
	wcs []WC
	dry bool // and no more than that
}

func (r *steadyRing) Poll(wcs []WC) (int, bool) { return copy(wcs, r.wcs), r.dry }

func (r *steadyRing) Holds(n uint32) bool { return n < 50 }

// BenchmarkMetered measures what counting costs: Poll of a queue that counts against one
// that does not, in turns, over the same ring, which does little else than to copy
// completions. It reports how much more a completion takes, in ns, and the ratio, each
// queue at its best.
func BenchmarkMetered(b *testing.B) {
	r := newRig(b, false)
	for _, batch := range []int{1, 2, 8, 32, 128} {
		for _, dry := range []bool{true, false} {
			name := fmt.Sprintf("batch=%d/backlog", batch)
			if dry {
				name = fmt.Sprintf("batch=%d/drained", batch)
			}
			b.Run(name, func(b *testing.B) {
				var queues [2]*CQ
				for i, o := range []*CQOptions{{}, {Stats: &StatsOptions{Sample: -1, OnHighWater: func(CQUsage) {}}}} {
					q, err := r.dev.NewCQ(256, o)
					if err != nil {
						b.Fatal(err)
					}
					defer q.Close()
					q.ring = &steadyRing{CompletionRing: q.ring, wcs: make([]WC, batch), dry: dry}
					queues[i] = q
				}
				wcs := make([]WC, batch)
				const polls = 2000
				took := [2]time.Duration{math.MaxInt64, math.MaxInt64}
				for b.Loop() {
					for i, q := range queues {
						begin := time.Now()
						for range polls {
							q.Poll(wcs)
						}
						took[i] = min(took[i], time.Since(begin))
					}
				}
				each := func(d time.Duration) float64 { return float64(d) / float64(polls*batch) }
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(each(took[0]), "off-ns/completion")
				b.ReportMetric(each(took[1]), "on-ns/completion")
				b.ReportMetric(each(took[1]-took[0]), "more-ns/completion")
				b.ReportMetric(float64(took[1])/float64(took[0]), "on/off")
			})
		}
	}
}
