package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/poll"
)

// checkVectors looks at where the interrupts of completions go.
var checkVectors = Check{
	Name:  "vectors",
	About: "the completion vectors of each device, and the processors that they interrupt",
	After: []string{"devices"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		if n.Vectors == nil || len(n.devices()) == 0 {
			return nil, nil
		}
		online, err := n.list("sys/devices/system/cpu/online")
		if err != nil {
			return nil, err
		}
		var found []Finding
		var errs []error
		for _, d := range n.devices() {
			if d.Dir == "" {
				continue
			}
			v, err := n.Vectors(d.Name)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue // it has gone meanwhile
			case err != nil:
				errs = append(errs, unseen(d.Name, err))
				continue
			case len(v.Vectors) == 0:
				n.saw("%s: %v", d.Name, v.Unknown)
				continue
			}
			for _, w := range v.Vectors {
				n.saw("%s: vector %d is interrupt %d, which goes to processor %s", d.Name, w.Index, w.IRQ, formatList(target(&w)))
			}
			found = append(found, crowded(v, online)...)
			found = append(found, far(v, online)...)
		}
		return found, errors.Join(errs...)
	},
}

// target is where an interrupt goes: to the processors that it was directed to, else to those
// that it may go to.
func target(v *poll.Vector) []int {
	if len(v.Effective) > 0 {
		return v.Effective
	}
	return v.Allowed
}

// irqs lists interrupts, for a shell.
func irqs(all []poll.Vector) string {
	var b strings.Builder
	for i, v := range all {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(v.IRQ))
	}
	return b.String()
}

// leaveThem ends the advice to direct interrupts.
const leaveThem = "# and tell irqbalance, if it runs, to leave them alone: --banirq=IRQ"

// spreadOut directs interrupts to processors, one each, as far as these go.
func spreadOut(vectors []poll.Vector, cpus []int) string {
	const enough = 4 // to see how it goes on
	var b strings.Builder
	for i, v := range vectors {
		if i == enough {
			fmt.Fprintf(&b, "# and so on, for interrupts %s\n", irqs(vectors[i:]))
			break
		}
		fmt.Fprintf(&b, "echo %d > /proc/irq/%d/smp_affinity_list\n", cpus[i%len(cpus)], v.IRQ)
	}
	return b.String()
}

// crowded finds many vectors on one processor where there are others.
func crowded(v *poll.Vectors, online []int) []Finding {
	spread := online
	if near := common(v.Near, online); len(near) > 0 {
		spread = near
	}
	on := make(map[int][]poll.Vector)
	most := -1
	for _, w := range v.Vectors {
		t := target(&w)
		if len(t) != 1 {
			continue // wherever the system likes
		}
		on[t[0]] = append(on[t[0]], w)
		if most < 0 || len(on[t[0]]) > len(on[most]) {
			most = t[0]
		}
	}
	total := len(v.Vectors)
	if most < 0 || len(spread) < 2 || total < 2 {
		return nil
	}
	here := len(on[most])
	fair := (total + len(spread) - 1) / len(spread)
	f := Finding{
		Object: v.Device,
		What: fmt.Sprintf("%d of %d completion vectors interrupt processor %d, while there are %d to spread them over: "+
			"what waits for events on them waits for one another", here, total, most, len(spread)),
		Seen: fmt.Sprintf("effective_affinity_list in /proc/irq of interrupts %s is %d", irqs(on[most]), most),
		Mend: spreadOut(on[most], spread) + leaveThem,
	}
	switch {
	case here > fair && 2*here > total:
		f.Severity = Warning
	case here >= fair+2:
		f.Severity = Note
	default:
		return nil
	}
	return []Finding{f}
}

// far finds vectors that interrupt processors of other nodes than the device's, where there are
// fewer on its own than there could be. Drivers make a vector for each processor of the machine,
// and send those that are left when the node's own have one each to the others.
func far(v *poll.Vectors, online []int) []Finding {
	if len(v.Near) == 0 {
		return nil
	}
	var away []poll.Vector
	var to []int
	for _, w := range v.Vectors {
		if t := target(&w); len(t) > 0 && len(common(t, v.Near)) == 0 {
			away = append(away, w)
			to = append(to, t[0])
		}
	}
	near, could := len(v.Vectors)-len(away), min(len(v.Vectors), len(common(v.Near, online)))
	if len(away) == 0 || near >= could {
		return nil
	}
	severity := Note
	if near <= could/2 {
		severity = Warning
	}
	return []Finding{{
		Severity: severity,
		Object:   v.Device,
		What: fmt.Sprintf("%d of %d completion vectors interrupt processors of another NUMA node than the device's: each of their events goes from one node to another",
			len(away), len(v.Vectors)),
		Seen: fmt.Sprintf("the device is on node %d, whose processors are %s; effective_affinity_list in /proc/irq of interrupt %d is %d",
			v.Node, formatList(v.Near), away[0].IRQ, to[0]),
		Mend: spreadOut(away[:min(len(away), could-near)], v.Near) + leaveThem,
	}}
}
