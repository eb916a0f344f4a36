package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// roceHeaders is what the kernel takes off a network device's MTU for the headers of RoCE
// before it rounds down (iboe_get_mtu in rdma/ib_addr.h): 40 for the GRH or IP, 8 for UDP, 12
// for BTH, 4 for XRC, 28 for atomics, 4 for ICRC.
const roceHeaders = 96

// leastHeaders is what no packet of RoCE goes without: 20 for IP, 8 for UDP, 12 for BTH, 4 for
// ICRC. Some drivers take off less than the kernel's function does.
const leastHeaders = 44

// pathMTU is the largest path MTU, in bytes, that fits into packets of a network device.
func pathMTU(mtu int) int {
	for _, m := range []int{4096, 2048, 1024, 512, 256} {
		if mtu-roceHeaders >= m {
			return m
		}
	}
	return 0
}

// checkMTU looks at how much data a packet carries.
var checkMTU = Check{
	Name:  "mtu",
	About: "the active path MTU of each port, against the MTU of its network device",
	After: []string{"system", "modules", "devices", "files", "rdmacgroup", "namespace", "ports"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		var found []Finding
		var errs []error
		for _, d := range n.devices() {
			a, err := n.query(d.Name)
			if err != nil {
				errs = append(errs, unseen(d.Name, err))
				continue
			}
			for _, attr := range a.Ports {
				for _, p := range d.Ports {
					if p.Index != attr.Port {
						continue
					}
					if f, ok := n.checkPortMTU(&d, &p, &attr); ok {
						f.Object = d.Object(&p)
						found = append(found, f)
					}
				}
			}
		}
		return found, errors.Join(errs...)
	},
}

func (n *Node) checkPortMTU(d *Device, p *Port, attr *uverbs.PortAttr) (f Finding, found bool) {
	f.Seen = fmt.Sprintf("QUERY_PORT: active MTU %d, largest %d", attr.ActiveMTU, attr.MaxMTU)
	if fabric(d, p) {
		n.saw("%s: %s", d.Object(p), f.Seen)
		if attr.State != uverbs.PortActive || attr.ActiveMTU >= attr.MaxMTU || attr.ActiveMTU <= 0 {
			return f, false
		}
		f.Severity = Note
		f.What = fmt.Sprintf("packets carry %d bytes, and the port could do %d", attr.ActiveMTU, attr.MaxMTU)
		f.Mend = "set mtu=5 (4096 bytes) for the partition in opensm's partitions.conf, and the switch's ports likewise"
		return f, true
	}
	i, ok := n.netdev(p.Netdev)
	if !ok || !roce(d, p) {
		n.saw("%s: %s; no network device of RoCE here", d.Object(p), f.Seen)
		return f, false
	}
	f.Seen += fmt.Sprintf("; %s has an MTU of %d", i.Name, i.MTU)
	n.saw("%s: %s", d.Object(p), f.Seen)
	could := min(pathMTU(i.MTU), attr.MaxMTU)
	// A soft device is not chosen for its speed, and takes what its network has.
	soft := d.Driver == "rxe"
	raise := fmt.Sprintf("ip link set %s mtu %d # on both ends, and on the switch", i.Name, 4096+roceHeaders+8)
	switch {
	case attr.ActiveMTU <= 0 || attr.State != uverbs.PortActive:
		return f, false
	case attr.ActiveMTU < could:
		f.Severity = Warning
		f.What = fmt.Sprintf("packets carry %d bytes, and the network device's MTU of %d has room for %d: the port did not follow it", attr.ActiveMTU, i.MTU, could)
		f.Mend = again(i.Name)
	case attr.ActiveMTU+leastHeaders > i.MTU:
		f.Severity = Fault
		f.What = fmt.Sprintf("packets carry %d bytes, more than the network device's MTU of %d has room for: they are lost", attr.ActiveMTU, i.MTU)
		f.Mend = raise
	case attr.ActiveMTU < 1024:
		f.Severity = Warning
		f.What = fmt.Sprintf("packets carry %d bytes only, as the network device's MTU is %d", attr.ActiveMTU, i.MTU)
		f.Mend = fmt.Sprintf("ip link set %s mtu 1500", i.Name)
		if !soft {
			f.Mend = raise
		}
	case attr.ActiveMTU < attr.MaxMTU && !soft:
		f.Severity = Note
		f.What = fmt.Sprintf("packets carry %d bytes, as the network device's MTU is %d; with %d they would carry %d", attr.ActiveMTU, i.MTU, 4096+roceHeaders+8, attr.MaxMTU)
		f.Mend = raise
	default:
		return f, false
	}
	return f, true
}
