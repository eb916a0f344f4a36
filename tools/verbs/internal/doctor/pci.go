package doctor

import (
	"path"
	"strings"
)

// A pciFunction is a network adapter that can do RDMA.
type pciFunction struct {
	addr   string // 0000:3b:00.0
	kind   adapter
	driver string   // that is bound to it, "" if none
	rdma   []string // the RDMA devices that it has
	// virtual tells whether it is a virtual function on the machine that has the
	// physical one.
	virtual bool
}

// String is the address, with what it is.
func (f pciFunction) String() string { return f.addr + " (" + f.kind.name + ")" }

// An adapter is a family of network adapters that can do RDMA.
type adapter struct {
	name   string
	vendor string
	// device is the beginning of the device number.
	device string
	// driver is the driver of the network device, and rdma the module that
	// makes the RDMA device.
	driver, rdma string
	// sure tells whether all of them can. Of others it is not known here, and
	// not complained about.
	sure bool
}

// adapters are the families.
var adapters = []adapter{
	{"ConnectX-2", "0x15b3", "0x67", "mlx4_core", "mlx4_ib", true},
	{"ConnectX-3", "0x15b3", "0x100", "mlx4_core", "mlx4_ib", true},
	{"ConnectX", "0x15b3", "0x101", "mlx5_core", "mlx5_ib", true},
	{"ConnectX", "0x15b3", "0x102", "mlx5_core", "mlx5_ib", true},
	{"BlueField", "0x15b3", "0xa2d", "mlx5_core", "mlx5_ib", true},
	{"Intel E810", "0x8086", "0x159", "ice", "irdma", false},
	{"Broadcom NetXtreme-E", "0x14e4", "0x17", "bnxt_en", "bnxt_re", false},
	{"Chelsio T5 or T6", "0x1425", "0x", "cxgb4", "iw_cxgb4", false},
	{"QLogic FastLinQ", "0x1077", "0x8070", "qede", "qedr", false},
	{"Elastic Fabric Adapter", "0x1d0f", "0xefa", "efa", "efa", true},
	{"HiSilicon HNS", "0x19e5", "0xa222", "hns3", "hns_roce_hw_v2", true},
	{"Alibaba elastic RDMA", "0x1ded", "0x107f", "erdma", "erdma", true},
	{"VMware paravirtual RDMA", "0x15ad", "0x0820", "vmw_pvrdma", "vmw_pvrdma", true},
	{"Pensando Ionic", "0x1dd8", "0x1002", "ionic", "ionic_rdma", false},
}

const pciDevices = "sys/bus/pci/devices"

// maxPCI is more functions than machines have, those for virtual machines included.
const maxPCI = 1 << 16

// pciFunctions lists the adapters on the PCI bus that can do RDMA.
func (n *Node) pciFunctions() []pciFunction {
	addrs, _ := n.names(pciDevices)
	var all []pciFunction
	for _, addr := range addrs[:min(len(addrs), maxPCI)] {
		dir := path.Join(pciDevices, addr)
		vendor, errVendor := n.line(dir + "/vendor")
		device, errDevice := n.line(dir + "/device")
		class, errClass := n.line(dir + "/class")
		if errVendor != nil || errDevice != nil || errClass != nil {
			continue
		}
		// Network controllers, of Ethernet or InfiniBand; EFA is one of a
		// kind of its own.
		if !strings.HasPrefix(class, "0x02") && vendor != "0x1d0f" {
			continue
		}
		for _, a := range adapters {
			if vendor != a.vendor || !strings.HasPrefix(device, a.device) {
				continue
			}
			f := pciFunction{addr: addr, kind: a}
			if target, err := n.link(dir + "/driver"); err == nil {
				f.driver = path.Base(target)
			}
			f.rdma, _ = n.names(dir + "/infiniband")
			_, errPhysical := n.link(dir + "/physfn")
			f.virtual = errPhysical == nil
			all = append(all, f)
			break
		}
	}
	return all
}
