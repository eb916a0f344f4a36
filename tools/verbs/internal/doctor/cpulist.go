package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCPUs is more than any kernel can be configured for, and more than there are NUMA nodes.
const maxCPUs = 8192

// parseList reads a list of processors or NUMA nodes as /sys and /proc have them, such as
// 0-3,7. An empty one is none.
func parseList(s string) ([]int, error) {
	var all []int
	for rest, more := s, s != ""; more; {
		var part string
		part, rest, more = strings.Cut(rest, ",")
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, errFirst := strconv.ParseUint(from, 10, 16)
		last, errLast := strconv.ParseUint(to, 10, 16)
		if errFirst != nil || errLast != nil || first > last || last >= maxCPUs || len(all) > maxCPUs {
			return nil, fmt.Errorf("%.80q is no list of numbers such as 0-3,7", s)
		}
		for n := first; n <= last; n++ {
			all = append(all, int(n))
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// formatList writes a list as parseList reads it.
func formatList(all []int) string {
	var b strings.Builder
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && all[j] == all[j-1]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(all[i]))
		if j > i+1 {
			b.WriteString("-" + strconv.Itoa(all[j-1]))
		}
		i = j
	}
	return b.String()
}

// common returns what is in both.
func common(a, b []int) []int {
	var both []int
	for _, x := range a {
		if slices.Contains(b, x) {
			both = append(both, x)
		}
	}
	return both
}

// list reads a file that has a list.
func (n *Node) list(name string) ([]int, error) {
	s, err := n.line(name)
	if err != nil {
		return nil, err
	}
	all, err := parseList(s)
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", name, err)
	}
	return all, nil
}

// allowed reads what the process may use: "Cpus_allowed_list" or "Mems_allowed_list" of its
// status, which is what its affinity leaves of the cpuset of its cgroup.
func (n *Node) allowed(key string) ([]int, error) {
	file := n.process() + "/status"
	s, err := n.read(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(s) {
		if v, ok := strings.CutPrefix(line, key+":"); ok {
			all, err := parseList(strings.TrimSpace(v))
			if err == nil && len(all) == 0 {
				err = fmt.Errorf("%s is empty", key)
			}
			if err != nil {
				return nil, fmt.Errorf("/%s: %w", file, err)
			}
			return all, nil
		}
	}
	return nil, fmt.Errorf("/%s: has no %s", file, key)
}
