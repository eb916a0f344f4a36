package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// checkNUMA compares where devices are with where the process may run.
var checkNUMA = Check{
	Name:  "numa",
	About: "the NUMA node of each device, and the processors and the memory that the process may use",
	After: []string{"devices"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		var located []location
		for _, d := range n.devices() {
			if l, ok := n.locate(&d); ok {
				located = append(located, l)
			} else {
				n.saw("%s: on no NUMA node", d.Name)
			}
		}
		if len(located) == 0 {
			return nil, nil
		}
		cpus, errCPUs := n.allowed("Cpus_allowed_list")
		mems, errMems := n.allowed("Mems_allowed_list")
		// Machines have devices on every node, and a program is put next to one.
		anyNear := errCPUs == nil && n.Device == "" && slices.ContainsFunc(located, func(l location) bool { return len(common(l.cpus, cpus)) > 0 })
		var found []Finding
		for _, l := range located {
			n.saw("%s: on node %d, whose processors are %s; the process may use processors %s and the memory of nodes %s",
				l.device, l.node, formatList(l.cpus), formatList(cpus), formatList(mems))
			if anyNear && len(common(l.cpus, cpus)) == 0 {
				n.saw("%s: not counted, as another device is near", l.device)
				continue
			}
			if errCPUs == nil && len(l.cpus) > 0 {
				found = append(found, l.checkCPUs(n, cpus)...)
			}
			if errMems == nil && !slices.Contains(mems, l.node) {
				found = append(found, Finding{
					Severity: Warning,
					Object:   l.device,
					What:     "this process may have no memory on the device's NUMA node: every buffer and queue is far from it",
					Seen: fmt.Sprintf("/%s is %d; Mems_allowed_list of /%s/status is %s",
						l.file, l.node, n.process(), formatList(mems)),
					Mend: fmt.Sprintf("start it with numactl --membind=%d, and where a cpuset forbids that: echo %s > cpuset.mems of its cgroup",
						l.node, formatList(append(slices.Clone(mems), l.node))),
				})
			}
		}
		return found, errors.Join(errCPUs, errMems)
	},
}

// location is where a device is.
type location struct {
	device, file string // file is what says so
	node         int
	cpus         []int // of the node; none if not known
}

// locate reads where a device is: where its bus says, and for a soft one where the network
// device below it is. ok is false if it is nowhere in particular.
func (n *Node) locate(d *Device) (l location, ok bool) {
	if d.Dir == "" {
		return location{}, false
	}
	dirs := []string{d.Dir + "/device"}
	if below, err := n.line(d.Dir + "/parent"); err == nil && below != "" && !strings.ContainsAny(below, "/ ") {
		dirs = append(dirs, "sys/class/net/"+below+"/device")
	}
	for _, dir := range dirs {
		nodes, err := n.list(dir + "/numa_node") // -1, which is none, is no list
		if err != nil || len(nodes) != 1 {
			continue
		}
		cpus, _ := n.list(dir + "/local_cpulist")
		return location{device: d.Name, file: dir + "/numa_node", node: nodes[0], cpus: cpus}, true
	}
	return location{}, false
}

// checkCPUs compares with the processors that the process may use.
func (l *location) checkCPUs(n *Node, allowed []int) []Finding {
	near := common(l.cpus, allowed)
	seen := fmt.Sprintf("/%s is %d, whose processors are %s; Cpus_allowed_list of /%s/status is %s",
		l.file, l.node, formatList(l.cpus), n.process(), formatList(allowed))
	mend := fmt.Sprintf("taskset -c %s PROGRAM, and where a cpuset forbids that: echo %s > cpuset.cpus of its cgroup", formatList(l.cpus), formatList(l.cpus))
	switch {
	case len(near) == 0:
		return []Finding{{
			Severity: Warning,
			Object:   l.device,
			What:     "this process may run on no processor of the device's NUMA node: every doorbell and every completion goes from one node to another",
			Seen:     seen, Mend: mend,
		}}
	case n.Pollers > len(near):
		return []Finding{{
			Severity: Note,
			Object:   l.device,
			What:     fmt.Sprintf("only %d of %d pollers can run on the device's NUMA node", len(near), n.Pollers),
			Seen:     seen, Mend: mend,
		}}
	}
	return nil
}
