package sim

import (
	"errors"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/internal/bridge"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// numa is a machine of NUMA nodes 0 and 1, of which the device is attached to one, or
// nobody knows.
type numa struct {
	*system
	device string // what /sys says
	err    error  // what who asks for a node gets

	mu     sync.Mutex
	placed map[*kernel.Mapping]int
	asked  map[int]int // allocations by node, -1 for any
}

func newNUMA(t *testing.T, device string) *numa {
	t.Helper()
	return &numa{system: newFabric(t).system, device: device, placed: make(map[*kernel.Mapping]int), asked: make(map[int]int)}
}

// open opens the machine's device.
func (k *numa) open(t *testing.T) *uverbs.Device {
	t.Helper()
	d, err := uverbs.Open("sim0", bridge.Within(k, (*uverbs.Options)(nil)).(*uverbs.Options))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func (k *numa) Alloc(n int, o kernel.AllocOptions) (*kernel.Mapping, error) {
	if o.Placed && k.err != nil {
		return nil, k.err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	node := 0
	if o.Placed {
		node = o.Node
		k.asked[node]++
	} else {
		k.asked[-1]++
	}
	o.Placed = false
	m, err := k.system.Alloc(n, o)
	if err == nil {
		k.placed[m] = node
	}
	return m, err
}

func (k *numa) Nodes(m *kernel.Mapping) (map[int]int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, k.err
	}
	return map[int]int{k.placed[m]: len(m.Bytes())}, nil
}

// taken is how many allocations there were by node, since the last time.
func (k *numa) taken() map[int]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := maps.Clone(k.asked)
	clear(k.asked)
	return m
}

func (k *numa) Sysfs() fs.FS {
	files := fstest.MapFS{"devices/system/node/has_memory": {Data: []byte("0-1\n")}}
	if k.device != "" {
		files["class/infiniband/sim0/device/numa_node"] = &fstest.MapFile{Data: []byte(k.device + "\n")}
	}
	return overlay{k.system.sysfs, files}
}

// overlay is a tree with some files more.
type overlay struct {
	tree
	files fstest.MapFS
}

func (o overlay) Open(name string) (fs.File, error) {
	if o.files[name] != nil {
		return o.files.Open(name)
	}
	return o.tree.Open(name)
}

// objects makes one of each kind of queue.
func objects(t *testing.T, d *uverbs.Device, opts *uverbs.CQOptions) *uverbs.CQ {
	t.Helper()
	q, err := d.NewCQ(64, opts)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SendDepth: 8, RecvDepth: 8}); err == nil {
		_, err = pd.NewSRQ(&uverbs.SRQOptions{Depth: 8, SGE: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func onNode(t *testing.T, q *uverbs.CQ, want int) {
	t.Helper()
	nodes, err := q.Nodes()
	if err != nil || len(nodes) != 1 || nodes[want] < 4096 {
		t.Errorf("bytes by node: %v, %v; want all on node %d", nodes, err, want)
	}
}

// Without a wish, all memory of queues is asked for on the node of the device; where that
// is not known, or nonsense, nowhere in particular.
func TestQueuesOnDevicesNode(t *testing.T) {
	for device, want := range map[string]int{"1": 1, "0": 0, "": -1, "-1": -1, "x": -1, "1024": -1} {
		k := newNUMA(t, device)
		q := objects(t, k.open(t), nil)
		onNode(t, q, max(want, 0))
		if err := q.ResizeOwned(1000); err != nil {
			t.Fatal(err)
		}
		onNode(t, q, max(want, 0))
		if got := k.taken(); len(got) != 1 || got[want] < 5 {
			t.Errorf("%q: allocations by node %v, want all on %d", device, got, want)
		}
	}
}

// Where the process may not use the node, or there is no NUMA, the queues are made all the
// same, but not for who asked for a node.
func TestQueuesWherePlacementFails(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{syscall.EINVAL, "Mems_allowed_list"}, {syscall.EPERM, "CAP_SYS_NICE"}, {syscall.ENOSYS, "without NUMA"}, {kernel.ErrNotLinux, "not supported"},
	} {
		k := newNUMA(t, "1")
		k.err = c.err
		d := k.open(t)
		q := objects(t, d, nil)
		if got := k.taken(); len(got) != 1 || got[-1] < 4 {
			t.Errorf("%v: allocations by node %v, want all anywhere", c.err, got)
		}
		if _, err := q.Nodes(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("nodes: %v", err)
		}
		before := k.model.Device("sim0").Objects()["CQ"]
		_, err := d.NewCQ(16, &uverbs.CQOptions{Node: uverbs.OnNode(1)})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "on node 1") {
			t.Errorf("%v: %v", c.err, err)
		}
		if c.want == "not supported" && !errors.Is(err, uverbs.ErrNotSupported) {
			t.Errorf("%v: %v", c.err, err)
		}
		if n := k.model.Device("sim0").Objects()["CQ"]; n != before {
			t.Errorf("%d queues, there were %d", n, before)
		}
	}
}

// A wish wins, also for the ring that comes after a change of depth. All else stays where
// the device is.
func TestQueueOnNode(t *testing.T) {
	k := newNUMA(t, "1")
	d := k.open(t)
	q := objects(t, d, &uverbs.CQOptions{Node: uverbs.OnNode(0)})
	onNode(t, q, 0)
	if got := k.taken(); len(got) != 2 || got[0] != 1 || got[1] < 3 {
		t.Errorf("allocations by node %v, want one on 0 and all else on 1", got)
	}
	if err := q.ResizeOwned(1000); err != nil {
		t.Fatal(err)
	}
	onNode(t, q, 0)
	if _, err := d.NewCQ(16, &uverbs.CQOptions{Node: uverbs.OnNode(2)}); !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), "[0 1]") {
		t.Errorf("a node without memory: %v", err)
	}
}
