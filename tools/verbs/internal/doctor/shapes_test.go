package doctor

import (
	"fmt"
	"io/fs"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// another adds a ConnectX like the first: mlx5_N on ensNf0np0 with a file of its own.
func (m *machine) another(n int) {
	name, file, netdev := fmt.Sprintf("mlx5_%d", n), fmt.Sprintf("uverbs%d", n), fmt.Sprintf("ens%df0np0", n+1)
	index, rdev := uint32(n), uint64(231<<8|192+n)
	addr := fmt.Sprintf("0000:%02x:00.0", 0x40+n)
	m.links = append(m.links, nldev.Link{Index: index, Name: name, Ports: 1, Firmware: "22.36.1010", NodeType: nldev.NodeCA, Protocol: "roce"})
	m.ports[index] = []nldev.Port{{Device: name, Index: 1, State: nldev.PortActive, PhysState: nldev.PhysLinkUp, NetdevIndex: index + 2, Netdev: netdev}}
	m.chardevs[index] = nldev.Chardev{Name: file, ABI: 1, Dev: rdev, DriverID: uint32(uverbs.DriverMlx5)}
	m.counts[index] = nldev.ResourceCounts{"qp": 2}
	m.dev["/dev/infiniband/"+file] = Stat{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o666, Rdev: rdev}
	m.interfaces = append(m.interfaces, Interface{Name: netdev, Index: n + 2, MTU: 9000, Up: true, Running: true,
		Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("192.0.%d.7/24", n+2))}})
	m.adapter(addr, "0x101d")
	m.symlink(pciDevices+"/"+addr+"/driver", "../../../../bus/pci/drivers/mlx5_core")
	m.put(pciDevices+"/"+addr+"/infiniband/"+name+"/node_type", "1: CA\n")
	m.device(name, file, devText(rdev), "1", "Ethernet")
	m.symlink(classDevices+"/"+name+"/device/driver", "../../../../bus/pci/drivers/mlx5_core")
	m.gid(name, 0, fmt.Sprintf("0000:0000:0000:0000:0000:ffff:c000:%02x07", n+2), "RoCE v2", netdev)
	m.answers[name] = m.answers["mlx5_0"]
}

// adapter puts a function on the PCI bus.
func (m *machine) adapter(addr, device string) {
	dir := pciDevices + "/" + addr
	m.put(dir+"/vendor", "0x15b3\n", dir+"/device", device+"\n", dir+"/class", "0x020000\n")
}

// large has eight ports, one on each of eight adapters, four on each node.
func large(t testing.TB) *machine {
	m := healthyRoCE(t)
	for n := 1; n < 8; n++ {
		m.another(n)
	}
	for n := range 8 {
		dir := fmt.Sprintf("%s/mlx5_%d/device/", classDevices, n)
		m.put(dir+"numa_node", fmt.Sprintf("%d\n", n/4), dir+"local_cpulist", []string{"0-7\n", "8-15\n"}[n/4])
	}
	return m
}

// inPod makes the machine a pod that sees all of its devices and was given one.
func inPod(m *machine, given string) {
	m.put("proc/self/cgroup", "0::/kubepods/pod7/9f\n")
	for path := range m.dev {
		if path != "/dev/infiniband/"+given {
			delete(m.dev, path)
		}
	}
}

// asDriversDo sends the vectors of a device on node 1 to a processor each: to the node's own
// first, and those that are left to the others.
func asDriversDo(device string) (*poll.Vectors, error) {
	return vectors(device, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)(device)
}

// What whole and busy machines have must not be found.
func TestHealthyShapes(t *testing.T) {
	for _, c := range []struct {
		name  string
		of    func(testing.TB) *machine
		spoil func(*machine, *Node)
	}{
		{"eight adapters", large, func(m *machine, n *Node) {}},
		{"a program next to some of eight adapters", large, func(m *machine, n *Node) { m.mayUse("0-7", "0") }},
		{"a pod with one of eight adapters", large, func(m *machine, n *Node) { inPod(m, "uverbs3") }},
		{"a pod with one of eight adapters on the other node", large, func(m *machine, n *Node) { inPod(m, "uverbs5"); m.mayUse("8-15", "1") }},
		{"virtual functions without driver, with vfio, and without RDMA", healthyRoCE, func(m *machine, n *Node) {
			for i, driver := range []string{"", "vfio-pci", "mlx5_core"} {
				addr := fmt.Sprintf("0000:3b:00.%d", i+2)
				m.adapter(addr, "0x101e")
				m.symlink(pciDevices+"/"+addr+"/physfn", "../0000:3b:00.0")
				if driver != "" {
					m.symlink(pciDevices+"/"+addr+"/driver", "../../../../bus/pci/drivers/"+driver)
				}
			}
		}},
		{"vectors for every processor", healthyRoCE, func(m *machine, n *Node) { n.Vectors = asDriversDo }},
		{"a pod with a macvlan on the adapter's network device", healthyRoCE, func(m *machine, n *Node) {
			m.put("proc/self/cgroup", "0::/kubepods/pod7/9f\n")
			m.ports[0][0].Netdev, m.ports[0][0].NetdevIndex = "", 0
			m.interfaces[1].Name, m.interfaces[1].Addrs = "net1", []netip.Prefix{netip.MustParsePrefix("198.51.100.9/24")}
			m.gid("mlx5_0", 4, "0000:0000:0000:0000:0000:ffff:c633:6409", "RoCE v2", "net1")
		}},
		{"a bond that has the addresses", healthyRoCE, func(m *machine, n *Node) {
			addrs := m.interfaces[1].Addrs
			m.interfaces[1].Addrs = nil
			m.interfaces = append(m.interfaces, Interface{Name: "bond0", Index: 9, MTU: 9000, Up: true, Running: true, Addrs: addrs})
			for i := range 4 {
				m.put(fmt.Sprintf("%s/mlx5_0/ports/1/gid_attrs/ndevs/%d", classDevices, i), "bond0\n")
			}
		}},
		{"a VLAN above", healthyRoCE, func(m *machine, n *Node) {
			m.interfaces = append(m.interfaces, Interface{Name: "ens1f0np0.7", Index: 9, MTU: 9000, Up: true, Running: true, Addrs: []netip.Prefix{netip.MustParsePrefix("198.51.100.9/24")}})
			m.gid("mlx5_0", 4, "0000:0000:0000:0000:0000:ffff:c633:6409", "RoCE v2", "ens1f0np0.7")
		}},
		{"symbols lost while the link came up", healthyIB, func(m *machine, n *Node) {
			m.put(classDevices+"/mlx5_0/ports/1/counters/symbol_error", "37\n")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.of(t)
			n := m.node()
			c.spoil(m, n)
			findsOnly(t, n)
		})
	}
}

// What is found on such machines all the same.
func TestSickShapes(t *testing.T) {
	for _, c := range []struct {
		name  string
		of    func(testing.TB) *machine
		spoil func(*machine, *Node)
		want  wanted
	}{
		{"a pod asked for a device that it was not given", large, func(m *machine, n *Node) { inPod(m, "uverbs3"); n.Device = "mlx5_1" },
			wanted{"files", Fault, "mlx5_1", "its file was not passed into this container", "", "plug-in"}},
		{"a machine without the file of one of eight", large, func(m *machine, n *Node) { delete(m.dev, "/dev/infiniband/uverbs2") },
			wanted{"files", Fault, "mlx5_2", "its file does not exist", "", ""}},
		{"a program far from the device that it is asked about", large, func(m *machine, n *Node) { m.mayUse("0-7", "0-1"); n.Device = "mlx5_6" },
			wanted{"numa", Warning, "mlx5_6", "no processor of the device's NUMA node", "", ""}},
		{"a macvlan of the same name elsewhere", healthyRoCE, func(m *machine, n *Node) {
			m.ports[0][0].Netdev, m.ports[0][0].NetdevIndex = "", 0
			m.interfaces[1].Name, m.interfaces[1].Addrs = "net1", []netip.Prefix{netip.MustParsePrefix("198.51.100.9/24")}
			m.gid("mlx5_0", 4, "0000:0000:0000:0000:0000:ffff:c633:6477", "RoCE v2", "net1")
		}, wanted{"namespace", Fault, "mlx5_0/1", "is in another network namespace", "", ""}},
		{"no vector near", healthyRoCE, func(m *machine, n *Node) { n.Vectors = vectors("mlx5_0", 0, 1, 2, 3) },
			wanted{"vectors", Warning, "mlx5_0", "4 of 4 completion vectors interrupt processors of another NUMA node", "", "echo 8 > /proc/irq/100"}},
		{"one vector far that could be near", healthyRoCE, func(m *machine, n *Node) { n.Vectors = vectors("mlx5_0", 8, 9, 10, 3) },
			wanted{"vectors", Note, "mlx5_0", "1 of 4 completion vectors interrupt processors of another NUMA node", "", "echo 8 > /proc/irq/103"}},
		{"root of a user namespace at a file of the machine's root", healthyRoCE, func(m *machine, n *Node) {
			m.put("proc/self/status", "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nVmPin:\t0 kB\nCpus_allowed_list:\t0-15\nMems_allowed_list:\t0-1\n",
				"proc/self/uid_map", "         0       1000          1\n")
			m.dev["/dev/infiniband/uverbs0"] = Stat{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600, UID: 65534, GID: 65534, Rdev: 231<<8 | 192}
			m.openErr["/dev/infiniband/uverbs0"] = fs.ErrPermission
		}, wanted{"files", Fault, "mlx5_0", "this user may not open its file", "mode 0600, owner 65534:65534", "chmod 0666"}},
		{"WSL2", bareMachine, func(m *machine, n *Node) {
			n.Release = "6.6.87.2-microsoft-standard-WSL2"
			m.put("lib/modules/"+n.Release+"/modules.dep", "kernel/fs/ext4/ext4.ko:\n", "etc/os-release", "ID=ubuntu\n")
		}, wanted{"devices", Fault, "", "there is no RDMA device", "", ".wslconfig"}},
		{"Debian's cloud kernel for arm64", bareMachine, func(m *machine, n *Node) {
			n.Machine = "aarch64"
			m.put("lib/modules/"+n.Release+"/modules.dep", "kernel/fs/ext4/ext4.ko:\n", "etc/os-release", "ID=debian\n")
		}, wanted{"devices", Fault, "", "there is no RDMA device", "", "apt install linux-image-arm64 "}},
		{"AWS with EFA alone", healthyRoCE, func(m *machine, n *Node) {
			m.links[0].Name, m.links[0].Protocol, m.links[0].NodeType = "rdmap0s6", "", 0
			m.ports[0] = []nldev.Port{{Device: "rdmap0s6", Index: 1, State: nldev.PortActive, PhysState: nldev.PhysLinkUp}}
			m.chardevs[0] = nldev.Chardev{Name: "uverbs0", ABI: 1, Dev: 231<<8 | 192, DriverID: uint32(uverbs.DriverEFA)}
			m.remove(classDevices+"/mlx5_0", pciDevices+"/0000:3b:00.0/infiniband")
			m.device("rdmap0s6", "uverbs0", "231:192", "1", "Unknown")
			m.put(pciDevices+"/0000:3b:00.0/vendor", "0x1d0f\n", pciDevices+"/0000:3b:00.0/device", "0xefa1\n", pciDevices+"/0000:3b:00.0/infiniband/rdmap0s6/node_type", "1: CA\n")
			m.answers["rdmap0s6"] = m.answers["mlx5_0"]
		}, wanted{"interface", Warning, "rdmap0s6", "no data path for the driver efa", "", "rdma link add rxe0 type rxe netdev NETDEV)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.of(t)
			n := m.node()
			c.spoil(m, n)
			findsOnly(t, n, c.want)
		})
	}
}
