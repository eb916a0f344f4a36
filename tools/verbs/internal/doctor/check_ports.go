package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/uverbs/nldev"
)

// checkPorts looks at the states of the ports.
var checkPorts = Check{
	Name:  "ports",
	About: "the states of the ports, and of the network devices below them",
	After: []string{"system", "modules", "devices", "namespace"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		var found []Finding
		active := n.anyPort(func(_ *Device, p *Port) bool { return p.State == nldev.PortActive })
		for _, d := range n.devices() {
			for _, p := range d.Ports {
				n.saw("%s: %v, %v, %s", d.Object(&p), p.State, p.PhysState, orUnknown(p.LinkLayer))
				f, ok := n.checkPort(&d, &p)
				if !ok {
					continue
				}
				f.Object = d.Object(&p)
				if active && n.Device == "" {
					// Others do the work.
					if !n.meant(&d, &p) {
						n.saw("%s: not counted, as nobody seems to use it: %s", f.Object, f.What)
						continue
					}
					f.Severity = min(f.Severity, Warning)
				}
				found = append(found, f)
			}
		}
		return found, nil
	},
}

// anyPort tells whether any port of the machine has something.
func (n *Node) anyPort(has func(*Device, *Port) bool) bool {
	for _, d := range n.devices() {
		for _, p := range d.Ports {
			if has(&d, &p) {
				return true
			}
		}
	}
	return false
}

// meant tells whether somebody has set the port up to be used: on most machines some ports are
// down and without cable.
func (n *Node) meant(d *Device, p *Port) bool {
	if fabric(d, p) {
		return p.State != nldev.PortDown
	}
	i, _ := n.netdev(p.Netdev)
	return slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool { return a.Addr().IsGlobalUnicast() })
}

// roce tells whether the port has addresses of IP for its own.
func roce(d *Device, p *Port) bool {
	return d.Protocol == "roce" || d.Protocol == "" && p.LinkLayer == "Ethernet"
}

// fabric tells whether a subnet manager rules over the port.
func fabric(d *Device, p *Port) bool {
	return p.LinkLayer == "InfiniBand" || p.LinkLayer == "" && (d.Protocol == "ib" || d.Protocol == "opa")
}

func (n *Node) checkPort(d *Device, p *Port) (Finding, bool) {
	f := Finding{Severity: Fault, Seen: fmt.Sprintf("RDMA netlink, PORT_GET: state %v, physical state %v", p.State, p.PhysState)}
	if d.Index < 0 {
		f.Seen = fmt.Sprintf("/%s/state is %v, phys_state %v", d.PortDir(p), p.State, p.PhysState)
	}
	switch {
	case p.State == nldev.PortActive:
		return n.withoutManager(d, p)
	case !fabric(d, p):
		return n.checkEthernet(d, p, f)
	case p.State == nldev.PortInit:
		f.What = "no subnet manager has configured the port, so that nothing can be sent"
		f.Seen += fmt.Sprintf(", SM LID %d", p.SMLID)
		f.Mend = "systemctl start opensm # on one machine of the fabric, or switch on the switch's own subnet manager"
	case p.State == nldev.PortArmed:
		f.Severity = Warning
		f.What = "the subnet manager has not finished with the port"
		f.Mend = "sminfo # says which manager it is and whether it lives"
	case p.PhysState == nldev.PhysDisabled:
		f.What = "the port is switched off"
		f.Mend = fmt.Sprintf("ibportstate -C %s -P %d -D 0 %d enable", d.Name, p.Index, p.Index)
	case p.PhysState == nldev.PhysPolling, p.PhysState == nldev.PhysSleep, p.PhysState == 0:
		f.What = "the port has no link: there is no cable, or nobody at its other end"
		f.Mend = fmt.Sprintf("plug the cable in, or enable the switch's port (ibportstate -C %s -P %d -D 0 %d shows this end)", d.Name, p.Index, p.Index)
	default:
		f.What = "the port is not active"
		f.Mend = fmt.Sprintf("ibportstate -C %s -P %d -D 0 %d", d.Name, p.Index, p.Index)
	}
	return f, true
}

// withoutManager finds an active port of InfiniBand that has no address any more.
func (n *Node) withoutManager(d *Device, p *Port) (Finding, bool) {
	if !fabric(d, p) || p.LID != 0 || d.Protocol == "opa" {
		return Finding{}, false
	}
	return Finding{
		Severity: Warning,
		What:     "the port is active and has no LID",
		Seen:     fmt.Sprintf("RDMA netlink, PORT_GET: state %v, LID 0, SM LID %d", p.State, p.SMLID),
		Mend:     "systemctl restart opensm # on the machine that runs it",
	}, true
}

// cutsOff is said of commands that interrupt a network device that works.
const cutsOff = "ends connections over it and takes routes away: not from afar over the same network device"

// again is the command that sets a network device up anew.
func again(netdev string) string {
	return fmt.Sprintf("ip link set %s down && ip link set %s up # %s", netdev, netdev, cutsOff)
}

// checkEthernet looks for the reason in the network device.
func (n *Node) checkEthernet(d *Device, p *Port, f Finding) (Finding, bool) {
	if p.Netdev == "" {
		f.What = "the port is down, and has no network device in this network namespace"
		f.Mend = "rdma link show " + d.Object(p)
		return f, true
	}
	dir := "sys/class/net/" + p.Netdev
	operstate, _ := n.line(dir + "/operstate")
	i, ok := n.netdev(p.Netdev)
	f.Seen += fmt.Sprintf("; /%s/operstate is %s", dir, orUnknown(operstate))
	switch {
	case !ok:
		f.What = fmt.Sprintf("the port is down, and its network device %s is not in this network namespace", p.Netdev)
		f.Mend = "ip link show " + p.Netdev
	case !i.Up:
		f.What = fmt.Sprintf("the port is down because its network device %s is", p.Netdev)
		f.Seen += ", and it is not set up"
		f.Mend = fmt.Sprintf("ip link set %s up", p.Netdev)
	case !i.Running || operstate == "down" || strings.HasPrefix(operstate, "lower"):
		f.What = fmt.Sprintf("the port is down because its network device %s has no carrier: there is no cable, or nobody at its other end", p.Netdev)
		f.Mend = fmt.Sprintf("ethtool %s # shows the link; plug the cable in, or enable the switch's port", p.Netdev)
	default:
		f.What = fmt.Sprintf("the port is down although its network device %s is up", p.Netdev)
		f.Mend = again(p.Netdev)
	}
	return f, true
}
