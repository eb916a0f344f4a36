package nldev

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
)

// An Owner says who made an object of a device. Both fields are zero where the
// kernel does not say: the process is gone or of a PID namespace that this one
// does not see, or the thread that made the object has ended.
type Owner struct {
	// TID is the id of the thread that made the object, in the PID namespace
	// of the socket. It is not that of the process: the Tgid line of
	// /proc/TID/status has that.
	TID uint32

	// Kernel is the name of the kernel's module that owns the object, such
	// as "ib_core"; "" for the objects of processes.
	Kernel string
}

// parse takes an attribute that says who the owner is.
func (o *Owner) parse(v value) {
	switch v.typ {
	case abi.RDMA_NLDEV_ATTR_RES_PID:
		o.TID = v.uint32()
	case abi.RDMA_NLDEV_ATTR_RES_KERN_NAME:
		o.Kernel = v.text()
	}
}

// An objectTable says where the answers to a question have the objects of a
// kind.
type objectTable struct {
	kind         string // for errors
	op           int
	table, entry uint16
}

// objects asks for all objects of a kind. parse makes one out of an entry;
// what it needs and does not find it refuses by entry.fail.
func objects[T any](c *Conn, t objectTable, index uint32, parse func(entry value) T) ([]T, error) {
	answers, err := c.dump(t.op, u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, index))
	var all []T
	for _, b := range answers {
		if all, err = appendObjects(all, t, index, b, parse); err != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("nldev: list the %s of device %d: %w", t.kind, index, err)
	}
	return all, nil
}

// appendObjects adds the objects of one answer. A list comes in several.
func appendObjects[T any](all []T, t objectTable, index uint32, b []byte, parse func(entry value) T) ([]T, error) {
	device := int64(-1)
	err := each(b, func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_ATTR_DEV_INDEX:
			device = int64(v.uint32())
		case t.table:
			v.nested(func(e value) {
				if e.typ == t.entry {
					all = append(all, parse(e))
				}
			})
		}
	})
	if err == nil && device != int64(index) {
		err = malformed("%s of device %d", t.kind, device)
	}
	return all, err
}

// A needed attribute is one without which an object cannot be told from others.
type needed struct {
	found bool
	what  string
}

// number reads the number of an object.
func (n *needed) number(v value) uint32 {
	n.found = true
	return v.uint32()
}

// check refuses an entry that lacks it.
func (n *needed) check(entry value) {
	if !n.found {
		entry.fail(n.what)
	}
}
