package doctor

import (
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// portState gives the port a state.
func (m *machine) portState(state nldev.PortState, phys nldev.PortPhysState) {
	m.ports[0][0].State, m.ports[0][0].PhysState = state, phys
	for _, a := range m.answers {
		a.Ports[0].State, a.Ports[0].PhysState = uverbs.PortState(state), uverbs.PhysState(phys)
	}
}

func on(check, object string, s Severity, what, seen, mend string) []Finding {
	return []Finding{{Check: check, Severity: s, Object: object, What: what, Seen: seen, Mend: mend}}
}

func TestPortFindings(t *testing.T) {
	const down = "RDMA netlink, PORT_GET: state DOWN, physical state DISABLED; /sys/class/net/ens1f0np0/operstate is "
	port := func(s Severity, what, seen, mend string) []Finding {
		return on("ports", "mlx5_0/1", s, what, seen, mend)
	}
	lower := func(up, running bool, operstate string) func(*machine) {
		return func(m *machine) {
			m.portState(nldev.PortDown, nldev.PhysDisabled)
			m.interfaces[1].Up, m.interfaces[1].Running = up, running
			m.put("sys/class/net/ens1f0np0/operstate", operstate+"\n")
		}
	}
	findAll(t, []findingCase{
		{"network device down", healthyRoCE, func(m *machine) {
			lower(false, false, "down")(m)
			// With the device its addresses go.
			m.remove(classDevices + "/mlx5_0/ports/1/gids")
			m.put(classDevices+"/mlx5_0/ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n")
		}, nil, port(Fault, "the port is down because its network device ens1f0np0 is", down+"down, and it is not set up", "ip link set ens1f0np0 up")},
		{"no carrier", healthyRoCE, lower(true, false, "down"), nil, port(Fault,
			"the port is down because its network device ens1f0np0 has no carrier: there is no cable, or nobody at its other end", down+"down",
			"ethtool ens1f0np0 # shows the link; plug the cable in, or enable the switch's port")},
		{"down all the same", healthyRoCE, lower(true, true, "up"), nil, port(Fault,
			"the port is down although its network device ens1f0np0 is up", down+"up", "ip link set ens1f0np0 down && ip link set ens1f0np0 up # ends connections over it and takes routes away: not from afar over the same network device")},
		{"no network device at all", healthyRoCE, func(m *machine) {
			m.portState(nldev.PortDown, nldev.PhysDisabled)
			m.ports[0][0].Netdev = ""
			m.remove(classDevices + "/mlx5_0/ports/1/gid_attrs")
		}, nil, port(Fault, "the port is down, and has no network device in this network namespace", "RDMA netlink, PORT_GET: state DOWN, physical state DISABLED", "rdma link show mlx5_0/1")},
		{"no subnet manager", healthyIB, func(m *machine) {
			m.portState(nldev.PortInit, nldev.PhysLinkUp)
			m.ports[0][0].LID, m.ports[0][0].SMLID = 0, 0
		}, nil, port(Fault, "no subnet manager has configured the port, so that nothing can be sent",
			"RDMA netlink, PORT_GET: state INIT, physical state LINK_UP, SM LID 0", "systemctl start opensm # on one machine of the fabric, or switch on the switch's own subnet manager")},
		{"armed", healthyIB, func(m *machine) { m.portState(nldev.PortArmed, nldev.PhysLinkUp) }, nil, port(Warning,
			"the subnet manager has not finished with the port", "RDMA netlink, PORT_GET: state ARMED, physical state LINK_UP", "sminfo # says which manager it is and whether it lives")},
		{"switched off", healthyIB, func(m *machine) { m.portState(nldev.PortDown, nldev.PhysDisabled) }, nil, port(Fault,
			"the port is switched off", "RDMA netlink, PORT_GET: state DOWN, physical state DISABLED", "ibportstate -C mlx5_0 -P 1 -D 0 1 enable")},
		{"no cable", healthyIB, func(m *machine) { m.portState(nldev.PortDown, nldev.PhysPolling) }, nil, port(Fault,
			"the port has no link: there is no cable, or nobody at its other end", "RDMA netlink, PORT_GET: state DOWN, physical state POLLING",
			"plug the cable in, or enable the switch's port (ibportstate -C mlx5_0 -P 1 -D 0 1 shows this end)")},
		{"training", healthyIB, func(m *machine) { m.portState(nldev.PortDown, nldev.PhysTraining) }, nil, port(Fault,
			"the port is not active", "RDMA netlink, PORT_GET: state DOWN, physical state ARMED", "ibportstate -C mlx5_0 -P 1 -D 0 1")},
		{"no LID", healthyIB, func(m *machine) { m.ports[0][0].LID = 0 }, nil, port(Warning,
			"the port is active and has no LID", "RDMA netlink, PORT_GET: state ACTIVE, LID 0, SM LID 1", "systemctl restart opensm # on the machine that runs it")},
		{"a second port that nobody uses", healthyRoCE, func(m *machine) {
			m.secondPort()
			m.portState2(nldev.PortDown, nldev.PhysDisabled)
		}, nil, nil},
		{"a second port that is meant to be used", healthyRoCE, func(m *machine) {
			m.secondPort()
			m.portState2(nldev.PortDown, nldev.PhysDisabled)
			m.interfaces[2].Addrs = []netip.Prefix{netip.MustParsePrefix("198.51.100.9/20")}
		}, nil, on("ports", "mlx5_1/1", Warning, "the port is down because its network device ens1f1np1 is",
			"RDMA netlink, PORT_GET: state DOWN, physical state DISABLED; /sys/class/net/ens1f1np1/operstate is down, and it is not set up", "ip link set ens1f1np1 up")},
		{"a second port that is asked for", healthyRoCE, func(m *machine) {
			m.secondPort()
			m.portState2(nldev.PortDown, nldev.PhysDisabled)
		}, func(n *Node) { n.Device = "mlx5_1" }, on("ports", "mlx5_1/1", Fault, "the port is down because its network device ens1f1np1 is",
			"RDMA netlink, PORT_GET: state DOWN, physical state DISABLED; /sys/class/net/ens1f1np1/operstate is down, and it is not set up", "ip link set ens1f1np1 up")},
	})
}

// secondPort gives the server the second port of its adapter, with nothing connected.
func (m *machine) secondPort() {
	m.links = append(m.links, nldev.Link{Index: 1, Name: "mlx5_1", Ports: 1, Firmware: "22.36.1010", NodeType: nldev.NodeCA, Protocol: "roce"})
	m.ports[1] = []nldev.Port{{Device: "mlx5_1", Index: 1, State: nldev.PortActive, PhysState: nldev.PhysLinkUp, NetdevIndex: 3, Netdev: "ens1f1np1"}}
	m.chardevs[1] = nldev.Chardev{Name: "uverbs1", ABI: 1, Dev: 231<<8 | 193, DriverID: uint32(uverbs.DriverMlx5)}
	m.counts[1] = m.counts[0]
	m.dev["/dev/infiniband/uverbs1"] = Stat{Mode: m.dev["/dev/infiniband/uverbs0"].Mode, Rdev: 231<<8 | 193}
	m.device("mlx5_1", "uverbs1", "231:193", "1", "Ethernet")
	m.gid("mlx5_1", 0, "fe80:0000:0000:0000:0e42:a1ff:fe12:3457", "IB/RoCE v1", "ens1f1np1")
	m.gid("mlx5_1", 1, "fe80:0000:0000:0000:0e42:a1ff:fe12:3457", "RoCE v2", "ens1f1np1")
	a := *m.answers["mlx5_0"]
	a.Ports = append([]uverbs.PortAttr{}, a.Ports...)
	m.answers["mlx5_1"] = &a
	m.interfaces = append(m.interfaces, Interface{Name: "ens1f1np1", Index: 3, MTU: 9000})
	m.put("sys/class/net/ens1f1np1/operstate", "down\n")
}

func (m *machine) portState2(state nldev.PortState, phys nldev.PortPhysState) {
	m.ports[1][0].State, m.ports[1][0].PhysState = state, phys
	m.answers["mlx5_1"].Ports[0].State = uverbs.PortState(state)
}

func TestNamespaceFindings(t *testing.T) {
	const elsewhere = "its network device ens1f0np0 is in another network namespace: nothing can be connected from here"
	away := func(m *machine) {
		m.ports[0][0].Netdev, m.ports[0][0].NetdevIndex = "", 0
		m.interfaces = m.interfaces[:1]
	}
	seen := func(mode string) string {
		return "RDMA netlink, PORT_GET: no network device; /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0 is ens1f0np0; netns mode is " + mode
	}
	findAll(t, []findingCase{
		{"the network device is elsewhere", healthyRoCE, away, nil, on("namespace", "mlx5_0/1", Fault, elsewhere, seen("shared"),
			"ip link set ens1f0np0 netns PID # where it is; PID is a process of this namespace")},
		{"the same, exclusive", healthyRoCE, func(m *machine) { away(m); m.settings.NetnsShared = false }, nil, on("namespace", "mlx5_0/1", Fault, elsewhere, seen("exclusive"),
			"ip link set ens1f0np0 netns PID # where it is; PID is a process of this namespace\nrdma dev set mlx5_0 netns PID")},
		{"the same, in docker", healthyRoCE, func(m *machine) { away(m); m.put(".dockerenv", "") }, nil, on("namespace", "mlx5_0/1", Fault, elsewhere, seen("shared"), "docker run --network host ...")},
		{"the same, in kubernetes", healthyRoCE, func(m *machine) { away(m); m.put("proc/self/cgroup", "0::/kubepods/pod7\n") }, nil, on("namespace", "mlx5_0/1", Fault, elsewhere, seen("shared"),
			"hostNetwork: true, or a second interface on ens1f0np0 (Multus with macvlan, ipvlan or SR-IOV)")},
		{"a soft device's is elsewhere", healthySoft, func(m *machine) {
			away(m)
			m.remove(classDevices + "/rxe0/ports/1/gids")
		}, nil, on("namespace", "rxe0/1", Fault, "its network device dummy0 is in another network namespace: nothing can be connected from here",
			"RDMA netlink, PORT_GET: no network device; /sys/class/infiniband/rxe0/parent is dummy0; netns mode is shared",
			"ip link set dummy0 netns PID # where it is; PID is a process of this namespace\nrdma link add rxe0 type rxe netdev dummy0 # in this namespace: a soft device goes when its network device moves")},
		{"the device is elsewhere", healthyRoCE, func(m *machine) {
			m.settings.NetnsShared = false
			m.links = nil
			delete(m.answers, "mlx5_0")
			m.interfaces = m.interfaces[:1]
		}, nil, on("namespace", "mlx5_0", Fault, "it belongs to another network namespace, and cannot be used from this one",
			"/sys/class/infiniband/mlx5_0 exists, and RDMA netlink does not list it here; netns mode is exclusive",
			"rdma dev set mlx5_0 netns PID # where it is; PID is a process of this namespace")},
	})
}

func TestGIDFindings(t *testing.T) {
	const dir = classDevices + "/mlx5_0/ports/1"
	const table = "/" + dir + "/gids: "
	wipe := func(m *machine) {
		m.remove(dir+"/gids", dir+"/gid_attrs")
		m.put(dir+"/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n")
	}
	findAll(t, []findingCase{
		{"empty", healthyRoCE, wipe, nil, on("gids", "mlx5_0/1", Fault, "its GID table is empty: queue pairs cannot be connected",
			"/"+dir+"/gids: no entry", "ip address add ADDRESS/LENGTH dev ens1f0np0")},
		{"RoCE v1 only", healthyRoCE, func(m *machine) {
			wipe(m)
			m.gid("mlx5_0", 0, "0000:0000:0000:0000:0000:ffff:c000:0207", "IB/RoCE v1", "ens1f0np0")
		}, nil, on("gids", "mlx5_0/1", Fault, "it has no GID of RoCE v2, which is what goverbs uses unless told otherwise",
			table+"0 192.0.2.7 v1; none in gid_attrs/types beside it is RoCE v2", "ip address add ADDRESS/LENGTH dev ens1f0np0\nmlxconfig -d PCI query | grep -i roce # whether the firmware offers RoCE v2")},
		{"link-local only", healthyRoCE, func(m *machine) {
			wipe(m)
			m.gid("mlx5_0", 1, "fe80:0000:0000:0000:0e42:a1ff:fe12:3456", "RoCE v2", "ens1f0np0")
			m.interfaces[1].Addrs = m.interfaces[1].Addrs[1:]
		}, nil, on("gids", "mlx5_0/1", Warning, "it has only link-local GIDs: peers behind a router, and those that are asked for by IPv4 address, cannot be reached",
			table+"1 fe80::e42:a1ff:fe12:3456 v2; ens1f0np0 has no other address", "ip address add ADDRESS/LENGTH dev ens1f0np0")},
		{"asked, as /sys is hidden", healthyRoCE, func(m *machine) {
			m.remove(classDevices)
			m.answers["mlx5_0"].GIDs = []uverbs.GIDEntry{{GID: uverbs.GIDFromAddr(netip.MustParseAddr("192.0.2.7")), Port: 1, Index: 3, Type: uverbs.GIDTypeRoCEv1}}
		}, nil, on("gids", "mlx5_0/1", Fault, "it has no GID of RoCE v2, which is what goverbs uses unless told otherwise",
			"QUERY_GID_TABLE: 3 192.0.2.7 v1; none in gid_attrs/types beside it is RoCE v2", "ip address add ADDRESS/LENGTH dev ens1f0np0\nmlxconfig -d PCI query | grep -i roce # whether the firmware offers RoCE v2")},
		{"a second port without address", healthyRoCE, func(m *machine) {
			m.secondPort()
			m.interfaces[2].Up, m.interfaces[2].Running = true, true
		}, nil, nil},
		{"a second port without address, asked for", healthyRoCE, func(m *machine) {
			m.secondPort()
			m.interfaces[2].Up, m.interfaces[2].Running = true, true
		}, func(n *Node) { n.Device = "mlx5_1" }, on("gids", "mlx5_1/1", Warning, "it has only link-local GIDs: peers behind a router, and those that are asked for by IPv4 address, cannot be reached",
			"/sys/class/infiniband/mlx5_1/ports/1/gids: 0 fe80::e42:a1ff:fe12:3457 v1, 1 fe80::e42:a1ff:fe12:3457 v2; ens1f1np1 has no other address", "ip address add ADDRESS/LENGTH dev ens1f1np1")},
		{"an Elastic Fabric Adapter, which has a GID of its own kind", healthyRoCE, func(m *machine) {
			m.links[0].Protocol = ""
			m.remove(classDevices + "/mlx5_0/ports")
			m.device("mlx5_0", "uverbs0", "231:192", "1", "Unspecified")
			m.gid("mlx5_0", 0, "fe80:0000:0000:0000:0e42:a1ff:fe12:3456", "IB/RoCE v1", "")
		}, nil, nil},
	})
}

// Addresses that the table lacks are told one by one, and that it is full.
func TestAddressesWithoutGID(t *testing.T) {
	m := healthyRoCE(t)
	m.put(classDevices+"/mlx5_0/ports/1/gids/4", "0000:0000:0000:0000:0000:0000:0000:0000\n")
	m.interfaces[1].Addrs = append(m.interfaces[1].Addrs, netip.MustParsePrefix("2001:db8::7/64"), netip.MustParsePrefix("198.51.100.9/20"))
	const seen = "/sys/class/infiniband/mlx5_0/ports/1/gids: 0 fe80::e42:a1ff:fe12:3456 v1, 1 fe80::e42:a1ff:fe12:3456 v2, 2 192.0.2.7 v1, 3 192.0.2.7 v2"
	finding := func(what, mend string) Finding {
		return Finding{Check: "gids", Object: "mlx5_0/1", Severity: Fault, What: what, Seen: seen, Mend: mend}
	}
	finds(t, m.node(),
		finding("the address 2001:db8::7 of ens1f0np0 has no GID: peers that use it cannot be connected", "ip address del 2001:db8::7/64 dev ens1f0np0 && ip address add 2001:db8::7/64 dev ens1f0np0 # ends connections over it and takes routes away: not from afar over the same network device"),
		finding("the address 198.51.100.9 of ens1f0np0 has no GID: peers that use it cannot be connected", "ip address del 198.51.100.9/20 dev ens1f0np0 && ip address add 198.51.100.9/20 dev ens1f0np0 # ends connections over it and takes routes away: not from afar over the same network device"))
	m.remove(classDevices + "/mlx5_0/ports/1/gids/4")
	m.interfaces[1].Addrs = m.interfaces[1].Addrs[:3]
	finds(t, m.node(), finding("the address 2001:db8::7 of ens1f0np0 has no GID, as the table of 4 is full", "ip address show dev ens1f0np0 # take away addresses that are not needed"))
}

func TestMTUFindings(t *testing.T) {
	mtu := func(netdev, active int) func(*machine) {
		return func(m *machine) {
			m.interfaces[1].MTU = netdev
			for _, a := range m.answers {
				a.Ports[0].ActiveMTU = active
			}
		}
	}
	const raise = "ip link set ens1f0np0 mtu 4200 # on both ends, and on the switch"
	findAll(t, []findingCase{
		{"1500", healthyRoCE, mtu(1500, 1024), nil, on("mtu", "mlx5_0/1", Note,
			"packets carry 1024 bytes, as the network device's MTU is 1500; with 4200 they would carry 4096", "QUERY_PORT: active MTU 1024, largest 4096; ens1f0np0 has an MTU of 1500", raise)},
		{"4200 is enough", healthyRoCE, mtu(4200, 4096), nil, nil},
		{"a soft device's 1500", healthySoft, mtu(1500, 1024), nil, nil},
		{"a soft device's 600", healthySoft, mtu(600, 512), nil, on("mtu", "rxe0/1", Warning,
			"packets carry 512 bytes only, as the network device's MTU is 600", "QUERY_PORT: active MTU 512, largest 4096; dummy0 has an MTU of 600", "ip link set dummy0 mtu 1500")},
		{"small", healthyRoCE, mtu(1000, 512), nil, on("mtu", "mlx5_0/1", Warning,
			"packets carry 512 bytes only, as the network device's MTU is 1000", "QUERY_PORT: active MTU 512, largest 4096; ens1f0np0 has an MTU of 1000", raise)},
		{"the port did not follow", healthyRoCE, mtu(9000, 1024), nil, on("mtu", "mlx5_0/1", Warning,
			"packets carry 1024 bytes, and the network device's MTU of 9000 has room for 4096: the port did not follow it",
			"QUERY_PORT: active MTU 1024, largest 4096; ens1f0np0 has an MTU of 9000", "ip link set ens1f0np0 down && ip link set ens1f0np0 up # ends connections over it and takes routes away: not from afar over the same network device")},
		{"the port is ahead", healthyRoCE, mtu(1500, 4096), nil, on("mtu", "mlx5_0/1", Fault,
			"packets carry 4096 bytes, more than the network device's MTU of 1500 has room for: they are lost",
			"QUERY_PORT: active MTU 4096, largest 4096; ens1f0np0 has an MTU of 1500", raise)},
		{"InfiniBand's 2048", healthyIB, func(m *machine) { m.answers["mlx5_0"].Ports[0].ActiveMTU = 2048 }, nil, on("mtu", "mlx5_0/1", Note,
			"packets carry 2048 bytes, and the port could do 4096", "QUERY_PORT: active MTU 2048, largest 4096",
			"set mtu=5 (4096 bytes) for the partition in opensm's partitions.conf, and the switch's ports likewise")},
	})
}

func TestInterfaceFindings(t *testing.T) {
	chardev := func(driver uverbs.Driver, abi uint64) func(*machine) {
		return func(m *machine) {
			c := m.chardevs[0]
			c.DriverID, c.ABI = uint32(driver), abi
			m.chardevs[0] = c
		}
	}
	const noPath = "goverbs has no data path for the driver bnxt_re: it lists and asks the device, and makes no queues on it"
	const use = "use a ConnectX or soft-RoCE (rdma link add rxe0 type rxe netdev ens1f0np0), or libibverbs with this device"
	findAll(t, []findingCase{
		{"Linux 5.4", healthySoft, func(m *machine) { m.release = "5.4.0-150-generic" }, nil, on("interface", "", Fault,
			"the kernel is too old: goverbs needs Linux 5.10 or newer", "uname -r is 5.4.0-150-generic", "boot Linux 5.10 or newer; programs of libibverbs work with this one")},
		{"version 7", healthyRoCE, func(m *machine) { m.put(classFiles+"/abi_version", "7\n") }, nil, on("interface", "", Fault,
			"the kernel's verbs interface has version 7, and goverbs speaks 6", "/sys/class/infiniband_verbs/abi_version is 7", "use a kernel whose ib_uverbs is that of kernel.org, or a newer goverbs")},
		{"another driver", healthyRoCE, chardev(uverbs.DriverBnxtRE, 1), nil, on("interface", "mlx5_0", Warning, noPath, "RDMA netlink, GET_CHARDEV: the driver is bnxt_re", use)},
		{"another driver beside one of ours", healthyRoCE, func(m *machine) {
			m.secondPort()
			m.interfaces[2].Up, m.interfaces[2].Running = true, true
			m.gid("mlx5_1", 2, "0000:0000:0000:0000:0000:ffff:c000:0208", "RoCE v2", "ens1f1np1")
			chardev(uverbs.DriverBnxtRE, 1)(m)
		}, nil, on("interface", "mlx5_0", Note, noPath, "RDMA netlink, GET_CHARDEV: the driver is bnxt_re", use)},
		{"a driver of another version", healthyRoCE, chardev(uverbs.DriverMlx5, 3), nil, on("interface", "mlx5_0", Fault,
			"the driver mlx5 speaks version 3 of its private interface, and goverbs 1", "RDMA netlink, GET_CHARDEV, and /sys/class/infiniband_verbs/uverbs0/abi_version: 3",
			"use a kernel whose driver is that of kernel.org (MLX5_IB_UVERBS_ABI_VERSION in its headers), or a newer goverbs")},
	})
}

func TestForkFindings(t *testing.T) {
	findAll(t, []findingCase{{"no copies", healthySoft, func(m *machine) { m.settings.CopyOnFork = false; m.release = "5.10.0-46-amd64" }, nil, on("fork", "", Note,
		"the kernel does not copy registered pages for a child at fork: a C program that forks may go on with pages that the device does not write to (goverbs and os/exec are safe)",
		"RDMA netlink, SYS_GET: no COPY_ON_FORK; uname -r is 5.10.0-46-amd64, and Linux has it from 5.12 on",
		"export RDMAV_FORK_SAFE=1 # for programs of libibverbs that fork; or boot Linux 5.12 or newer")}})
}
