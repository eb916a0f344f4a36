package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// A limit is how many objects of a kind a device has room for.
type limit struct {
	kind, name string // as netlink counts it, and one in words
	file       string // as rdma resource show and ibv_devinfo -v call the maximum
	max        func(*uverbs.DeviceAttr) int
	owners     func(Netlink, uint32) ([]nldev.Owner, error)
}

var limits = []limit{
	{"qp", "queue pair", "max_qp", func(a *uverbs.DeviceAttr) int { return a.MaxQP }, owners(Netlink.QPs, func(x nldev.QP) nldev.Owner { return x.Owner })},
	{"cq", "completion queue", "max_cq", func(a *uverbs.DeviceAttr) int { return a.MaxCQ }, owners(Netlink.CQs, func(x nldev.CQ) nldev.Owner { return x.Owner })},
	{"mr", "memory region", "max_mr", func(a *uverbs.DeviceAttr) int { return a.MaxMR }, owners(Netlink.MRs, func(x nldev.MR) nldev.Owner { return x.Owner })},
	{"pd", "protection domain", "max_pd", func(a *uverbs.DeviceAttr) int { return a.MaxPD }, owners(Netlink.PDs, func(x nldev.PD) nldev.Owner { return x.Owner })},
	{"srq", "shared receive queue", "max_srq", func(a *uverbs.DeviceAttr) int { return a.MaxSRQ }, owners(Netlink.SRQs, func(x nldev.SRQ) nldev.Owner { return x.Owner })},
}

// owners makes a list of owners of a list of objects.
func owners[T any](list func(Netlink, uint32) ([]T, error), owner func(T) nldev.Owner) func(Netlink, uint32) ([]nldev.Owner, error) {
	return func(c Netlink, index uint32) ([]nldev.Owner, error) {
		all, err := list(c, index)
		owned := make([]nldev.Owner, 0, len(all))
		for _, x := range all {
			owned = append(owned, owner(x))
		}
		return owned, err
	}
}

// checkLimits compares what is in use with what devices have.
var checkLimits = Check{
	Name:  "limits",
	About: "how many objects of each device are in use, how many it has, and who has most of them",
	After: []string{"devices", "namespace"},
	Run: func(ctx context.Context, n *Node) ([]Finding, error) {
		if len(n.devices()) == 0 {
			return nil, nil
		}
		c, err := n.dial()
		if err != nil {
			return nil, err
		}
		defer c.Close()
		var found []Finding
		var errs []error
		for _, d := range n.devices() {
			if d.Index < 0 || ctx.Err() != nil {
				errs = append(errs, unseen(d.Name, context.Cause(ctx)))
				continue
			}
			counts, err := c.ResourceCounts(uint32(d.Index))
			if err != nil {
				errs = append(errs, unseen(d.Name, err))
				continue
			}
			a, err := n.query(d.Name)
			if err != nil {
				continue // the check of files tells why it cannot be opened
			}
			for _, l := range limits {
				used, ok := counts[l.kind]
				has := l.max(&a.Attr)
				if !ok || has <= 0 {
					continue
				}
				n.saw("%s: %s of %d", d.Name, plural.Of(used, l.name), has)
				if f, ok := nearLimit(used, uint64(has)); ok {
					f.Object = d.Name
					f.What = fmt.Sprintf("%d of at most %s are in use: %s", used, plural.Of(has, l.name), f.What)
					f.Seen = fmt.Sprintf("netlink counts %d %s, and %s of the device is %d", used, l.kind, l.file, has)
					f.Mend = fmt.Sprintf("rdma resource show %s dev %s\n# and end, or mend, what makes so many", l.kind, d.Name)
					if most := n.most(c, uint32(d.Index), &l); most != "" {
						f.Seen += "; " + most
					}
					found = append(found, f)
				}
			}
		}
		return found, errors.Join(errs...)
	},
}

// nearLimit judges how much of a limit is used.
func nearLimit(used, has uint64) (Finding, bool) {
	switch {
	case used >= has:
		return Finding{Severity: Fault, What: "no program can make another"}, true
	case used >= has-has/5: // 80%
		return Finding{Severity: Warning, What: "soon no program can make another"}, true
	}
	return Finding{}, false
}

// most says which process has most of the objects of a kind, or "".
func (n *Node) most(c Netlink, index uint32, l *limit) string {
	all, err := l.owners(c, index)
	if err != nil || len(all) == 0 {
		return ""
	}
	threads := make(map[uint32]int)
	for _, o := range all {
		if o.TID != 0 {
			threads[o.TID]++
		}
	}
	processes := make(map[int]int)
	for tid, has := range threads {
		processes[n.processOf(int(tid))] += has
	}
	if len(processes) == 0 {
		return "whose they are cannot be seen from this PID namespace"
	}
	pid := slices.MaxFunc(slices.Collect(maps.Keys(processes)), func(a, b int) int {
		return cmp.Or(cmp.Compare(processes[a], processes[b]), cmp.Compare(b, a))
	})
	name := ""
	if s, err := n.line(fmt.Sprintf("proc/%d/comm", pid)); err == nil {
		name = " (" + s + ")"
	}
	return fmt.Sprintf("process %d%s has %d of them", pid, name, processes[pid])
}

// processOf is the process of a thread, or the thread where that cannot be told.
func (n *Node) processOf(tid int) int {
	s, err := n.read(fmt.Sprintf("proc/%d/status", tid))
	if err != nil {
		return tid
	}
	for line := range strings.Lines(s) {
		if v, ok := strings.CutPrefix(line, "Tgid:"); ok {
			if pid, err := strconv.Atoi(strings.TrimSpace(v)); err == nil {
				return pid
			}
		}
	}
	return tid
}
