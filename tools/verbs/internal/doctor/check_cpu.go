package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
)

// checkCPU compares the processor time that the process may have with what it is to do.
var checkCPU = Check{
	Name:  "cpu",
	About: "the processors that the process may use, and how much of their time, against the pollers that are wanted",
	After: []string{"system"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		cpus, errCPUs := n.allowed("Cpus_allowed_list")
		quotas, errQuotas := n.quotas()
		procs := len(cpus)
		least := quota{cpus: math.Inf(1)}
		if len(quotas) > 0 {
			least = slices.MinFunc(quotas, func(a, b quota) int { return compareFloat(a.cpus, b.cpus) })
			// What package runtime makes of it.
			procs = min(procs, max(2, int(min(math.Ceil(least.cpus), maxCPUs))))
		}
		if errCPUs == nil {
			n.saw("the process may use processors %s", formatList(cpus))
		}
		for _, q := range quotas {
			n.saw("%s: %.2f processors", q.seen, q.cpus)
		}
		if errQuotas == nil && len(quotas) == 0 {
			n.saw("no control group limits its processor time")
		}
		var found []Finding
		if errCPUs == nil && n.Pollers > 0 && n.Pollers >= procs {
			found = append(found, n.tooFew(cpus, procs, least))
		} else if f, ok := n.throttled(least); ok {
			found = append(found, f)
		}
		return found, errors.Join(errCPUs, errQuotas)
	},
}

func compareFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// tooFew says that there are not more processors than pollers.
func (n *Node) tooFew(cpus []int, procs int, least quota) Finding {
	f := Finding{
		Severity: Fault,
		What: fmt.Sprintf("%s for %s busily: nothing else of the program would run, so package poll refuses as many pollers as GOMAXPROCS, which will be %d",
			plural.Of(procs, "processor"), pollers(n.Pollers), procs),
		Seen: fmt.Sprintf("Cpus_allowed_list of /%s/status is %s", n.process(), formatList(cpus)),
		Mend: fmt.Sprintf("give it %d processors or more by taskset -c or the cpuset.cpus of its cgroup, or wait with poll.Adaptive or poll.Event", n.Pollers+1),
	}
	if procs < len(cpus) {
		f.Seen += ", and " + least.seen
		f.Mend = mendQuota(least, n.Pollers)
	}
	return f
}

// throttled finds a quota that pollers use up.
func (n *Node) throttled(q quota) (Finding, bool) {
	what := ""
	switch {
	case n.Pollers > 0 && q.cpus <= float64(n.Pollers):
		what = fmt.Sprintf("%s may be used, by %s busily and by all else: the kernel stops the whole program for the rest of each period, for tens of milliseconds",
			processors(q.cpus), pollers(n.Pollers))
	case q.cpus < 1:
		what = processors(q.cpus) + " may be used: the kernel stops whatever waits busily, or works for long, for the rest of each period, for tens of milliseconds"
	default:
		return Finding{}, false
	}
	seen := q.seen
	if s, err := n.read(q.dir + "/cpu.stat"); err == nil {
		for line := range strings.Lines(s) {
			if v, ok := strings.CutPrefix(line, "nr_throttled "); ok {
				if times, err := strconv.ParseUint(strings.TrimSpace(v), 10, 64); err == nil && times > 0 {
					seen += fmt.Sprintf("; nr_throttled in cpu.stat there is %d", times)
				}
			}
		}
	}
	return Finding{Severity: Warning, What: what, Seen: seen, Mend: mendQuota(q, n.Pollers)}, true
}

// pollers says how many goroutines do what.
func pollers(n int) string {
	if n == 1 {
		return "1 goroutine that polls"
	}
	return fmt.Sprintf("%d goroutines that poll", n)
}

// processors says how many.
func processors(cpus float64) string {
	return fmt.Sprintf("the time of %.3g processors", cpus)
}

// mendQuota gives room for the pollers and the rest of the program.
func mendQuota(q quota, pollers int) string {
	const period = 100000
	file, value := "cpu.max", fmt.Sprintf("'%d %d'", (pollers+1)*period, period)
	if !strings.Contains(q.seen, "cpu.max") {
		file, value = "cpu.cfs_quota_us", strconv.Itoa((pollers+1)*period)
	}
	return fmt.Sprintf("echo %s > /%s/%s\n# or in Kubernetes a CPU limit of %d or none, or wait with poll.Event", value, q.dir, file, pollers+1)
}
