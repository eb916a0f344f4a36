package uverbs

import (
	"errors"
	"maps"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

func TestAllocOnNode(t *testing.T) {
	k := fakekernel.New()
	k.SetNodes(map[int]int{0: 1 << 20, 1: 1 << 16})
	page := kernel.Host().PageSize()
	mem, err := allocOn(k, page+1, &MemoryOptions{Node: OnNode(1)})
	if err != nil {
		t.Fatal(err)
	}
	if mem.Len() != page+1 {
		t.Errorf("%d bytes, want %d", mem.Len(), page+1)
	}
	nodes, err := mem.Nodes()
	if err != nil || !maps.Equal(nodes, map[int]int{1: 2 * page}) {
		t.Errorf("bytes by node: %v, %v; want %d on node 1", nodes, err, 2*page)
	}
	if free := k.FreeOnNode(1); free != 1<<16-2*page {
		t.Errorf("%d bytes are free on node 1", free)
	}
	if err := mem.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Nodes(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("nodes of closed memory: %v", err)
	}
}

func TestAllocOnNodeErrors(t *testing.T) {
	numa := func(free map[int]int, f func(*fakekernel.Kernel)) *fakekernel.Kernel {
		k := fakekernel.New()
		k.SetNodes(free)
		if f != nil {
			f(k)
		}
		return k
	}
	two := map[int]int{0: 1 << 20, 2: 1 << 16}
	on2 := &MemoryOptions{Node: OnNode(2)}
	for name, test := range map[string]struct {
		k     *fakekernel.Kernel
		opts  *MemoryOptions
		is    error
		parts []string
	}{
		"no such node": {numa(two, nil), &MemoryOptions{Node: OnNode(1)}, ErrInvalid, []string{"131072 bytes", "node 1", "[0 2]"}},
		"node -2":      {numa(two, nil), &MemoryOptions{Node: OnNode(-2)}, ErrInvalid, []string{"node -2", "[0 2]"}},
		"node -2, without /sys": {numa(nil, nil), &MemoryOptions{Node: OnNode(-2)}, ErrInvalid,
			[]string{"node -2", "begin at 0"}},
		"node full":    {numa(two, nil), on2, syscall.ENOMEM, []string{"131072 bytes on node 2", "65536 are on node 0, 65536 are on node 2"}},
		"without NUMA": {numa(nil, nil), on2, ErrNotSupported, []string{"built without NUMA"}},
		"mbind forbidden": {numa(two, func(k *fakekernel.Kernel) { k.FailAt(fakekernel.Alloc, 1, syscall.EPERM) }), on2,
			syscall.EPERM, []string{"CAP_SYS_NICE"}},
		"get_mempolicy forbidden": {numa(two, func(k *fakekernel.Kernel) { k.FailAt(fakekernel.Nodes, 1, syscall.EPERM) }), on2,
			syscall.EPERM, []string{"CAP_SYS_NICE"}},
		"not in the cpuset": {numa(two, func(k *fakekernel.Kernel) { k.FailAt(fakekernel.Alloc, 1, syscall.EINVAL) }), on2,
			syscall.EINVAL, []string{"Mems_allowed_list"}},
		"not Linux": {numa(two, func(k *fakekernel.Kernel) { k.FailAt(fakekernel.Alloc, 1, kernel.ErrNotLinux) }), on2,
			ErrNotSupported, []string{"on this system: Linux has it"}},
		"no huge pages": {numa(two, func(k *fakekernel.Kernel) { k.FailAt(fakekernel.Alloc, 1, syscall.ENOMEM) }), &MemoryOptions{HugePages: true},
			syscall.ENOMEM, []string{"131072 bytes in huge pages", "vm.nr_hugepages"}},
		"other errors": {numa(two, func(k *fakekernel.Kernel) { k.FailAt(fakekernel.Alloc, 1, syscall.EAGAIN) }), on2,
			syscall.EAGAIN, []string{"131072 bytes on node 2"}},
	} {
		mem, err := allocOn(test.k, 1<<17, test.opts)
		says(t, name, err, test.is, test.parts...)
		if mem != nil {
			t.Errorf("%s: memory beside the error", name)
		}
		for _, l := range test.k.Leaks() {
			t.Errorf("%s: leaked: %s", name, l)
		}
	}
	// Of a node that has huge pages, but not enough.
	err := (&MemoryOptions{HugePages: true}).checkPlace(misplaced{fakekernel.New()}, kernel.NewMapping(make([]byte, 10), nil, nil), 1)
	says(t, "huge pages elsewhere", err, syscall.ENOMEM, "of 10 bytes 10 are on node 0", "/sys/devices/system/node/node1/hugepages")
	mem, err := allocOn(numa(nil, nil), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	_, err = mem.Nodes()
	says(t, "nodes without NUMA", err, ErrNotSupported, "without NUMA")
}

// misplaced is a system whose memory all lies on node 0.
type misplaced struct{ kernel.Kernel }

func (misplaced) Nodes(m *kernel.Mapping) (map[int]int, error) {
	return map[int]int{0: len(m.Bytes())}, nil
}

func TestNUMANode(t *testing.T) {
	for n, want := range map[NUMANode]string{{}: "any node", OnNode(-1): "any node", OnNode(0): "node 0", OnNode(12): "node 12"} {
		if n.String() != want {
			t.Errorf("%v, want %s", n, want)
		}
	}
	if n, ok := OnNode(3).Number(); n != 3 || !ok {
		t.Errorf("number %d, %v", n, ok)
	}
	if _, ok := (NUMANode{}).Number(); ok {
		t.Error("the zero value has a number")
	}
}

// The device's node, or its network device's, is one to allocate on; nonsense in
// /sys is none.
func TestDeviceNUMANode(t *testing.T) {
	for _, test := range []struct {
		own, netdev string
		want        NUMANode
	}{
		{"", "", NUMANode{}}, {"1", "", OnNode(1)}, {"1", "0", OnNode(1)}, {"-1", "0", OnNode(0)}, {"", "1", OnNode(1)},
		{"-1", "-1", NUMANode{}}, {"-2", "", NUMANode{}}, {"0x1", "", NUMANode{}}, {"1024", "", NUMANode{}}, {"node", "1", OnNode(1)},
	} {
		k := fakekernel.New(fakekernel.Device{NUMANode: test.own, NetdevNUMANode: test.netdev})
		k.SetNodes(map[int]int{0: 1 << 20, 1: 1 << 20})
		d, err := on(k).open("rxe0", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.NUMANode(); got != test.want {
			t.Errorf("/sys says %q and %q: %v, want %v", test.own, test.netdev, got, test.want)
		}
		mem, err := allocOn(k, 1, &MemoryOptions{Node: d.NUMANode()})
		if err != nil {
			t.Fatal(err)
		}
		mem.Close()
		d.Close()
	}
}

func TestNodeList(t *testing.T) {
	for text, want := range map[string]string{
		"0": "[0]", "0-1": "[0 1]", "0,2-4,7": "[0 2 3 4 7]", "1023": "[1023]",
		"": "", "1-0": "", "0-": "", "-1": "", "a": "", "0,,1": "", "1024": "", "0-1024": "", "0x1": "",
		"0-99999999999999999999": "", strings.Repeat("0", 5000): "",
	} {
		files := fstest.MapFS{"devices/system/node/has_memory": &fstest.MapFile{Data: []byte(text + "\n")}}
		err := checkNode(files, 500)
		switch {
		case want == "" && err != nil:
			t.Errorf("%.20q: %v; want the kernel to decide", text, err)
		case want != "":
			says(t, text, err, ErrInvalid, want)
		}
	}
}
