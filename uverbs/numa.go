package uverbs

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// NUMANode is a NUMA node of the machine, or none: the zero value leaves the
// choice to the system.
type NUMANode struct {
	next int // the node's number and 1
}

// OnNode is the node with a number, from 0. Number -1, which is how Linux says
// that a device has no node, is the zero value.
func OnNode(number int) NUMANode { return NUMANode{number + 1} }

// Number is the number of the node; ok is false for the zero value.
func (n NUMANode) Number() (number int, ok bool) { return n.next - 1, n.next != 0 }

// String names the node.
func (n NUMANode) String() string {
	if number, ok := n.Number(); ok {
		return "node " + strconv.Itoa(number)
	}
	return "any node"
}

// NUMANode is the node that the device is attached to. For a soft device it is
// that of the network device below. It is the zero value where the system does
// not say, as on machines with one node, so that it always fits
// MemoryOptions.Node.
func (d *Device) NUMANode() NUMANode {
	node, _ := d.located()
	return node
}

// located returns the node, and the folder of sysfs that says so.
func (d *Device) located() (node NUMANode, dir string) {
	dir = "class/infiniband/" + d.info.Name + "/device/"
	if node = d.nodeIn(dir); node != (NUMANode{}) {
		return node, dir
	}
	if name := d.netdevName(); name != "" {
		dir = "class/net/" + name + "/device/"
		if node = d.nodeIn(dir); node != (NUMANode{}) {
			return node, dir
		}
	}
	return NUMANode{}, ""
}

// nodeIn returns the node that a folder of sysfs says, if any.
func (d *Device) nodeIn(dir string) NUMANode {
	node, err := sysfsValue(d.kernel.Sysfs(), dir+"numa_node", parseNUMANode)
	if err != nil {
		return NUMANode{}
	}
	return node
}

// busNode is NUMANode of a device on a bus, in little code: its next.
func (d *Device) busNode() int {
	s, err := readSysfs(d.kernel.Sysfs(), "class/infiniband/"+d.info.Name+"/device/numa_node")
	if err != nil {
		return 0
	}
	n, err := parseDecimal(s, 10) // -1, for none, is not decimal
	if err != nil {
		return 0
	}
	return int(n) + 1
}

// maxNUMANodes is more than any kernel can be configured for.
const maxNUMANodes = 1024

// parseNUMANode reads the node of a device; -1 is none.
func parseNUMANode(s string) (NUMANode, error) {
	if s == "-1" {
		return NUMANode{}, nil
	}
	n, err := parseDecimal(s, 16)
	if err != nil || n >= maxNUMANodes {
		return NUMANode{}, malformedText(s, "a NUMA node")
	}
	return OnNode(int(n)), nil
}

// parseNodeList reads a list such as 0-3,7.
func parseNodeList(s string) ([]int, error) {
	var all []int
	for rest, more := s, true; more; {
		var part string
		part, rest, more = strings.Cut(rest, ",")
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, errFirst := parseDecimal(from, 16)
		last, errLast := parseDecimal(to, 16)
		if errFirst != nil || errLast != nil || first > last || last >= maxNUMANodes {
			return nil, malformedText(s, "a list of NUMA nodes")
		}
		for n := first; n <= last; n++ {
			all = append(all, int(n))
		}
	}
	return all, nil
}

// checkNode refuses a node that has no memory. Where /sys does not say which
// have, the kernel decides.
func checkNode(sys fs.FS, node int) error {
	const file = "devices/system/node/has_memory"
	nodes, err := sysfsValue(sys, file, parseNodeList)
	if node >= 0 && (err != nil || slices.Contains(nodes, node)) {
		return nil
	}
	has := "numbers begin at 0"
	if err == nil {
		has = fmt.Sprintf("nodes with memory are %v", nodes)
	}
	return fmt.Errorf("%w: %s", ErrInvalid, has)
}

// describeNodes says how much lies where.
func describeNodes(nodes map[int]int) string {
	var parts []string
	for node := range maxNUMANodes {
		if n, ok := nodes[node]; ok {
			parts = append(parts, fmt.Sprintf("%d are on node %d", n, node))
		}
	}
	if parts == nil {
		return "none are on any node"
	}
	return strings.Join(parts, ", ")
}
