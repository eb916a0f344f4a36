package nldev

import "github.com/goverbs/goverbs/abi"

// A CQ is a completion queue. Netlink does not say how full it is, nor of its
// events.
type CQ struct {
	Owner

	// ID is the kernel's number of the queue, unique in its device. It is
	// neither the handle of the program that made it nor the number that
	// the hardware has for it.
	ID uint32

	// Context is the ID of the context that it belongs to; meaningless for
	// the kernel's own.
	Context uint32

	// Depth is how many completions fit.
	Depth uint32

	// Users counts the queue pairs, twice where one uses it for both of its
	// queues, and the SRQs that use it.
	Users uint64

	// AdaptiveModeration tells whether the kernel moderates it dynamically.
	AdaptiveModeration bool
}

// CQs lists the completion queues of the device with the given index, those of
// every process and the kernel's.
func (c *Conn) CQs(index uint32) ([]CQ, error) { return objects(c, cqTable, index, parseCQ) }

var cqTable = objectTable{
	"completion queues", abi.RDMA_NLDEV_CMD_RES_CQ_GET, abi.RDMA_NLDEV_ATTR_RES_CQ, abi.RDMA_NLDEV_ATTR_RES_CQ_ENTRY,
}

func parseCQ(entry value) (x CQ) {
	id := needed{what: "a completion queue with its number"}
	entry.nested(func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_ATTR_RES_CQN:
			x.ID = id.number(v)
		case abi.RDMA_NLDEV_ATTR_RES_CTXN:
			x.Context = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_CQE:
			x.Depth = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_USECNT:
			x.Users = v.uint64()
		case abi.RDMA_NLDEV_ATTR_DEV_DIM:
			x.AdaptiveModeration = v.uint8() != 0
		default:
			x.Owner.parse(v)
		}
	})
	id.check(entry)
	return x
}

// A QP is a queue pair. Netlink does not say which completion queues it uses.
type QP struct {
	Owner

	// Num is the number of the queue pair, that of packets too.
	Num uint32

	// Port is the port that it is bound to, 0 before it is.
	Port uint32

	// Type and State are what they say. Subtype is a word of the driver for
	// queue pairs of its own, "" for others.
	Type    QPType
	State   QPState
	Subtype string

	// PD is the ID of its protection domain; meaningless for the kernel's
	// own.
	PD uint32

	// Remote is the number of the peer's queue pair, and RecvPSN the packet
	// sequence number that it expects; 0 unless Type is RC or UC.
	Remote, RecvPSN uint32

	// SendPSN is the sequence number of the packets that it sends.
	SendPSN uint32
}

// QPs lists the queue pairs of the device with the given index, those of every
// process and the kernel's. It asks the driver about each, which may take time
// on hardware.
func (c *Conn) QPs(index uint32) ([]QP, error) { return objects(c, qpTable, index, parseQP) }

var qpTable = objectTable{
	"queue pairs", abi.RDMA_NLDEV_CMD_RES_QP_GET, abi.RDMA_NLDEV_ATTR_RES_QP, abi.RDMA_NLDEV_ATTR_RES_QP_ENTRY,
}

func parseQP(entry value) (x QP) {
	num := needed{what: "a queue pair with its number"}
	entry.nested(func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_ATTR_RES_LQPN:
			x.Num = num.number(v)
		case abi.RDMA_NLDEV_ATTR_PORT_INDEX:
			x.Port = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_TYPE:
			x.Type = QPType(v.uint8())
		case abi.RDMA_NLDEV_ATTR_RES_SUBTYPE:
			x.Subtype = v.text()
		case abi.RDMA_NLDEV_ATTR_RES_STATE:
			x.State = QPState(v.uint8())
		case abi.RDMA_NLDEV_ATTR_RES_PDN:
			x.PD = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_RQPN:
			x.Remote = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_RQ_PSN:
			x.RecvPSN = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_SQ_PSN:
			x.SendPSN = v.uint32()
		default:
			x.Owner.parse(v)
		}
	})
	num.check(entry)
	return x
}

// An SRQ is a shared receive queue. Linux lists them since 5.15.
type SRQ struct {
	Owner

	// ID is the kernel's number of the queue, unique in its device.
	ID uint32

	// Type is what it says.
	Type SRQType

	// PD is the ID of its protection domain.
	PD uint32

	// CQ is the ID of its completion queue where the type has one.
	CQ uint32

	// QPs are the numbers of the queue pairs that take receives from it,
	// first and last of each run.
	QPs [][2]uint32
}

// SRQs lists the shared receive queues of the device with the given index,
// those of every process.
func (c *Conn) SRQs(index uint32) ([]SRQ, error) { return objects(c, srqTable, index, parseSRQ) }

var srqTable = objectTable{
	"shared receive queues", abi.RDMA_NLDEV_CMD_RES_SRQ_GET, abi.RDMA_NLDEV_ATTR_RES_SRQ, abi.RDMA_NLDEV_ATTR_RES_SRQ_ENTRY,
}

func parseSRQ(entry value) (x SRQ) {
	id := needed{what: "a shared receive queue with its number"}
	entry.nested(func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_ATTR_RES_SRQN:
			x.ID = id.number(v)
		case abi.RDMA_NLDEV_ATTR_RES_TYPE:
			x.Type = SRQType(v.uint8())
		case abi.RDMA_NLDEV_ATTR_RES_PDN:
			x.PD = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_CQN:
			x.CQ = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_QP:
			v.nested(func(e value) {
				if e.typ == abi.RDMA_NLDEV_ATTR_RES_QP_ENTRY {
					x.QPs = append(x.QPs, parseRange(e))
				}
			})
		default:
			x.Owner.parse(v)
		}
	})
	id.check(entry)
	return x
}

// parseRange reads one number or the ends of a run of numbers.
func parseRange(entry value) (r [2]uint32) {
	entry.nested(func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_ATTR_RES_LQPN:
			r = [2]uint32{v.uint32(), v.uint32()}
		case abi.RDMA_NLDEV_ATTR_MIN_RANGE:
			r[0] = v.uint32()
		case abi.RDMA_NLDEV_ATTR_MAX_RANGE:
			r[1] = v.uint32()
		}
	})
	if r[0] > r[1] {
		entry.fail("a run of queue pairs")
	}
	return r
}
