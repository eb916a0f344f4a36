package fakekernel

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// allocation is memory from Alloc: how much was asked for, and on which NUMA
// nodes it lies.
type allocation struct {
	asked int
	nodes map[int]int
}

// SetNodes gives the kernel NUMA nodes with so many free bytes each. Until then
// it knows no NUMA.
func (k *Kernel) SetNodes(free map[int]int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.free = maps.Clone(free)
}

// FreeOnNode is how many bytes a NUMA node has left.
func (k *Kernel) FreeOnNode(node int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.free[node]
}

// Alloc implements [kernel.Kernel].
func (k *Kernel) Alloc(n int, opts kernel.AllocOptions) (*kernel.Mapping, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.faults.check(Call{Op: Alloc}); err != nil {
		return nil, err
	}
	if opts.Placed {
		if k.free == nil {
			return nil, syscall.ENOSYS
		}
		if _, ok := k.free[opts.Node]; !ok {
			return nil, syscall.EINVAL
		}
	}
	m, err := kernel.Host().Alloc(n, kernel.AllocOptions{HugePages: opts.HugePages, Collected: opts.Collected})
	if err != nil || opts.Collected {
		return m, err // of those that nobody unmaps there is no account
	}
	a := &allocation{asked: n, nodes: k.place(len(m.Bytes()), opts)}
	var counted *kernel.Mapping
	counted = kernel.NewMapping(m.Bytes(), func(bool) error { return m.Detach() }, func() error {
		k.mu.Lock()
		for node, n := range a.nodes {
			k.free[node] += n
		}
		delete(k.allocs, counted)
		k.mu.Unlock()
		return m.Unmap()
	})
	k.allocs[counted] = a
	return counted, nil
}

// place takes n bytes from the node that was asked for, and what it does not
// have from the others, of which the last one has room without end.
func (k *Kernel) place(n int, opts kernel.AllocOptions) map[int]int {
	if k.free == nil {
		return nil
	}
	order := slices.Sorted(maps.Keys(k.free))
	if opts.Placed {
		order = slices.DeleteFunc(order, func(node int) bool { return node == opts.Node })
		order = slices.Insert(order, 0, opts.Node)
	}
	taken := make(map[int]int)
	for i, node := range order {
		part := min(n, max(k.free[node], 0))
		if i == len(order)-1 {
			part = n
		}
		if part > 0 {
			taken[node] = part
		}
		k.free[node] -= part
		n -= part
	}
	return taken
}

// Nodes implements [kernel.Kernel].
func (k *Kernel) Nodes(m *kernel.Mapping) (map[int]int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.faults.check(Call{Op: Nodes}); err != nil {
		return nil, err
	}
	switch a := k.allocs[m]; {
	case k.free == nil:
		return nil, syscall.ENOSYS
	case a == nil:
		return nil, syscall.EINVAL
	default:
		return maps.Clone(a.nodes), nil
	}
}

// nodeList prints nodes as /sys does, except that it joins no ranges.
func nodeList(free map[int]int) string {
	var s []string
	for _, node := range slices.Sorted(maps.Keys(free)) {
		s = append(s, strconv.Itoa(node))
	}
	return strings.Join(s, ",")
}
