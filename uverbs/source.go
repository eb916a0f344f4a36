package uverbs

import (
	"fmt"
	"net/netip"
)

// Source says which local GID packets come from. The zero value is the default
// of QPOptions.Source.
type Source struct {
	addr  netip.Addr
	port  int
	index int
	how   sourceKind
}

type sourceKind uint8

const (
	sourceDefault sourceKind = iota
	sourceAddr
	sourceGID
	sourcePort
)

// FromAddr is the GID of an IP address of this host.
func FromAddr(a netip.Addr) Source { return Source{addr: a.Unmap(), how: sourceAddr} }

// FromGID is the entry at index of the port's GID table.
func FromGID(port, index int) Source { return Source{port: port, index: index, how: sourceGID} }

// FromPort is the default GID of one port.
func FromPort(port int) Source { return Source{port: port, how: sourcePort} }

// String describes the source in words.
func (s Source) String() string {
	switch s.how {
	case sourceAddr:
		return "address " + s.addr.String()
	case sourceGID:
		return fmt.Sprintf("GID index %d of port %d", s.index, s.port)
	case sourcePort:
		return fmt.Sprintf("port %d", s.port)
	}
	return "the default"
}

// resolve finds the GID entry of a source.
func (d *Device) resolve(s Source) (GIDEntry, error) {
	table, err := d.GIDTable()
	if err != nil {
		return GIDEntry{}, err
	}
	var best GIDEntry
	found := false
	for _, e := range table {
		switch s.how {
		case sourceAddr:
			if a, ok := e.GID.Addr(); !ok || a != s.addr || e.Type == GIDTypeRoCEv1 {
				continue
			}
		case sourceGID:
			if e.Port != s.port || e.Index != s.index {
				continue
			}
		case sourcePort:
			if e.Port != s.port {
				continue
			}
		}
		if (s.how == sourceDefault || s.how == sourcePort) && !d.usable(e) {
			continue
		}
		if !found || better(e, best) {
			best, found = e, true
		}
	}
	if !found {
		return GIDEntry{}, invalid("%s: no GID for %v; the table has %s", d.info.Name, s, describeGIDs(table))
	}
	return best, nil
}

// usable says whether e can be a default: on an active port, and RoCE v2 or
// InfiniBand.
func (d *Device) usable(e GIDEntry) bool {
	if e.Type == GIDTypeRoCEv1 {
		return false
	}
	p, err := d.PortAttr(e.Port)
	return err == nil && p.State == PortActive
}

// better orders the candidates for the default: lower port, IPv4 before others,
// lower index.
func better(a, b GIDEntry) bool {
	if a.Port != b.Port {
		return a.Port < b.Port
	}
	a4, b4 := isIPv4(a.GID), isIPv4(b.GID)
	if a4 != b4 {
		return a4
	}
	return a.Index < b.Index
}

func isIPv4(g GID) bool {
	a, ok := g.Addr()
	return ok && a.Is4()
}

func describeGIDs(table []GIDEntry) string {
	if len(table) == 0 {
		return "no entries: is the network device up, with an address?"
	}
	s := ""
	for i, e := range table {
		if i > 0 {
			s += ", "
		}
		if i == 16 {
			return s + fmt.Sprintf("and %d more", len(table)-i)
		}
		s += fmt.Sprintf("port %d index %d %v", e.Port, e.Index, e.GID)
	}
	return s
}
