//go:build linux

package kernel

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// alloc is memory that is unmapped at the end of the test.
func alloc(t *testing.T, n int, opts AllocOptions) *Mapping {
	t.Helper()
	m, err := Host().Alloc(n, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Unmap() })
	return m
}

// vmFlags are the kernel's notes, of two letters each, on the mapping that b lies
// in.
func vmFlags(t *testing.T, b []byte) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	at, inside := addr(b), false
	for line := range strings.Lines(string(text)) {
		var first, end uint64
		if n, _ := fmt.Sscanf(line, "%x-%x ", &first, &end); n == 2 {
			inside = at >= first && at < end
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && inside {
			return strings.Fields(flags)
		}
	}
	t.Fatalf("no mapping at %#x with VmFlags", at)
	return nil
}

func addr(b []byte) uint64 {
	var n uint64
	fmt.Sscanf(fmt.Sprintf("%p", b), "0x%x", &n)
	return n
}

// A child of a plain fork gets no memory from Alloc.
func TestAllocStaysOutOfForks(t *testing.T) {
	if flags := vmFlags(t, alloc(t, 1, AllocOptions{}).Bytes()); !slices.Contains(flags, "dc") { // VM_DONTCOPY
		t.Errorf("flags %q have no dc", flags)
	}
}

// Node 0 is on every machine whose kernel knows nodes.
func TestAllocOnNode(t *testing.T) {
	page := Host().PageSize()
	m, err := Host().Alloc(3*page, AllocOptions{Placed: true})
	if err == syscall.ENOSYS || err == syscall.EPERM {
		t.Skipf("declared skip: this system allows no NUMA placement: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	nodes, err := Host().Nodes(m)
	if err != nil || len(nodes) != 1 || nodes[0] != 3*page {
		t.Errorf("bytes by node: %v, %v; want all %d on node 0", nodes, err, 3*page)
	}
	for _, node := range []int{-1, 63, maxNodes - 1, maxNodes, math.MaxInt} {
		if m, err := Host().Alloc(page, AllocOptions{Placed: true, Node: node}); err != syscall.EINVAL {
			t.Errorf("node %d: %v, want EINVAL", node, err)
			if err == nil {
				m.Unmap()
			}
		}
	}
}

// Pages that nobody has touched are nowhere, and asking does not make them.
func TestNodesOfUntouchedPages(t *testing.T) {
	page := Host().PageSize()
	m := alloc(t, 4*page, AllocOptions{})
	for _, least := range []int{0, page} {
		nodes, err := Host().Nodes(m)
		if err == syscall.ENOSYS || err == syscall.EPERM {
			t.Skipf("declared skip: this system does not say where memory is: %v", err)
		}
		got := 0
		for _, n := range nodes {
			got += n
		}
		// Transparent huge pages may make more exist than were touched.
		if err != nil || got < least || least == 0 && got > 0 {
			t.Errorf("bytes by node: %v, %v; want %d in all", nodes, err, least)
		}
		m.Bytes()[2*page] = 1
	}
	f := openZero(t)
	ring, err := f.Map(0, page)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Unmap()
	if nodes, err := Host().Nodes(ring); err != syscall.EINVAL {
		t.Errorf("a mapping of a device: %v, %v", nodes, err)
	}
}

// More pages than are asked of at a time.
func TestNodesOfMuch(t *testing.T) {
	page := Host().PageSize()
	m := alloc(t, (2*residentChunk+1)*page, AllocOptions{})
	b := m.Bytes()
	touched := []int{0, residentChunk - 1, residentChunk, 2 * residentChunk}
	for _, i := range touched {
		b[i*page] = 1
	}
	nodes, err := Host().Nodes(m)
	if err == syscall.ENOSYS || err == syscall.EPERM {
		t.Skipf("declared skip: this system does not say where memory is: %v", err)
	}
	got := 0
	for _, n := range nodes {
		got += n
	}
	// Transparent huge pages make more exist than were touched.
	if err != nil || got < len(touched)*page || got > len(b) {
		t.Errorf("bytes by node: %v, %v; want at least %d", nodes, err, len(touched)*page)
	}
}

func TestNodeMask(t *testing.T) {
	for node := range maxNodes {
		mask, err := nodeMask(node)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range mask {
			for bit := range wordBits {
				if on := w>>bit&1 == 1; on != (i*wordBits+bit == node) {
					t.Fatalf("node %d: bit %d of word %d is %v", node, bit, i, on)
				}
			}
		}
	}
}

// Memory made by touching is as memory made by the kernel is.
func TestPopulate(t *testing.T) {
	page := Host().PageSize()
	m := alloc(t, 3*page, AllocOptions{})
	if err := populate(m.Bytes(), page); err != nil {
		t.Fatal(err)
	}
	for _, b := range m.Bytes() {
		if b != 0 {
			t.Fatal("the memory is not zero")
		}
	}
	resident := make([]byte, 3)
	if err := mincore(m.Bytes(), resident); err != nil || resident[0]&resident[1]&resident[2]&1 == 0 {
		t.Errorf("resident %v, %v", resident, err)
	}
}
