package uverbs_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// node1 is the node to place on where there are two, and skips where there is
// one.
func node1(t *testing.T) uverbs.NUMANode {
	t.Helper()
	guestSystem(t).onMachine(t, "it is about where the machine's memory lies")
	b, err := os.ReadFile("/sys/devices/system/node/has_memory")
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(b)) != "0-1" {
		t.Skipf("declared skip: nodes with memory are %q: boot the guest with rxevm -numa 2", b)
	}
	return uverbs.OnNode(1)
}

// Memory lies on the node that it was asked for, whichever that is, and a device
// reads and writes it there.
func TestGuestNUMA(t *testing.T) {
	node1(t)
	for number := range 2 {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			// More than a large page of the kernel's own making, so that
			// these do not hide what single pages do.
			mem, err := uverbs.Alloc(9<<20+1, &uverbs.MemoryOptions{Node: uverbs.OnNode(number)})
			if err != nil {
				t.Fatal(err)
			}
			defer mem.Close()
			want := map[int]int{number: 9<<20 + 4096}
			if nodes, err := mem.Nodes(); err != nil || !maps.Equal(nodes, want) {
				t.Errorf("bytes by node: %v, %v; want %v", nodes, err, want)
			}
			p := newPair(t, false)
			mr, err := p.pd.Register(mem.Bytes(), allAccess)
			if err != nil {
				t.Fatal(err)
			}
			defer mr.Close()
			copy(mem.Bytes(), "there and back")
			p.a.SendQueue().Write(1, p.peer.Regions[0].At(0), mr.Span(0, 14))
			p.a.SendQueue().Read(2, mr.Span(8<<20, 14), p.peer.Regions[0].At(0))
			if err := p.a.SendQueue().Flush(); err != nil {
				t.Fatal(err)
			}
			for _, w := range p.wait(t, 2) {
				if err := w.Err(); err != nil {
					t.Fatal(err)
				}
			}
			if got := string(mem.Bytes()[8<<20:][:14]); got != "there and back" {
				t.Errorf("read back %q", got)
			}
			if nodes, err := mem.Nodes(); err != nil || !maps.Equal(nodes, want) {
				t.Errorf("bytes by node after traffic: %v, %v; want %v", nodes, err, want)
			}
		})
	}
	// Other memory, once touched, is somewhere.
	mem, err := uverbs.Alloc(1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	if nodes, err := mem.Nodes(); err != nil || len(nodes) != 0 {
		t.Errorf("untouched memory: bytes by node: %v, %v", nodes, err)
	}
	clear(mem.Bytes())
	nodes, err := mem.Nodes()
	if sum := nodes[0] + nodes[1]; err != nil || sum != 1<<20 {
		t.Errorf("touched memory: bytes by node: %v, %v", nodes, err)
	}
}

// Huge pages come from the node too, or not at all.
func TestGuestNUMAHugePages(t *testing.T) {
	on1 := node1(t)
	for node, n := range []int{3, 2} {
		defer setHugePages(t, node, 0)
		awaitHugePages(t, node, n)
	}
	opts := &uverbs.MemoryOptions{HugePages: true, Node: on1}
	mem, err := uverbs.Alloc(3<<20, opts)
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err := mem.Nodes(); err != nil || !maps.Equal(nodes, map[int]int{1: 4 << 20}) {
		t.Errorf("bytes by node: %v, %v", nodes, err)
	}
	if err := mem.Close(); err != nil {
		t.Fatal(err)
	}
	for size, parts := range map[int][]string{
		6 << 20:  {"2097152 are on node 0, 4194304 are on node 1", "node1/hugepages"},
		12 << 20: {"huge pages", "vm.nr_hugepages"},
	} {
		mem, err := uverbs.Alloc(size, opts)
		if err == nil {
			mem.Close()
		}
		if !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		for _, p := range parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("%d bytes: %q does not say %q", size, err, p)
			}
		}
	}
}

// A node that is full is an error, and costs nobody his life.
func TestGuestNUMAErrors(t *testing.T) {
	on1 := node1(t)
	// Most of it goes as huge pages, which costs less time than touching it.
	defer setHugePages(t, 1, 0)
	setHugePages(t, 1, max(0, freeOnNode(t, 1)>>21-32))
	free := freeOnNode(t, 1)
	mem, err := uverbs.Alloc(free+16<<20, &uverbs.MemoryOptions{Node: on1})
	if err == nil {
		mem.Close()
	}
	if !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "are on node 1") {
		t.Errorf("more than node 1 has: %v", err)
	}
	if after := freeOnNode(t, 1); after < free/2 {
		t.Errorf("node 1 has %d bytes free after the failure, %d before", after, free)
	}
	if _, err := uverbs.Alloc(1, &uverbs.MemoryOptions{Node: uverbs.OnNode(2)}); !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), "[0 1]") {
		t.Errorf("a node that does not exist: %v", err)
	}
}

// setHugePages asks for n huge pages to be set aside on a node, and returns how
// many are.
func setHugePages(t *testing.T, node, n int) int {
	t.Helper()
	file := fmt.Sprintf("/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages", node)
	if err := os.WriteFile(file, fmt.Append(nil, n), 0); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// awaitHugePages sets n huge pages aside on a node. Small pages may have to make
// room.
func awaitHugePages(t *testing.T, node, n int) {
	t.Helper()
	for end := time.Now().Add(patience); setHugePages(t, node, n) != n; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("node %d gives no %d huge pages", node, n)
		}
		for _, file := range []string{"drop_caches", "compact_memory"} {
			if err := os.WriteFile("/proc/sys/vm/"+file, []byte("1"), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// freeOnNode is how many bytes of a node nobody uses.
func freeOnNode(t *testing.T, node int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/node/node%d/meminfo", node))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kB int
		if n, _ := fmt.Sscanf(line, fmt.Sprintf("Node %d MemFree: %%d kB", node), &kB); n == 1 {
			return kB << 10
		}
	}
	t.Fatalf("no MemFree in %s", b)
	return 0
}
