package poll

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// maxCPUs is more than any kernel can be configured for.
const maxCPUs = 8192

// NearDevice returns the processors of the NUMA node that an RDMA device is attached to,
// of those that the process may use: for GroupOptions.CPUs. For a soft device it is the
// node of the network device below. It returns none where the system does not say, and
// then nothing is bound.
func NearDevice(name string) []int {
	allowed, err := allowedCPUs()
	if err != nil {
		return nil
	}
	return common(localCPUs(os.DirFS("/"), name), allowed)
}

// localCPUs returns the processors that sysfs names as a device's.
func localCPUs(root fs.FS, name string) []int {
	if !isFileName(name) {
		return nil
	}
	dirs := []string{"sys/class/infiniband/" + name + "/device/"}
	if below, err := readText(root, "sys/class/infiniband/"+name+"/parent"); err == nil && isFileName(below) {
		dirs = append(dirs, "sys/class/net/"+below+"/device/")
	}
	for _, dir := range dirs {
		// A device without a node has a list of all processors.
		node, err := readText(root, dir+"numa_node")
		if err != nil || strings.HasPrefix(node, "-") {
			continue
		}
		if list, err := readText(root, dir+"local_cpulist"); err == nil {
			if cpus, err := parseCPUs(list); err == nil {
				return cpus
			}
		}
	}
	return nil
}

// parseCPUs reads a list as /sys and /proc have them, such as 0-3,7. An empty one is
// none.
func parseCPUs(s string) ([]int, error) {
	var cpus []int
	for rest, more := s, s != ""; more; {
		var part string
		part, rest, more = strings.Cut(rest, ",")
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, errFirst := strconv.ParseUint(from, 10, 16)
		last, errLast := strconv.ParseUint(to, 10, 16)
		if errFirst != nil || errLast != nil || first > last || last >= maxCPUs || len(cpus) > maxCPUs {
			return nil, fmt.Errorf("poll: %.80q is not a list of processors", s)
		}
		for n := first; n <= last; n++ {
			cpus = append(cpus, int(n))
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// formatCPUs writes a list as parseCPUs reads it.
func formatCPUs(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		j := i + 1
		for j < len(cpus) && cpus[j] == cpus[j-1]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i+1 {
			b.WriteString("-" + strconv.Itoa(cpus[j-1]))
		}
		i = j
	}
	return b.String()
}

// common returns what is in both.
func common(a, b []int) []int {
	var both []int
	for _, c := range a {
		if slices.Contains(b, c) {
			both = append(both, c)
		}
	}
	return both
}

// checkCPUs refuses processors that the process may not use.
func checkCPUs(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	allowed, err := allowedCPUs()
	if err != nil {
		return fmt.Errorf("poll: bind pollers to processors %s: %w", formatCPUs(cpus), err)
	}
	for _, c := range cpus {
		if !slices.Contains(allowed, c) {
			return fmt.Errorf("poll: bind a poller to processor %d: the process may use %s: see its affinity and the cpuset of its cgroup", c, formatCPUs(allowed))
		}
	}
	return nil
}

// locatedQueue is a queue that knows which processors its device is near to. Those of
// package uverbs do.
type locatedQueue interface{ LocalCPUs() []int }

// near returns the processors that the poller is best on, of those that the process may
// use, or nil if there is no telling or no choice.
func (p *groupPoller) near() []int {
	var cpus []int
	for _, m := range p.serving {
		if l, ok := m.q.(locatedQueue); ok && !m.located {
			m.cpus, m.located = l.LocalCPUs(), true // which reads files
		}
		cpus = append(cpus, m.cpus...)
	}
	slices.Sort(cpus)
	cpus = common(slices.Compact(cpus), p.g.allowed)
	if len(cpus) == len(p.g.allowed) {
		return nil
	}
	return cpus
}

// place binds the poller to where it is to run. It returns errNeedsThread when there is
// no thread yet that could be bound.
func (p *groupPoller) place() error {
	o := &p.g.o
	var cpus []int
	switch {
	case len(o.CPUs) > 0:
		i := p.index % len(o.CPUs)
		cpus = o.CPUs[i : i+1]
	case !o.Unpinned:
		cpus = p.near()
	}
	if (cpus != nil || o.Locked) && !p.threaded {
		return errNeedsThread
	}
	if cpus == nil || slices.Equal(cpus, p.bound) {
		return nil
	}
	if err := bindThread(cpus); err != nil {
		if len(o.CPUs) == 0 {
			return nil // nobody asked for it
		}
		return fmt.Errorf("bind poller %d to processors %s: %w", p.index, formatCPUs(cpus), err)
	}
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.bound = cpus
	return nil
}

// readText reads a short file of sysfs or proc.
func readText(root fs.FS, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var buf [1 << 15]byte
	n := 0
	for n < len(buf) {
		k, err := f.Read(buf[n:])
		n += k
		if err != nil || k == 0 {
			return strings.TrimSpace(string(buf[:n])), nil
		}
	}
	return "", errors.New("longer than such a file is")
}

// isFileName says whether a name is one path element and nothing else.
func isFileName(s string) bool { return s != "" && s != "." && s != ".." && !strings.Contains(s, "/") }
