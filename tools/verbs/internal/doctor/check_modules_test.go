package doctor

import (
	"slices"
	"syscall"
	"testing"
)

// bare is a server without RDMA but with the packages of its kernel.
func bareMachine(t testing.TB) *machine {
	m := blank(t, "6.12.117+deb13-amd64")
	m.interfaces = []Interface{{Name: "lo", Up: true, Running: true, MTU: 65536}, {Name: "eth7", Index: 2, Up: true, Running: true, MTU: 1500}}
	m.interfaces[1].Addrs = healthyRoCE(t).interfaces[1].Addrs
	m.put("lib/modules/6.12.117+deb13-amd64/modules.dep", "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz: kernel/drivers/infiniband/core/ib_core.ko.xz\nkernel/drivers/infiniband/core/ib_core.ko.xz:\nkernel/drivers/infiniband/hw/mlx5/mlx5_ib.ko.xz: x\n",
		"etc/os-release", "PRETTY_NAME=\"Debian\"\nID=debian\n")
	return m
}

// withAdapter has a ConnectX on its bus, whose driver is bound, and no RDMA.
func withAdapter(t testing.TB) *machine {
	m := bareMachine(t)
	dir := pciDevices + "/0000:3b:00.0"
	m.put(dir+"/vendor", "0x15b3\n", dir+"/device", "0x101d\n", dir+"/class", "0x020000\n")
	m.symlink(dir+"/driver", "../../../../bus/pci/drivers/mlx5_core")
	return m
}

const nobodyListsAny = "RDMA netlink is not there, as ib_core is not loaded; /sys/class/infiniband does not exist; no adapter on the PCI bus is known to do RDMA"

// Whatever is missing below, one finding says it.
func TestModuleFindings(t *testing.T) {
	findAll(t, []findingCase{
		{"no RDMA at all", bareMachine, nil, nil, []Finding{{
			Check: "devices", Severity: Fault, What: "there is no RDMA device", Seen: nobodyListsAny,
			Mend: "modprobe rdma_rxe\nrdma link add rxe0 type rxe netdev eth7",
		}}},
		{"asked for one, too", bareMachine, nil, func(n *Node) { n.Device = "mlx5_0" }, []Finding{{
			Check: "devices", Severity: Fault, What: "there is no RDMA device", Seen: nobodyListsAny,
			Mend: "modprobe rdma_rxe\nrdma link add rxe0 type rxe netdev eth7",
		}}},
		{"the cloud flavour of the kernel", bareMachine, func(m *machine) {
			m.put("lib/modules/6.12.117+deb13-amd64/modules.dep", "kernel/fs/ext4/ext4.ko:\n")
		}, nil, []Finding{{
			Check: "devices", Severity: Fault, What: "there is no RDMA device", Seen: nobodyListsAny,
			Mend: "install the modules that the kernel 6.12.117+deb13-amd64 lacks, or a kernel that has rdma_rxe: apt install linux-image-amd64 (the cloud flavour leaves rdma_rxe out), and reboot\nrdma link add rxe0 type rxe netdev eth7",
		}}},
		{"a kernel without modules", bareMachine, func(m *machine) { m.remove("proc/modules", "lib/modules") }, nil, []Finding{{
			Check: "devices", Severity: Fault, What: "there is no RDMA device", Seen: nobodyListsAny,
			Mend: "boot a kernel that has rdma_rxe: this one, 6.12.117+deb13-amd64, was built without it and loads no modules\nrdma link add rxe0 type rxe netdev eth7",
		}}},
		{"no network either", bareMachine, func(m *machine) { m.interfaces = m.interfaces[:1] }, nil, []Finding{{
			Check: "devices", Severity: Fault, What: "there is no RDMA device", Seen: nobodyListsAny,
			Mend: "modprobe rdma_rxe\nrdma link add rxe0 type rxe netdev NETDEV",
		}}},
		{"in a container", bareMachine, func(m *machine) { m.remove("lib/modules"); m.put(".dockerenv", "") }, nil, []Finding{{
			Check: "devices", Severity: Fault, What: "there is no RDMA device", Seen: nobodyListsAny,
			Mend: "modprobe rdma_rxe # on the host: a container cannot load it\nrdma link add rxe0 type rxe netdev eth7",
		}}},
		{"ib_core is loaded, and no device", bareMachine, func(m *machine) {
			m.netlinkErr = nil
			m.settings = healthyRoCE(t).settings
			m.put("proc/modules", "rdma_rxe 1 0 - Live 0x0\nib_core 1 1 rdma_rxe, Live 0x0\n")
			m.folder(classDevices)
		}, nil, []Finding{{
			Check: "devices", Severity: Fault, What: "there is no RDMA device",
			Seen: "RDMA netlink lists none; /sys/class/infiniband is empty; no adapter on the PCI bus is known to do RDMA",
			Mend: "rdma link add rxe0 type rxe netdev eth7",
		}}},
		{"the namespaces have their own devices", bareMachine, func(m *machine) { m.netlinkErr = nil; m.folder(classDevices) }, nil, []Finding{{
			Check: "devices", Severity: Fault, What: "there is no RDMA device in this network namespace",
			Seen: "RDMA netlink lists none; /sys/class/infiniband is empty; no adapter on the PCI bus is known to do RDMA; each device belongs to one network namespace, as netns mode is exclusive",
			Mend: "rdma dev set DEVICE netns PID # in the namespace that has the device; PID is a process of this one",
		}}},
		{"a ConnectX without mlx5_ib", withAdapter, nil, nil, []Finding{{
			Check: "modules", Severity: Fault, What: "the adapter 0000:3b:00.0 (ConnectX) has no RDMA device: its module mlx5_ib is not loaded",
			Seen: "/sys/bus/pci/devices/0000:3b:00.0/infiniband does not exist, and neither does /sys/module/mlx5_ib",
			Mend: "modprobe mlx5_ib",
		}}},
		{"a ConnectX without driver", withAdapter, func(m *machine) {
			m.remove(pciDevices + "/0000:3b:00.0/driver")
			m.put("lib/modules/6.12.117+deb13-amd64/modules.builtin", "kernel/drivers/infiniband/core/ib-core.ko\n")
		}, nil, []Finding{{
			Check: "modules", Severity: Fault, What: "no driver has taken the adapter 0000:3b:00.0 (ConnectX)",
			Seen: "/sys/bus/pci/devices/0000:3b:00.0/driver does not exist",
			Mend: "install the modules that the kernel 6.12.117+deb13-amd64 lacks, or a kernel that has mlx5_core: apt install linux-image-amd64 (the cloud flavour leaves mlx5_core out), and reboot",
		}}},
		{"a ConnectX given to a virtual machine", withAdapter, func(m *machine) {
			m.symlink(pciDevices+"/0000:3b:00.0/driver", "../../../bus/pci/drivers/vfio-pci")
		}, nil, []Finding{{
			Check: "modules", Severity: Fault, What: "vfio-pci has taken the adapter 0000:3b:00.0 (ConnectX) instead of mlx5_core",
			Seen: "/sys/bus/pci/devices/0000:3b:00.0/driver leads to vfio-pci",
			Mend: "echo 0000:3b:00.0 > /sys/bus/pci/drivers/vfio-pci/unbind # takes it from the virtual machine or the program that has it\necho 0000:3b:00.0 > /sys/bus/pci/drivers/mlx5_core/bind",
		}}},
		{"a ConnectX with RoCE switched off", withAdapter, func(m *machine) {
			m.put("proc/modules", "mlx5_ib 1 0 - Live 0x0\n")
			m.folder(classDevices)
			m.netlinkErr = nil
			m.settings.NetnsShared = true
		}, nil, []Finding{{
			Check: "modules", Severity: Fault, What: "the adapter 0000:3b:00.0 (ConnectX) has no RDMA device although its module is loaded: RoCE is switched off for it",
			Seen: "/sys/bus/pci/devices/0000:3b:00.0/infiniband does not exist, and mlx5_ib is loaded",
			Mend: "devlink dev param set pci/0000:3b:00.0 name enable_roce value true cmode driverinit\ndevlink dev reload pci/0000:3b:00.0 # ends connections over it and takes routes away: not from afar over the same network device",
		}}},
		{"an EFA that its driver refused", withAdapter, func(m *machine) {
			dir := pciDevices + "/0000:3b:00.0"
			m.put(dir+"/vendor", "0x1d0f\n", dir+"/device", "0xefa1\n", "proc/modules", "efa 1 0 - Live 0x0\n")
			m.symlink(dir+"/driver", "../efa")
		}, nil, []Finding{{
			Check: "modules", Severity: Fault, What: "the adapter 0000:3b:00.0 (Elastic Fabric Adapter) has no RDMA device although its module is loaded: the kernel's log says why",
			Seen: "/sys/bus/pci/devices/0000:3b:00.0/infiniband does not exist, and efa is loaded",
			Mend: "dmesg | grep -i efa",
		}}},
		{"one ConnectX of two", healthyRoCE, func(m *machine) {
			dir := pciDevices + "/0000:86:00.0"
			m.put(dir+"/vendor", "0x15b3\n", dir+"/device", "0x1017\n", dir+"/class", "0x020000\n")
			vm := pciDevices + "/0000:86:00.2" // meant so
			m.put(vm+"/vendor", "0x15b3\n", vm+"/device", "0x1018\n", vm+"/class", "0x020000\n")
			m.symlink(vm+"/driver", "../vfio-pci")
			intel := pciDevices + "/0000:87:00.0" // nobody knows whether it could, or should
			m.put(intel+"/vendor", "0x8086\n", intel+"/device", "0x159b\n", intel+"/class", "0x020000\n")
			m.symlink(intel+"/driver", "../ice")
			disk := pciDevices + "/0000:88:00.0" // BlueField's
			m.put(disk+"/vendor", "0x15b3\n", disk+"/device", "0x6001\n", disk+"/class", "0x010802\n")
		}, nil, []Finding{{
			Check: "modules", Severity: Warning, Object: "0000:86:00.0", What: "no driver has taken the adapter 0000:86:00.0 (ConnectX)",
			Seen: "/sys/bus/pci/devices/0000:86:00.0/driver does not exist",
			Mend: "modprobe mlx5_core",
		}}},
		{"the second port of a bond", healthyRoCE, func(m *machine) {
			dir := pciDevices + "/0000:3b:00.1"
			m.put(dir+"/vendor", "0x15b3\n", dir+"/device", "0x101d\n", dir+"/class", "0x020000\n", dir+"/net/ens1f1np1/mtu", "9000\n")
			m.symlink(dir+"/driver", "../mlx5_core")
			m.symlink(dir+"/net/ens1f1np1/master", "../../../../virtual/net/bond0")
		}, nil, nil},
		{"the second port without bond", healthyRoCE, func(m *machine) {
			dir := pciDevices + "/0000:3b:00.1"
			m.put(dir+"/vendor", "0x15b3\n", dir+"/device", "0x101d\n", dir+"/class", "0x020000\n", dir+"/net/ens1f1np1/mtu", "9000\n")
			m.symlink(dir+"/driver", "../mlx5_core")
		}, nil, []Finding{{
			Check: "modules", Severity: Warning, Object: "0000:3b:00.1", What: "the adapter 0000:3b:00.1 (ConnectX) has no RDMA device although its module is loaded: RoCE is switched off for it",
			Seen: "/sys/bus/pci/devices/0000:3b:00.1/infiniband does not exist, and mlx5_ib is loaded",
			Mend: "devlink dev param set pci/0000:3b:00.1 name enable_roce value true cmode driverinit\ndevlink dev reload pci/0000:3b:00.1 # ends connections over it and takes routes away: not from afar over the same network device",
		}}},
		{"no ib_uverbs", healthyRoCE, func(m *machine) {
			m.put("proc/modules", "mlx5_ib 1 0 - Live 0x0\nib_core 1 1 mlx5_ib, Live 0x0\nmlx5_core 1 1 mlx5_ib, Live 0x0\n")
			m.remove("sys/module/ib_uverbs", classFiles)
			m.chardevErr = syscall.ENOENT
			delete(m.dev, "/dev/infiniband/uverbs0")
			delete(m.answers, "mlx5_0")
		}, nil, []Finding{{
			Check: "modules", Severity: Fault, What: "the module ib_uverbs is not loaded: devices have no files, and no program can use them",
			Seen: "/sys/class/infiniband_verbs does not exist, and neither does /sys/module/ib_uverbs",
			Mend: "modprobe ib_uverbs",
		}}},
		{"a device of another name", healthyRoCE, nil, func(n *Node) { n.Device = "mlx5_3" }, []Finding{{
			Check: "devices", Severity: Fault, Object: "mlx5_3", What: "there is no device of that name",
			Seen: "netlink and /sys/class/infiniband list mlx5_0", Mend: "verbs doctor -d mlx5_0",
		}}},
		{"nothing in /sys", bareMachine, func(m *machine) { m.remove("sys") }, nil, []Finding{{
			Check: "devices", Severity: Fault, What: "there is no RDMA device",
			Seen: "RDMA netlink is not there, as ib_core is not loaded; /sys is not mounted, so that adapters without a device were not seen",
			Mend: "modprobe rdma_rxe\nrdma link add rxe0 type rxe netdev eth7",
		}, {
			Check: "system", Severity: Note, What: "/sys is not mounted: adapters without a driver, and how devices are attached and set up, were not looked at",
			Seen: "/sys is empty, or does not exist", Mend: "mount -t sysfs sysfs /sys # or run verbs doctor outside of this container or chroot",
		}}},
		{"of /proc the processes alone", bareMachine, func(m *machine) { m.remove("proc/modules", "proc/sys", "lib") }, nil, []Finding{{
			Check: "devices", Severity: Fault, What: "there is no RDMA device", Seen: nobodyListsAny,
			Mend: "modprobe rdma_rxe\nrdma link add rxe0 type rxe netdev eth7",
		}}},
		{"another system", blankDarwin, nil, func(n *Node) { n.System = "darwin" }, []Finding{{
			Check: "system", Severity: Fault, What: "RDMA verbs need Linux", Seen: "this is darwin",
			Mend: "run it on Linux; package uverbs/sim and verbs demo work everywhere",
		}}},
	})
}

func blankDarwin(t testing.TB) *machine {
	m := blank(t, "")
	clear(m.files)
	return m
}

// Without /proc and /sys nobody knows what is loaded, or that a kernel loads no modules.
func TestNothingMounted(t *testing.T) {
	m := bareMachine(t)
	m.remove("proc", "sys", "lib")
	r := examined(t, m.node())
	var what []string
	for _, f := range r.Findings {
		what = append(what, f.What)
	}
	if want := []string{
		"there is no RDMA device",
		"/proc is not mounted: the limits of the process, its control groups and the kernel's modules were not looked at",
		"/sys is not mounted: adapters without a driver, and how devices are attached and set up, were not looked at",
	}; !slices.Equal(what, want) {
		t.Errorf("found %q, want %q", what, want)
	}
	if mend := r.Findings[0].Mend; mend != "modprobe rdma_rxe\nrdma link add rxe0 type rxe netdev eth7" {
		t.Errorf("the cure is %q", mend)
	}
	if got := m.node().modules().state("rdma_rxe"); got != moduleHidden {
		t.Errorf("rdma_rxe is %v", got)
	}
	n := m.node()
	n.PID = 7
	if err := n.Validate(); err == nil || err.Error() != "process 7 cannot be looked at, as /proc is not mounted: mount -t proc proc /proc" {
		t.Error(err)
	}
}

// What is built in is not missing.
func TestBuiltInModules(t *testing.T) {
	m := healthyRoCE(t)
	m.put("proc/modules", "", "lib/modules/"+m.release+"/modules.builtin", "kernel/drivers/infiniband/core/ib_core.ko\nkernel/drivers/infiniband/core/ib_uverbs.ko\nkernel/drivers/infiniband/hw/mlx5/mlx5_ib.ko\n")
	m.remove("sys/module/mlx5_ib")
	if got := m.node().modules().state("mlx5_ib"); got != moduleBuiltIn {
		t.Errorf("mlx5_ib is %v", got)
	}
	finds(t, m.node())
}
