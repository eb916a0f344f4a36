package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// checkNamespace looks at which devices, and network devices of theirs, belong to the
// network namespace.
var checkNamespace = Check{
	Name:  "namespace",
	About: "whether the devices and their network devices are in this network namespace",
	After: []string{"system", "modules", "devices"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		devices := n.devices()
		if len(devices) == 0 {
			return nil, nil
		}
		s, err := n.settings()
		if err != nil {
			return nil, err // without netlink there is no telling
		}
		mode := "exclusive"
		if s.NetnsShared {
			mode = "shared"
		}
		n.saw("RDMA netlink, SYS_GET: the netns mode is %s", mode)
		var found []Finding
		for _, d := range devices {
			if d.Index < 0 {
				found = append(found, Finding{
					Severity: Fault, Object: d.Name,
					What: "it belongs to another network namespace, and cannot be used from this one",
					Seen: fmt.Sprintf("/%s exists, and RDMA netlink does not list it here; netns mode is %s", d.Dir, mode),
					Mend: fmt.Sprintf("rdma dev set %s netns PID # where it is; PID is a process of this namespace", d.Name),
				})
				continue
			}
			for _, p := range d.Ports {
				if f, ok := n.checkNetdev(&d, &p, mode); ok {
					found = append(found, f)
				}
			}
		}
		return found, nil
	},
}

// checkNetdev finds a port whose network device is not in this namespace. Such a port has no
// address here: the kernel looks a GID's network device up in the caller's namespace.
func (n *Node) checkNetdev(d *Device, p *Port, mode string) (Finding, bool) {
	if fabric(d, p) {
		return Finding{}, false
	}
	if p.Netdev != "" {
		n.saw("%s: the network device is %s", d.Object(p), p.Netdev)
		return Finding{}, false
	}
	// Soft devices name theirs, and the GID table does, in whichever namespace it is.
	netdev, from := "", ""
	for _, file := range []string{d.Dir + "/parent", n.firstNetdev(d, p)} {
		if name, err := n.line(file); err == nil && name != "" {
			netdev, from = name, file
			break
		}
	}
	if netdev == "" {
		n.saw("%s: no network device", d.Object(p))
		return Finding{}, false
	}
	if name, addr, ok := n.upperGID(d, p); ok {
		n.saw("%s: the network device %s is in another network namespace, and %s, which is above it, has %v here", d.Object(p), netdev, name, addr)
		return Finding{}, false
	}
	f := Finding{
		Severity: Fault, Object: d.Object(p),
		What: fmt.Sprintf("its network device %s is in another network namespace: nothing can be connected from here", netdev),
		Seen: fmt.Sprintf("RDMA netlink, PORT_GET: no network device; /%s is %s; netns mode is %s", from, netdev, mode),
		Mend: fmt.Sprintf("ip link set %s netns PID # where it is; PID is a process of this namespace", netdev),
	}
	switch kind := n.container().kind; {
	case d.Driver == "rxe" || d.Driver == "siw":
		f.Mend += fmt.Sprintf("\nrdma link add %s type %s netdev %s # in this namespace: a soft device goes when its network device moves", d.Name, d.Driver, netdev)
	case mode == "exclusive":
		f.Mend += fmt.Sprintf("\nrdma dev set %s netns PID", d.Name)
	case kind == "docker" || kind == "podman":
		f.Mend = kind + " run --network host ..."
	case kind == "kubernetes":
		f.Mend = "hostNetwork: true, or a second interface on " + netdev + " (Multus with macvlan, ipvlan or SR-IOV)"
	}
	return f, true
}

// upperGID finds an entry of the GID table that is an address of a network device of this
// namespace: one above the port's own, such as a macvlan or a VLAN that was given to a container.
func (n *Node) upperGID(d *Device, p *Port) (netdev string, addr netip.Addr, ok bool) {
	dir := d.PortDir(p)
	if dir == "" || !n.exists(dir+"/gids") {
		return "", addr, false // to ask the device would be to open it, which comes later
	}
	t, err := n.gids(d, p)
	if err != nil {
		return "", addr, false
	}
	for _, g := range t.gids {
		i, ok := n.netdev(g.netdev)
		// Other namespaces have network devices of the same name.
		if ok && slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool { return a.Addr() == g.addr }) {
			return i.Name, g.addr, true
		}
	}
	return "", addr, false
}

// firstNetdev is the file of the first entry of the GID table that names a network device.
func (n *Node) firstNetdev(d *Device, p *Port) string {
	dir := d.PortDir(p) + "/gid_attrs/ndevs"
	names, _ := n.names(dir)
	for _, name := range names[:min(len(names), maxGIDs)] {
		if s, err := n.line(dir + "/" + name); err == nil && s != "" {
			return dir + "/" + name
		}
	}
	return dir + "/0"
}
