package waiting

import (
	"fmt"

	"github.com/goverbs/goverbs/tools/internal/waitreport"
)

// compare are the ratios of what was measured: with the ways to wait, to the first of them;
// with the batches, to the first of the same way.
func compare(all []*variant) (cs []waitreport.Comparison) {
	add := func(what string, of, to []float64) {
		if c, ok := waitreport.Compare(what, of, to); ok {
			cs = append(cs, c)
		}
	}
	var first *variant // of the workload
	var batch *variant // of the way
	for _, v := range all {
		if len(v.rate) == 0 {
			continue
		}
		if first == nil || first.workload != v.workload || first.pace != v.pace {
			first, batch = v, v
			continue
		}
		if v.workload == paced {
			add(fmt.Sprintf("each %v, p50, %s to %s", v.pace, v.how.name, first.how.name), v.p50, first.p50)
			add(fmt.Sprintf("each %v, p99, %s to %s", v.pace, v.how.name, first.how.name), v.p99, first.p99)
			continue
		}
		if v.how.name != batch.how.name {
			batch = v
			add(fmt.Sprintf("flood, messages per second, %s to %s, batch %d", v.how.name, first.how.name, v.batch), v.rate, first.rate)
			continue
		}
		add(fmt.Sprintf("flood, messages per second, %s, batch %d to %d", v.how.name, v.batch, batch.batch), v.rate, batch.rate)
	}
	return cs
}
