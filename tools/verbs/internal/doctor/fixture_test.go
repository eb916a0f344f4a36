package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// A machine is a host that a test makes up: files, netlink, and what opening a file and
// asking for its metadata gives. Its Node plays it. Tests spoil what healthy machines have.
type machine struct {
	t          testing.TB
	files      fstest.MapFS
	links      []nldev.Link
	ports      map[uint32][]nldev.Port
	chardevs   map[uint32]nldev.Chardev
	settings   nldev.System
	counts     map[uint32]nldev.ResourceCounts
	netlinkErr error
	chardevErr error
	interfaces []Interface
	openErr    map[string]error // by path; what is not in dev is ENOENT
	dev        map[string]Stat
	answers    map[string]*Answers
	owned      owned
	release    string
	machine    string
}

// put writes files, given as pairs of a name and its content.
func (m *machine) put(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		m.files[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1]), Mode: 0o444}
	}
}

// folder makes an empty folder.
func (m *machine) folder(name string) { m.files[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o755} }

// symlink makes a symbolic link.
func (m *machine) symlink(name, target string) {
	m.files[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

// remove takes files and whole folders away.
func (m *machine) remove(names ...string) {
	for _, name := range names {
		found := false
		for f := range m.files {
			if f == name || strings.HasPrefix(f, name+"/") {
				delete(m.files, f)
				found = true
			}
		}
		if !found {
			m.t.Fatalf("the machine has no %s to remove", name)
		}
	}
}

// node is the machine as checks see it.
func (m *machine) node() *Node {
	return &Node{
		Root: m.files, System: "linux", Release: m.release, Machine: m.machine,
		Netlink: func() (Netlink, error) {
			if m.netlinkErr != nil {
				return nil, m.netlinkErr
			}
			return fakeNetlink{m}, nil
		},
		Open: func(path string) error {
			err, ok := m.openErr[path]
			if _, exists := m.dev[path]; !ok && !exists {
				err = syscall.ENOENT
			}
			if err != nil {
				return &fs.PathError{Op: "open", Path: path, Err: err}
			}
			return nil
		},
		Stat: func(path string) (Stat, error) {
			if s, ok := m.dev[path]; ok {
				return s, nil
			}
			return Stat{}, &fs.PathError{Op: "stat", Path: path, Err: syscall.ENOENT}
		},
		Interfaces: func() ([]Interface, error) { return m.interfaces, nil },
		Query: func(device string) (*Answers, error) {
			if a, ok := m.answers[device]; ok {
				return a, nil
			}
			return nil, fmt.Errorf("%s: %w", device, syscall.ENODEV)
		},
	}
}

// fakeNetlink answers for a machine.
type fakeNetlink struct{ m *machine }

func (f fakeNetlink) Links() ([]nldev.Link, error) { return f.m.links, nil }

func (f fakeNetlink) Ports(index uint32) ([]nldev.Port, error) { return f.m.ports[index], nil }

func (f fakeNetlink) Chardev(index uint32, kind string) (nldev.Chardev, error) {
	if f.m.chardevErr != nil {
		return nldev.Chardev{}, fmt.Errorf("nldev: find the %s file of device %d: %w", kind, index, f.m.chardevErr)
	}
	c, ok := f.m.chardevs[index]
	if !ok {
		return c, fmt.Errorf("nldev: find the %s file of device %d: %w", kind, index, syscall.ENODEV)
	}
	return c, nil
}

func (f fakeNetlink) System() (nldev.System, error) { return f.m.settings, nil }

func (f fakeNetlink) ResourceCounts(index uint32) (nldev.ResourceCounts, error) {
	if c, ok := f.m.counts[index]; ok {
		return c, nil
	}
	return nil, errors.New("nldev: no counts")
}

func (f fakeNetlink) Counters(index, port uint32) (nldev.Counters, error) {
	return nldev.Counters{}, nil
}

func (f fakeNetlink) Close() error { return nil }

// blank is a machine with Linux, this process, and nothing of RDMA.
func blank(t testing.TB, release string) *machine {
	m := &machine{
		t: t, files: fstest.MapFS{}, ports: map[uint32][]nldev.Port{}, chardevs: map[uint32]nldev.Chardev{},
		counts: map[uint32]nldev.ResourceCounts{}, openErr: map[string]error{}, dev: map[string]Stat{}, answers: map[string]*Answers{},
		release: release, machine: "x86_64", netlinkErr: nldev.ErrNoRDMA,
	}
	m.put(
		"proc/self/status", "Name:\tverbs\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t1000 \nVmLck:\t       0 kB\nVmPin:\t       0 kB\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-15\n",
		"proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            1024                 524288               files     \nMax locked memory         unlimited            unlimited            bytes     \n",
		"proc/self/cgroup", "0::/user.slice/session-2.scope\n",
		"proc/self/mountinfo", "24 30 0:22 / /sys rw,nosuid - sysfs sysfs rw\n26 24 0:23 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n30 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
		"proc/meminfo", "MemTotal:       33554432 kB\nMemFree:        20000000 kB\nMemAvailable:   30000000 kB\n",
		"sys/class/net/lo/operstate", "unknown\n",
		"proc/modules", "ext4 1036288 1 - Live 0x0000000000000000\n",
		"lib/modules/"+release+"/modules.builtin", "kernel/fs/proc/proc.ko\n",
		"sys/fs/cgroup/user.slice/session-2.scope/cgroup.controllers", "memory pids\n",
		"proc/sys/kernel/osrelease", release+"\n",
	)
	m.processors()
	m.describes()
	return m
}

// healthyRoCE is a server with a ConnectX-6 Dx on Ethernet: mlx5_0 on ens1f0np0, 192.0.2.7.
func healthyRoCE(t testing.TB) *machine {
	m := blank(t, "6.12.117+deb13-amd64")
	m.netlinkErr = nil
	m.settings = nldev.System{NetnsShared: true, CopyOnFork: true}
	m.links = []nldev.Link{{Index: 0, Name: "mlx5_0", Ports: 1, Firmware: "22.36.1010", NodeType: nldev.NodeCA, Protocol: "roce"}}
	m.ports[0] = []nldev.Port{{Device: "mlx5_0", Index: 1, State: nldev.PortActive, PhysState: nldev.PhysLinkUp, NetdevIndex: 2, Netdev: "ens1f0np0"}}
	m.chardevs[0] = nldev.Chardev{Name: "uverbs0", ABI: 1, Dev: 231<<8 | 192, DriverID: uint32(uverbs.DriverMlx5)}
	m.counts[0] = nldev.ResourceCounts{"pd": 3, "cq": 5, "qp": 2, "cm_id": 0, "mr": 0, "ctx": 0, "srq": 2}
	m.dev["/dev/infiniband/uverbs0"] = Stat{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o666, Rdev: 231<<8 | 192}
	m.interfaces = []Interface{
		{Name: "lo", Index: 1, MTU: 65536, Up: true, Running: true, Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
		{Name: "ens1f0np0", Index: 2, MTU: 9000, Up: true, Running: true, Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("fe80::e42:a1ff:fe12:3456/64")}},
	}
	m.put("proc/modules", "mlx5_ib 487424 0 - Live 0x0\nib_uverbs 196608 1 mlx5_ib, Live 0x0\nib_core 503808 2 mlx5_ib,ib_uverbs, Live 0x0\nmlx5_core 2310144 1 mlx5_ib, Live 0x0\n")
	m.put(
		"sys/module/ib_core/refcnt", "2\n", "sys/module/ib_uverbs/refcnt", "1\n", "sys/module/mlx5_ib/refcnt", "0\n", "sys/module/mlx5_core/refcnt", "1\n",
		"sys/bus/pci/devices/0000:3b:00.0/vendor", "0x15b3\n", "sys/bus/pci/devices/0000:3b:00.0/device", "0x101d\n", "sys/bus/pci/devices/0000:3b:00.0/class", "0x020000\n",
		"sys/bus/pci/devices/0000:3b:00.0/infiniband/mlx5_0/node_type", "1: CA\n",
		"sys/bus/pci/devices/0000:3b:00.0/numa_node", "0\n",
		classFiles+"/abi_version", "6\n",
	)
	m.symlink("sys/bus/pci/devices/0000:3b:00.0/driver", "../../../../bus/pci/drivers/mlx5_core")
	m.device("mlx5_0", "uverbs0", "231:192", "1", "Ethernet")
	m.symlink(classDevices+"/mlx5_0/device/driver", "../../../../bus/pci/drivers/mlx5_core")
	m.gid("mlx5_0", 0, "fe80:0000:0000:0000:0e42:a1ff:fe12:3456", "IB/RoCE v1", "ens1f0np0")
	m.gid("mlx5_0", 1, "fe80:0000:0000:0000:0e42:a1ff:fe12:3456", "RoCE v2", "ens1f0np0")
	m.gid("mlx5_0", 2, "0000:0000:0000:0000:0000:ffff:c000:0207", "IB/RoCE v1", "ens1f0np0")
	m.gid("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:c000:0207", "RoCE v2", "ens1f0np0")
	m.answers["mlx5_0"] = &Answers{
		Attr:    uverbs.DeviceAttr{Ports: 1, MaxQP: 131072, MaxCQ: 16777216, MaxMR: 16777216, MaxPD: 8388608, MaxSRQ: 8388608},
		Vectors: 16,
		Ports:   []uverbs.PortAttr{{Port: 1, State: uverbs.PortActive, PhysState: uverbs.PhysLinkUp, LinkLayer: uverbs.LinkEthernet, MaxMTU: 4096, ActiveMTU: 4096}},
	}
	return m
}

// healthySoft is a virtual machine with soft-RoCE: rxe0 on dummy0, 10.0.0.1, run by root.
func healthySoft(t testing.TB) *machine {
	m := blank(t, "6.1.0-57-amd64")
	m.netlinkErr = nil
	m.settings = nldev.System{NetnsShared: true, CopyOnFork: true}
	m.links = []nldev.Link{{Index: 0, Name: "rxe0", Ports: 1, NodeType: nldev.NodeCA, Protocol: "roce"}}
	m.ports[0] = []nldev.Port{{Device: "rxe0", Index: 1, State: nldev.PortActive, PhysState: nldev.PhysLinkUp, NetdevIndex: 2, Netdev: "dummy0"}}
	m.chardevs[0] = nldev.Chardev{Name: "uverbs0", ABI: 2, Dev: 231<<8 | 192, DriverID: uint32(uverbs.DriverRXE)}
	m.counts[0] = nldev.ResourceCounts{"pd": 1, "cq": 1, "qp": 1, "cm_id": 0, "mr": 0, "ctx": 0, "srq": 0}
	m.dev["/dev/infiniband/uverbs0"] = Stat{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o666, Rdev: 231<<8 | 192}
	m.interfaces = []Interface{
		{Name: "lo", Index: 1, MTU: 65536, Up: true, Running: true, Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
		{Name: "dummy0", Index: 2, MTU: 1500, Up: true, Running: true, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}},
	}
	m.put(
		"proc/modules", "rdma_rxe 180224 0 - Live 0x0\nib_uverbs 196608 1 rdma_rxe, Live 0x0\nib_core 503808 2 rdma_rxe,ib_uverbs, Live 0x0\n",
		"sys/module/ib_core/refcnt", "2\n", "sys/module/ib_uverbs/refcnt", "1\n", "sys/module/rdma_rxe/refcnt", "0\n",
		classFiles+"/abi_version", "6\n",
		classDevices+"/rxe0/parent", "dummy0\n",
	)
	m.device("rxe0", "uverbs0", "231:192", "2", "Ethernet")
	m.gid("rxe0", 0, "fe80:0000:0000:0000:0000:00ff:fe00:0001", "RoCE v2", "dummy0")
	m.gid("rxe0", 1, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "dummy0")
	m.answers["rxe0"] = &Answers{
		Attr:    uverbs.DeviceAttr{Ports: 1, MaxQP: 1048560, MaxCQ: 1048576, MaxMR: 524287, MaxPD: 1048576, MaxSRQ: 917503},
		Vectors: 2,
		Ports:   []uverbs.PortAttr{{Port: 1, State: uverbs.PortActive, PhysState: uverbs.PhysLinkUp, LinkLayer: uverbs.LinkEthernet, MaxMTU: 4096, ActiveMTU: 1024}},
	}
	return m
}

// healthyIB is a server with a ConnectX-6 on InfiniBand: mlx5_0, LID 17.
func healthyIB(t testing.TB) *machine {
	m := healthyRoCE(t)
	m.links[0].Protocol = "ib"
	m.ports[0] = []nldev.Port{{Device: "mlx5_0", Index: 1, State: nldev.PortActive, PhysState: nldev.PhysLinkUp, LID: 17, SMLID: 1}}
	m.remove(classDevices + "/mlx5_0/ports")
	m.device("mlx5_0", "uverbs0", "231:192", "1", "InfiniBand")
	m.put(classDevices+"/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:b859:9f03:00d4:1234\n", classDevices+"/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1\n")
	m.answers["mlx5_0"].Ports = []uverbs.PortAttr{{Port: 1, State: uverbs.PortActive, PhysState: uverbs.PhysLinkUp, LinkLayer: uverbs.LinkInfiniBand, MaxMTU: 4096, ActiveMTU: 4096, LID: 17, SMLID: 1}}
	m.interfaces = m.interfaces[:1]
	return m
}

// device puts what /sys has of a device with one active port.
func (m *machine) device(name, file, dev, abi, layer string) {
	m.put(
		classDevices+"/"+name+"/node_type", "1: CA\n",
		classDevices+"/"+name+"/ports/1/state", "4: ACTIVE\n",
		classDevices+"/"+name+"/ports/1/phys_state", "5: LinkUp\n",
		classDevices+"/"+name+"/ports/1/link_layer", layer+"\n",
		classFiles+"/"+file+"/ibdev", name+"\n",
		classFiles+"/"+file+"/dev", dev+"\n",
		classFiles+"/"+file+"/abi_version", abi+"\n",
	)
}

// gid puts an entry of a GID table.
func (m *machine) gid(device string, index int, gid, kind, netdev string) {
	dir := classDevices + "/" + device + "/ports/1/"
	n := fmt.Sprint(index)
	m.put(dir+"gids/"+n, gid+"\n", dir+"gid_attrs/types/"+n, kind+"\n", dir+"gid_attrs/ndevs/"+n, netdev+"\n")
}

// examined makes all checks on a machine.
func examined(t *testing.T, n *Node) *Report {
	t.Helper()
	return Examine(t.Context(), n, Checks(), &Options{Patience: 5 * time.Minute})
}

// finds makes all checks and compares the findings: nothing else may be found, or not be
// looked at.
func finds(t *testing.T, n *Node, want ...Finding) *Report {
	t.Helper()
	for _, f := range want {
		for line := range strings.Lines(f.Mend) {
			if !pasteable(line) {
				t.Errorf("no shell takes %q", line)
			}
		}
	}
	r := examined(t, n)
	if d := cmp.Diff(append([]Finding{}, want...), r.Findings); d != "" {
		t.Errorf("findings (-want +got):\n%s", d)
	}
	if len(r.NotLooked) > 0 {
		t.Errorf("not looked at: %+v", r.NotLooked)
	}
	return r
}

// A finding is a way to spoil a healthy machine, and what is found then: all of it.
type findingCase struct {
	name  string
	of    func(testing.TB) *machine
	spoil func(*machine)
	ask   func(*Node) // what the user asks; nil for nothing
	want  []Finding
}

// findAll makes all checks on each machine.
func findAll(t *testing.T, cases []findingCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := c.of(t)
			if c.spoil != nil {
				c.spoil(m)
			}
			n := m.node()
			if c.ask != nil {
				c.ask(n)
			}
			finds(t, n, c.want...)
		})
	}
}
