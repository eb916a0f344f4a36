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
	like  gidKind // with sourceDefault and sourcePort: only such addresses
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
	if s.how == sourceGID {
		// One entry is faster asked for than all of a table of a thousand places.
		// Where it is not there, the table says what is.
		if e, err := d.GID(s.port, s.index); err == nil {
			return e, nil
		}
	}
	return d.choose(s)
}

// choose is resolve by the table of all ports.
func (d *Device) choose(s Source) (GIDEntry, error) {
	table, err := d.GIDTable()
	if err != nil {
		return GIDEntry{}, err
	}
	active := make(map[int]bool) // by port, those asked so far
	var best GIDEntry
	found := false
	for _, e := range table {
		if !s.admits(e) {
			continue
		}
		if s.how == sourceDefault || s.how == sourcePort {
			on, asked := active[e.Port]
			if !asked {
				p, err := d.PortAttr(e.Port)
				if err != nil {
					return GIDEntry{}, err
				}
				on = p.State == PortActive
				active[e.Port] = on
			}
			if !on {
				continue
			}
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

// admits says whether e is what the source names, the state of its port aside.
// RoCE v1 is taken only when asked for by index: its packets do not cross
// routers, and soft-RoCE has no such.
func (s Source) admits(e GIDEntry) bool {
	switch s.how {
	case sourceAddr:
		a, ok := e.GID.Addr()
		return ok && a == s.addr && e.Type != GIDTypeRoCEv1
	case sourceGID:
		return e.Port == s.port && e.Index == s.index
	case sourcePort:
		return e.Port == s.port && e.Type != GIDTypeRoCEv1 && s.suits(e.GID)
	}
	return e.Type != GIDTypeRoCEv1 && s.suits(e.GID)
}

// suits says whether an address is of the kind that is asked for, if any is.
func (s Source) suits(g GID) bool { return s.like == gidAny || s.like == kindOfGID(g) }

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
