package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/uverbs/nldev"
)

// checkGIDs looks at the addresses of RoCE ports.
var checkGIDs = Check{
	Name:  "gids",
	About: "the GID tables of RoCE ports, against the addresses of their network devices",
	After: []string{"system", "modules", "devices", "namespace", "ports"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		var found []Finding
		var errs []error
		var tables []portGIDs
		reachable := false
		for _, d := range n.devices() {
			for _, p := range d.Ports {
				if !roce(&d, &p) {
					continue
				}
				t, err := n.gids(&d, &p)
				if err != nil {
					errs = append(errs, unseen(d.Object(&p), err))
					continue
				}
				n.saw("%s: %s", d.Object(&p), gidsText(t.gids))
				reachable = reachable || p.State == nldev.PortActive && slices.ContainsFunc(t.gids, func(g gid) bool { return g.v2 && !g.linkLocal() })
				tables = append(tables, t)
			}
		}
		for _, t := range tables {
			for _, f := range n.checkTable(&t) {
				f.Object = t.device.Object(&t.port)
				if reachable && n.Device == "" && !n.meant(&t.device, &t.port) {
					n.saw("%s: not counted, as nobody seems to use it: %s", f.Object, f.What)
					continue
				}
				found = append(found, f)
			}
			found = append(found, n.withoutGID(&t)...)
		}
		return found, errors.Join(errs...)
	},
}

// gid is an entry of a table.
type gid struct {
	index  int
	addr   netip.Addr // IPv4 addresses as such
	v2     bool
	netdev string
}

func (g *gid) linkLocal() bool { return g.addr.IsLinkLocalUnicast() }

// portGIDs is the table of a port.
type portGIDs struct {
	device Device
	port   Port
	gids   []gid
	from   string // how it was read
	size   int    // 0 if not known
}

// maxGIDs is more than tables have.
const maxGIDs = 4096

// gids reads the table of a port from /sys, or asks the device where /sys does not show it.
func (n *Node) gids(d *Device, p *Port) (t portGIDs, err error) {
	t = portGIDs{device: *d, port: *p}
	dir := d.PortDir(p)
	if dir == "" || !n.exists(dir+"/gids") {
		a, err := n.query(d.Name)
		if err != nil {
			return t, err
		}
		t.from = "QUERY_GID_TABLE"
		for _, e := range a.GIDs {
			if e.Port == p.Index {
				t.gids = append(t.gids, gid{index: e.Index, addr: netip.AddrFrom16(e.GID).Unmap(), v2: e.Type.String() == "RoCE v2"})
			}
		}
		return t, nil
	}
	t.from = "/" + dir + "/gids"
	names, err := n.names(dir + "/gids")
	if err != nil {
		return t, err
	}
	t.size = len(names)
	for _, name := range names[:min(len(names), maxGIDs)] {
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 {
			continue
		}
		text, err := n.line(dir + "/gids/" + name)
		if err != nil {
			continue
		}
		addr, err := parseGID(text)
		if err != nil {
			return t, fmt.Errorf("/%s/gids/%s: %w", dir, name, err)
		}
		if addr.IsUnspecified() {
			continue // an empty place, whose other files give EINVAL
		}
		kind, _ := n.line(dir + "/gid_attrs/types/" + name)
		netdev, _ := n.line(dir + "/gid_attrs/ndevs/" + name)
		t.gids = append(t.gids, gid{index: i, addr: addr, v2: kind == "RoCE v2", netdev: netdev})
	}
	slices.SortFunc(t.gids, func(a, b gid) int { return a.index - b.index })
	return t, nil
}

// parseGID reads eight groups of four hexadecimal digits.
func parseGID(s string) (netip.Addr, error) {
	var b [16]byte
	groups := strings.Split(s, ":")
	if len(groups) != 8 {
		return netip.Addr{}, fmt.Errorf("%.60q is no GID", s)
	}
	for i, g := range groups {
		v, err := strconv.ParseUint(g, 16, 16)
		if err != nil || len(g) != 4 {
			return netip.Addr{}, fmt.Errorf("%.60q is no GID", s)
		}
		binary.BigEndian.PutUint16(b[2*i:], uint16(v))
	}
	return netip.AddrFrom16(b).Unmap(), nil
}

func gidsText(gids []gid) string {
	var all []string
	for _, g := range gids[:min(len(gids), 16)] {
		kind := "v1"
		if g.v2 {
			kind = "v2"
		}
		all = append(all, fmt.Sprintf("%d %v %s", g.index, g.addr, kind))
	}
	if len(all) == 0 {
		return "no GID"
	}
	if len(gids) > len(all) {
		all = append(all, fmt.Sprintf("and %d more", len(gids)-len(all)))
	}
	return strings.Join(all, ", ")
}

// checkTable finds a table by which nobody, or hardly anybody, can be reached.
func (n *Node) checkTable(t *portGIDs) []Finding {
	netdev := t.port.Netdev
	if netdev == "" {
		netdev = "NETDEV"
	}
	give := fmt.Sprintf("ip address add ADDRESS/LENGTH dev %s", netdev)
	v2 := slices.ContainsFunc(t.gids, func(g gid) bool { return g.v2 })
	switch {
	case len(t.gids) == 0:
		f := Finding{
			Severity: Fault, What: "its GID table is empty: queue pairs cannot be connected",
			Seen: t.from + ": no entry", Mend: give,
		}
		if i, ok := n.netdev(t.port.Netdev); ok && !i.Up {
			f.Mend = fmt.Sprintf("ip link set %s up\n%s", netdev, give)
		}
		return []Finding{f}
	case !v2:
		return []Finding{{
			Severity: Fault,
			What:     "it has no GID of RoCE v2, which is what goverbs uses unless told otherwise",
			Seen:     fmt.Sprintf("%s: %s; none in gid_attrs/types beside it is RoCE v2", t.from, gidsText(t.gids)),
			Mend:     give + "\nmlxconfig -d PCI query | grep -i roce # whether the firmware offers RoCE v2",
		}}
	case !slices.ContainsFunc(t.gids, func(g gid) bool { return !g.linkLocal() }):
		i, _ := n.netdev(t.port.Netdev)
		if slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool { return a.Addr().IsGlobalUnicast() }) {
			return nil // there are addresses, and that they are missing is told for each
		}
		return []Finding{{
			Severity: Warning,
			What:     "it has only link-local GIDs: peers behind a router, and those that are asked for by IPv4 address, cannot be reached",
			Seen:     fmt.Sprintf("%s: %s; %s has no other address", t.from, gidsText(t.gids), netdev),
			Mend:     give,
		}}
	}
	return nil
}

// withoutGID finds addresses of the network device that the table lacks.
func (n *Node) withoutGID(t *portGIDs) []Finding {
	i, ok := n.netdev(t.port.Netdev)
	if !ok || !i.Up || len(t.gids) == 0 {
		return nil
	}
	var found []Finding
	for _, a := range i.Addrs {
		if !a.Addr().IsGlobalUnicast() || slices.ContainsFunc(t.gids, func(g gid) bool { return g.addr == a.Addr() }) {
			continue
		}
		f := Finding{
			Severity: Fault, Object: t.device.Object(&t.port),
			What: fmt.Sprintf("the address %v of %s has no GID: peers that use it cannot be connected", a.Addr(), i.Name),
			Seen: fmt.Sprintf("%s: %s", t.from, gidsText(t.gids)),
			Mend: fmt.Sprintf("ip address del %v dev %s && ip address add %v dev %s # %s", a, i.Name, a, i.Name, cutsOff),
		}
		if t.size > 0 && len(t.gids) >= t.size {
			f.What = fmt.Sprintf("the address %v of %s has no GID, as the table of %d is full", a.Addr(), i.Name, t.size)
			f.Mend = fmt.Sprintf("ip address show dev %s # take away addresses that are not needed", i.Name)
		}
		found = append(found, f)
	}
	return found
}
