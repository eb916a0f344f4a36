package nldev

import "github.com/goverbs/goverbs/abi"

// An MR is a memory region. Netlink does not say where it begins.
type MR struct {
	Owner

	// ID is the kernel's number of the region, unique in its device.
	ID uint32

	// Length is in bytes.
	Length uint64

	// PD is the ID of its protection domain; meaningless for the kernel's
	// own.
	PD uint32

	// LKey and RKey are the region's keys where HasKeys is true. The kernel
	// tells them to those with CAP_NET_ADMIN only.
	LKey, RKey uint32
	HasKeys    bool
}

// MRs lists the memory regions of the device with the given index, those of
// every process and the kernel's.
func (c *Conn) MRs(index uint32) ([]MR, error) { return objects(c, mrTable, index, parseMR) }

var mrTable = objectTable{
	"memory regions", abi.RDMA_NLDEV_CMD_RES_MR_GET, abi.RDMA_NLDEV_ATTR_RES_MR, abi.RDMA_NLDEV_ATTR_RES_MR_ENTRY,
}

func parseMR(entry value) (x MR) {
	id := needed{what: "a memory region with its number"}
	entry.nested(func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_ATTR_RES_MRN:
			x.ID = id.number(v)
		case abi.RDMA_NLDEV_ATTR_RES_MRLEN:
			x.Length = v.uint64()
		case abi.RDMA_NLDEV_ATTR_RES_PDN:
			x.PD = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_LKEY:
			x.LKey, x.HasKeys = v.uint32(), true
		case abi.RDMA_NLDEV_ATTR_RES_RKEY:
			x.RKey, x.HasKeys = v.uint32(), true
		default:
			x.Owner.parse(v)
		}
	})
	id.check(entry)
	return x
}
