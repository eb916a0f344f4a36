package nldev

import "github.com/goverbs/goverbs/abi"

// A Context is one open verbs device file with a context.
type Context struct {
	Owner

	// ID is the kernel's number of the context, unique in its device. PDs
	// and CQs name their context by it.
	ID uint32
}

// Contexts lists the contexts of the device with the given index, those of
// every process.
func (c *Conn) Contexts(index uint32) ([]Context, error) {
	return objects(c, contextTable, index, parseContext)
}

var contextTable = objectTable{
	"contexts", abi.RDMA_NLDEV_CMD_RES_CTX_GET, abi.RDMA_NLDEV_ATTR_RES_CTX, abi.RDMA_NLDEV_ATTR_RES_CTX_ENTRY,
}

func parseContext(entry value) (x Context) {
	id := needed{what: "a context with its number"}
	entry.nested(func(v value) {
		if v.typ == abi.RDMA_NLDEV_ATTR_RES_CTXN {
			x.ID = id.number(v)
			return
		}
		x.Owner.parse(v)
	})
	id.check(entry)
	return x
}

// A PD is a protection domain.
type PD struct {
	Owner

	// ID is the kernel's number of the domain, unique in its device. QPs,
	// MRs and SRQs name their domain by it.
	ID uint32

	// Context is the ID of the context that it belongs to; meaningless for
	// the kernel's own.
	Context uint32

	// Users counts the objects that use it.
	Users uint64
}

// PDs lists the protection domains of the device with the given index, those
// of every process and the kernel's.
func (c *Conn) PDs(index uint32) ([]PD, error) { return objects(c, pdTable, index, parsePD) }

var pdTable = objectTable{
	"protection domains", abi.RDMA_NLDEV_CMD_RES_PD_GET, abi.RDMA_NLDEV_ATTR_RES_PD, abi.RDMA_NLDEV_ATTR_RES_PD_ENTRY,
}

func parsePD(entry value) (x PD) {
	id := needed{what: "a protection domain with its number"}
	entry.nested(func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_ATTR_RES_PDN:
			x.ID = id.number(v)
		case abi.RDMA_NLDEV_ATTR_RES_CTXN:
			x.Context = v.uint32()
		case abi.RDMA_NLDEV_ATTR_RES_USECNT:
			x.Users = v.uint64()
		default:
			x.Owner.parse(v)
		}
	})
	id.check(entry)
	return x
}
