package uverbs

import (
	"fmt"
	"net/netip"
	"syscall"

	"github.com/goverbs/goverbs/abi"
)

// GID is a global identifier: the address of a port. Its bytes are in network
// order; on RoCE they are an IPv6 address, or an IPv4 address mapped into one.
type GID [16]byte

// String is the GID in IPv6 notation, an IPv4 address as ::ffff:10.0.0.1.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// Addr is the GID as an IP address, an IPv4 one if it is mapped. ok is false
// for the zero GID, which is an empty table entry and nobody's address.
func (g GID) Addr() (addr netip.Addr, ok bool) {
	return netip.AddrFrom16(g).Unmap(), !g.IsZero()
}

// IsZero tells whether all bytes are zero.
func (g GID) IsZero() bool { return g == GID{} }

// GIDFromAddr is the GID of an IP address on RoCE. A zone is dropped.
func GIDFromAddr(addr netip.Addr) GID { return addr.As16() }

// GIDType says how packets from a GID are framed (enum ib_uverbs_gid_type of
// rdma/ib_user_ioctl_verbs.h).
type GIDType uint32

// The GID types.
const (
	GIDTypeIB     = GIDType(abi.IB_UVERBS_GID_TYPE_IB)      // InfiniBand
	GIDTypeRoCEv1 = GIDType(abi.IB_UVERBS_GID_TYPE_ROCE_V1) // an Ethertype of its own, not routed
	GIDTypeRoCEv2 = GIDType(abi.IB_UVERBS_GID_TYPE_ROCE_V2) // UDP
)

// String names the type as ibv_devinfo does.
func (t GIDType) String() string {
	switch t {
	case GIDTypeIB:
		return "IB"
	case GIDTypeRoCEv1:
		return "RoCE v1"
	case GIDTypeRoCEv2:
		return "RoCE v2"
	}
	return fmt.Sprintf("GIDType(%d)", uint32(t))
}

// GIDEntry is one entry of the GID table of a port.
type GIDEntry struct {
	GID   GID
	Port  int // from 1
	Index int // place in the port's table, from 0
	Type  GIDType
	// Ifindex is the index of the network device of the address, 0 where
	// there is none.
	Ifindex int
}

const (
	// usualGIDs entries fit most tables and are asked for first: tables
	// have hundreds of places of which a few are taken.
	usualGIDs = 64
	// mostGIDs entries fill the 16-bit length of an attribute.
	mostGIDs = 0xffff / abi.SizeofUverbsGIDEntry
)

// GIDTable lists the entries in use of the GID tables of all ports, by port and
// index, which is the order in which the kernel goes through them
// (rdma_query_gid_table of drivers/infiniband/core/cache.c).
func (d *Device) GIDTable() ([]GIDEntry, error) {
	table, err := d.gidTable(usualGIDs)
	if isErrno(err, syscall.EINVAL) {
		// EINVAL is the kernel's word for too little room.
		table, err = d.gidTable(mostGIDs)
	}
	if err != nil {
		return nil, err
	}
	return table, nil
}

func (d *Device) gidTable(room int) ([]GIDEntry, error) {
	const op = "query GID table"
	entries, num := make([]byte, room*abi.SizeofUverbsGIDEntry), make([]byte, 8)
	r := newRequest(d.driver, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_TABLE)
	r.constant(abi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, abi.SizeofUverbsGIDEntry)
	r.out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, entries)
	r.out(abi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, num)
	if err := d.call(op, r); err != nil {
		return nil, err
	}
	n := native.Uint64(num)
	if n > uint64(room) {
		return nil, d.malformed(op, "%d entries in room for %d", n, room)
	}
	table := make([]GIDEntry, 0, n)
	for i := range int(n) {
		e, err := d.gidEntry(op, entries[i*abi.SizeofUverbsGIDEntry:])
		if err != nil {
			return nil, err
		}
		table = append(table, e)
	}
	return table, nil
}

// GID is the entry at index of the port's GID table. An index without an entry
// is an error that wraps ENODATA.
func (d *Device) GID(port, index int) (GIDEntry, error) {
	const op = "query GID"
	if err := d.checkPort(op, port); err != nil {
		return GIDEntry{}, err
	}
	if index < 0 || int64(index) > 1<<32-1 {
		return GIDEntry{}, invalid("%s: index %d: must not be negative", op, index)
	}
	entry := make([]byte, abi.SizeofUverbsGIDEntry)
	r := newRequest(d.driver, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_ENTRY)
	r.constant(abi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT, uint64(port))
	r.constant(abi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, uint64(index))
	r.in32(abi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0)
	r.out(abi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, entry)
	if err := d.call(op, r); err != nil {
		if isErrno(err, syscall.ENODATA) {
			hint(err, fmt.Sprintf("index %d of port %d is empty", index, port))
		}
		return GIDEntry{}, err
	}
	e, err := d.gidEntry(op, entry)
	if err == nil && (e.Port != port || e.Index != index) {
		err = d.malformed(op, "port %d index %d in answer to port %d index %d", e.Port, e.Index, port, index)
	}
	if err != nil {
		return GIDEntry{}, err
	}
	return e, nil
}

// gidEntry reads a struct ib_uverbs_gid_entry.
func (d *Device) gidEntry(op string, b []byte) (GIDEntry, error) {
	var raw abi.UverbsGIDEntry
	copy(raw.Bytes(), b)
	const most = 1<<31 - 1 // an int everywhere
	if raw.PortNum == 0 || raw.PortNum > most || raw.GIDIndex > most || raw.NetdevIfindex > most {
		return GIDEntry{}, d.malformed(op, "an entry at port %d, index %d, of network device %d", raw.PortNum, raw.GIDIndex, raw.NetdevIfindex)
	}
	return GIDEntry{
		// The kernel's union calls it two numbers; it is 16 bytes.
		GID:   GID(raw.Bytes()[:16]),
		Port:  int(raw.PortNum),
		Index: int(raw.GIDIndex), Type: GIDType(raw.GIDType), Ifindex: int(raw.NetdevIfindex),
	}, nil
}
