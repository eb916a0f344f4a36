package nldev

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"github.com/goverbs/goverbs/abi"
)

// A CMID is an identifier of the RDMA connection manager: a listener, or one
// end of a connection.
type CMID struct {
	Owner

	// ID is the kernel's number of the identifier, unique in its device.
	ID uint32

	// Port is the device's port, 0 where none is bound.
	Port uint32

	// QP is the number of its queue pair and Type the queue pair's type,
	// both 0 where there is none.
	QP   uint32
	Type QPType

	// PortSpace says what the ports of the addresses are of.
	PortSpace PortSpace

	// State is how far the connection is.
	State CMState

	// Local and Peer are the addresses, with the zone of link-local ones as
	// a number. They are invalid where there is none, or one of InfiniBand.
	Local, Peer netip.AddrPort
}

// CMIDs lists the connection manager's identifiers on the device with the given
// index, those of every process and the kernel's.
func (c *Conn) CMIDs(index uint32) ([]CMID, error) { return objects(c, cmidTable, index, parseCMID) }

var cmidTable = objectTable{
	"connection manager's identifiers", abi.RDMA_NLDEV_CMD_RES_CM_ID_GET, abi.RDMA_NLDEV_ATTR_RES_CM_ID, abi.RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY,
}

func parseCMID(entry value) (x CMID) {
	id := needed{what: "an identifier with its number"}
	entry.nested(func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_ATTR_RES_CM_IDN:
			x.ID = id.number(v)
		case abi.RDMA_NLDEV_ATTR_PORT_INDEX:
			x.Port = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_LQPN:
			x.QP = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_TYPE:
			x.Type = QPType(v.uint8())
		case abi.RDMA_NLDEV_ATTR_RES_PS:
			x.PortSpace = PortSpace(v.uint32())
		case abi.RDMA_NLDEV_ATTR_RES_STATE:
			x.State = CMState(v.uint8())
		case abi.RDMA_NLDEV_ATTR_RES_SRC_ADDR:
			x.Local = v.sockaddr()
		case abi.RDMA_NLDEV_ATTR_RES_DST_ADDR:
			x.Peer = v.sockaddr()
		default:
			x.Owner.parse(v)
		}
	})
	id.check(entry)
	return x
}

// Address families as Linux numbers them on every architecture.
const (
	familyIPv4 = 2
	familyIPv6 = 10
)

// sockaddr reads a struct sockaddr of linux/in.h or linux/in6.h.
func (v value) sockaddr() netip.AddrPort {
	if len(v.b) < 2 {
		v.fail("an address")
		return netip.AddrPort{}
	}
	switch family := binary.NativeEndian.Uint16(v.b); {
	case family == familyIPv4 && len(v.b) >= 8:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(v.b[4:8])), binary.BigEndian.Uint16(v.b[2:]))
	case family == familyIPv6 && len(v.b) >= 28:
		a := netip.AddrFrom16([16]byte(v.b[8:24]))
		if zone := binary.NativeEndian.Uint32(v.b[24:]); zone != 0 && a.IsLinkLocalUnicast() && !a.Is4In6() {
			a = a.WithZone(strconv.FormatUint(uint64(zone), 10))
		}
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(v.b[2:]))
	case family == familyIPv4, family == familyIPv6:
		v.fail("an address of its family")
	}
	return netip.AddrPort{}
}
