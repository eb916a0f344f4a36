package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A hierarchy is where a controller of control groups has the process.
type hierarchy struct {
	unified bool
	// levels are the folders of the process's group and of those above it, up to
	// the highest that can be seen: in a container that is its own.
	levels []string
}

// hierarchy finds the groups of the process for a controller, such as "cpu". It has no
// levels where there is none, which is no error.
func (n *Node) hierarchy(controller string) (hierarchy, error) {
	groups, err := n.read(n.process() + "/cgroup")
	if err != nil {
		return hierarchy{}, err
	}
	mounts, err := n.read("proc/self/mountinfo")
	if err != nil {
		return hierarchy{}, err
	}
	group, unified, ok := parseGroup(groups, controller)
	if !ok {
		return hierarchy{}, nil
	}
	root, point, ok := parseCgroupMount(mounts, controller, unified)
	if !ok {
		return hierarchy{}, nil
	}
	h := hierarchy{unified: unified}
	// The group may be outside of what is mounted here, as in a container that
	// shares the namespace of groups with its host.
	below, inside := strings.CutPrefix(group, strings.TrimSuffix(root, "/"))
	if !inside || below != "" && below[0] != '/' || slices.Contains(strings.Split(below, "/"), "..") {
		below = ""
	}
	for dir := path.Join(".", point, below); ; dir = path.Dir(dir) {
		if n.exists(dir) {
			h.levels = append(h.levels, dir)
		}
		if len(dir) <= len(point) || dir == "." {
			return h, nil
		}
	}
}

// parseGroup finds the group of a controller in /proc/PID/cgroup: lines such as
//
//	4:cpu,cpuacct:/user.slice
//	0::/user.slice/session-1.scope
//
// A controller of the first kind is not in the unified hierarchy, the second.
func parseGroup(s, controller string) (group string, unified, ok bool) {
	for line := range strings.Lines(s) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			continue
		}
		if slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2], false, true
		}
		if f[0] == "0" && f[1] == "" {
			group, unified, ok = f[2], true, true
		}
	}
	return group, unified, ok
}

// parseCgroupMount finds in /proc/PID/mountinfo where a hierarchy is mounted, and which part
// of it: lines such as
//
//	30 23 0:26 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw
func parseCgroupMount(s, controller string, unified bool) (root, point string, ok bool) {
	for line := range strings.Lines(s) {
		front, back, _ := strings.Cut(line, " - ")
		f, b := strings.Fields(front), strings.Fields(back)
		if len(f) < 5 || len(b) < 3 {
			continue
		}
		if unified && b[0] == "cgroup2" || !unified && b[0] == "cgroup" && slices.Contains(strings.Split(b[2], ","), controller) {
			// One mounted over another hides it, so the last counts.
			root, point, ok = unescape(f[3]), strings.TrimPrefix(path.Clean(unescape(f[4])), "/"), true
		}
	}
	return root, point, ok
}

// unescape undoes how the kernel writes blanks and backslashes in paths.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// A quota is how many processors' time a group may use.
type quota struct {
	cpus float64
	seen string // the file and its content
	dir  string
}

// quotas reads the quotas of all levels that have one.
func (n *Node) quotas() ([]quota, error) {
	h, err := n.hierarchy("cpu")
	if err != nil {
		return nil, err
	}
	var all []quota
	for _, dir := range h.levels {
		q, ok, err := n.quota(dir, h.unified)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, q)
		}
	}
	return all, nil
}

// quota reads the quota of one group. ok is false if it has none.
func (n *Node) quota(dir string, unified bool) (q quota, ok bool, err error) {
	var of, per, file string
	if unified {
		file = dir + "/cpu.max"
		if !n.exists(file) {
			return quota{}, false, nil // the root's, or the controller is off
		}
		s, err := n.line(file)
		if err != nil {
			return quota{}, false, err
		}
		of, per, _ = strings.Cut(s, " ")
		q.seen = fmt.Sprintf("/%s is %q", file, s)
	} else {
		file = dir + "/cpu.cfs_quota_us"
		if !n.exists(file) {
			return quota{}, false, nil
		}
		if of, err = n.line(file); err != nil {
			return quota{}, false, err
		}
		if per, err = n.line(dir + "/cpu.cfs_period_us"); err != nil {
			return quota{}, false, err
		}
		q.seen = fmt.Sprintf("/%s is %s, and cpu.cfs_period_us beside it %s", file, of, per)
	}
	if of == "max" || of == "-1" {
		return quota{}, false, nil
	}
	x, errOf := strconv.ParseUint(of, 10, 63)
	y, errPer := strconv.ParseUint(per, 10, 63)
	if errOf != nil || errPer != nil || y == 0 {
		return quota{}, false, fmt.Errorf("/%s: %.40q of %.40q is no quota", file, of, per)
	}
	q.cpus, q.dir = float64(x)/float64(y), dir
	return q, true, nil
}
