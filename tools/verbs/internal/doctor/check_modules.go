package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// checkModules looks at the kernel's modules, and for adapters whose module is missing.
var checkModules = Check{
	Name:  "modules",
	About: "the kernel modules of RDMA, and the adapters on the PCI bus that need them",
	After: []string{"system"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		if n.System != "linux" {
			return nil, nil
		}
		m := n.modules()
		for _, name := range []string{"ib_core", "ib_uverbs", "rdma_rxe"} {
			n.saw("%s is %v", name, m.state(name))
		}
		n.saw("rdma_ucm is %v (programs of librdmacm need it, and goverbs does not)", m.state("rdma_ucm"))
		found := n.adaptersWithoutDevice(m)
		if f, ok := n.withoutVerbs(m); ok {
			found = append(found, f)
		}
		return found, nil
	},
}

// withoutVerbs finds devices that have no verbs files because nobody makes them.
func (n *Node) withoutVerbs(m *kernelModules) (Finding, bool) {
	devices := n.devices()
	if s := m.state("ib_uverbs"); len(devices) == 0 || s.running() || s == moduleHidden || n.exists(classFiles) {
		return Finding{}, false
	}
	for _, d := range devices {
		if d.Uverbs != "" {
			return Finding{}, false
		}
	}
	return Finding{
		Severity: Fault,
		What:     "the module ib_uverbs is not loaded: devices have no files, and no program can use them",
		Seen:     "/sys/class/infiniband_verbs does not exist, and neither does /sys/module/ib_uverbs",
		Mend:     m.load("ib_uverbs"),
	}, true
}

// adaptersWithoutDevice finds adapters that could do RDMA, did somebody load their module.
func (n *Node) adaptersWithoutDevice(m *kernelModules) []Finding {
	devices, _ := n.known.devices()
	object, severity := func(f pciFunction) string { return f.addr }, Warning
	if len(devices) == 0 {
		// Then it is the cause of all that follows.
		object, severity = func(pciFunction) string { return "" }, Fault
	}
	exclusive := false
	if s, err := n.settings(); err == nil {
		exclusive = !s.NetnsShared
	}
	var found []Finding
	all := n.pciFunctions()
	for _, f := range all {
		n.saw("adapter %v: the driver is %s, the RDMA device %s", f, orNone(f.driver), orNone(strings.Join(f.rdma, " ")))
		dir := "/" + pciDevices + "/" + f.addr
		switch {
		case len(f.rdma) > 0 || !f.kind.sure && len(devices) > 0:
		case f.virtual:
			// Made to be given away, and often left without driver or RDMA on
			// purpose. The physical function tells what is wrong with both.
			n.saw("%s is a virtual function, which may be meant for others", f.addr)
		case f.driver == "":
			found = append(found, Finding{
				Severity: severity, Object: object(f),
				What: fmt.Sprintf("no driver has taken the adapter %v", f),
				Seen: dir + "/driver does not exist",
				Mend: m.load(f.kind.driver),
			})
		case f.driver != f.kind.driver:
			// Given to a virtual machine, or to a program of its own. That is
			// meant so where others do the work.
			if len(devices) > 0 {
				continue
			}
			found = append(found, Finding{
				Severity: severity, Object: object(f),
				What: fmt.Sprintf("%s has taken the adapter %v instead of %s", f.driver, f, f.kind.driver),
				Seen: fmt.Sprintf("%s/driver leads to %s", dir, f.driver),
				Mend: fmt.Sprintf("echo %s > /sys/bus/pci/drivers/%s/unbind # takes it from the virtual machine or the program that has it\necho %s > /sys/bus/pci/drivers/%s/bind",
					f.addr, f.driver, f.addr, f.kind.driver),
			})
		case !m.state(f.kind.rdma).running():
			found = append(found, Finding{
				Severity: severity, Object: object(f),
				What: fmt.Sprintf("the adapter %v has no RDMA device: its module %s is %v", f, f.kind.rdma, m.state(f.kind.rdma)),
				Seen: fmt.Sprintf("%s/infiniband does not exist, and neither does /sys/module/%s", dir, f.kind.rdma),
				Mend: m.load(f.kind.rdma),
			})
		case exclusive:
			n.saw("%s may have given its RDMA device to another network namespace", f.addr)
		case n.bonded(&f, all):
			n.saw("%s has its RDMA device in common with the other port of its adapter", f.addr)
		case f.kind.driver == "mlx5_core":
			found = append(found, Finding{
				Severity: severity, Object: object(f),
				What: fmt.Sprintf("the adapter %v has no RDMA device although its module is loaded: RoCE is switched off for it", f),
				Seen: fmt.Sprintf("%s/infiniband does not exist, and %s is %v", dir, f.kind.rdma, m.state(f.kind.rdma)),
				Mend: fmt.Sprintf("devlink dev param set pci/%s name enable_roce value true cmode driverinit\ndevlink dev reload pci/%s # %s", f.addr, f.addr, cutsOff),
			})
		default:
			found = append(found, Finding{
				Severity: severity, Object: object(f),
				What: fmt.Sprintf("the adapter %v has no RDMA device although its module is loaded: the kernel's log says why", f),
				Seen: fmt.Sprintf("%s/infiniband does not exist, and %s is %v", dir, f.kind.rdma, m.state(f.kind.rdma)),
				Mend: "dmesg | grep -i " + f.kind.rdma,
			})
		}
	}
	return found
}

// bonded tells whether an adapter's other port has the RDMA device of both, as with a bond of
// the two (RoCE LAG): this one's network device has a master then.
func (n *Node) bonded(f *pciFunction, all []pciFunction) bool {
	slot, _, _ := strings.Cut(f.addr, ".")
	if !slices.ContainsFunc(all, func(o pciFunction) bool { return len(o.rdma) > 0 && strings.HasPrefix(o.addr, slot+".") }) {
		return false
	}
	dir := pciDevices + "/" + f.addr + "/net"
	netdevs, _ := n.names(dir)
	return slices.ContainsFunc(netdevs, func(name string) bool {
		_, err := n.link(dir + "/" + name + "/master")
		return err == nil
	})
}

// noDevice is what there is to say of a machine without any device, and without an adapter
// that should have one.
func (n *Node) noDevice() Finding {
	m := n.modules()
	f := Finding{Severity: Fault, What: "there is no RDMA device"}
	c, err := n.dial()
	switch {
	case errors.Is(err, nldev.ErrNoRDMA):
		f.Seen = "RDMA netlink is not there, as ib_core is not loaded"
	case err != nil:
		f.Seen = fmt.Sprintf("RDMA netlink: %s", printable.Error(err))
	default:
		c.Close()
		f.Seen = "RDMA netlink lists none"
	}
	const noAdapter = "; no adapter on the PCI bus is known to do RDMA"
	switch {
	case n.exists(classDevices):
		f.Seen += "; /sys/class/infiniband is empty" + noAdapter
	case n.sysfs():
		f.Seen += "; /sys/class/infiniband does not exist" + noAdapter
	default:
		f.Seen += "; /sys is not mounted, so that adapters without a device were not seen"
	}
	if s, err := n.settings(); err == nil && !s.NetnsShared {
		f.What = "there is no RDMA device in this network namespace"
		f.Seen += "; each device belongs to one network namespace, as netns mode is exclusive"
		f.Mend = "rdma dev set DEVICE netns PID # in the namespace that has the device; PID is a process of this one"
		return f
	}
	netdev := "NETDEV"
	if all, err := n.interfaces(); err == nil {
		for _, i := range all {
			if i.Up && i.Running && i.Name != "lo" && len(i.Addrs) > 0 {
				netdev = i.Name
				break
			}
		}
	}
	f.Mend = "rdma link add rxe0 type rxe netdev " + netdev
	if !m.state("rdma_rxe").running() {
		f.Mend = m.load("rdma_rxe") + "\n" + f.Mend
	}
	return f
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
