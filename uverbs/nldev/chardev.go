package nldev

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
)

// A Chardev is a character device of an RDMA device.
type Chardev struct {
	// Name is the file's name below /dev/infiniband, such as "uverbs0", as
	// the kernel gave it; udev may have chosen another.
	Name string

	// ABI is the revision of the driver's private part of the interface.
	ABI uint64

	// Dev is the device number, as stat(2) reports it in st_rdev.
	Dev uint64

	// DriverID is the kernel's number of the driver (enum rdma_driver_id),
	// 0 where the kernel does not say.
	DriverID uint32
}

// Chardev finds the character device of the given kind, such as "uverbs", of
// the device with the given index. The kernel may load the module for it.
func (c *Conn) Chardev(index uint32, kind string) (Chardev, error) {
	b, err := c.get(abi.RDMA_NLDEV_CMD_GET_CHARDEV,
		u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, index), str(abi.RDMA_NLDEV_ATTR_CHARDEV_TYPE, kind))
	var d Chardev
	if err == nil {
		d, err = parseChardev(b)
	}
	if err != nil {
		return Chardev{}, fmt.Errorf("nldev: find the %s file of device %d: %w", kind, index, err)
	}
	return d, nil
}

func parseChardev(b []byte) (Chardev, error) {
	var d Chardev
	err := each(b, func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_ATTR_CHARDEV_NAME:
			d.Name = v.name(maxNameLength)
		case abi.RDMA_NLDEV_ATTR_CHARDEV_ABI:
			d.ABI = v.uint64()
		case abi.RDMA_NLDEV_ATTR_CHARDEV:
			d.Dev = v.uint64()
		case abi.RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID:
			// A number of eight bytes by the header, of four on
			// the wire.
			id := v.anyUint()
			if id > 1<<32-1 {
				v.fail("a driver id")
				return
			}
			d.DriverID = uint32(id)
		}
	})
	switch {
	case err != nil:
		return Chardev{}, err
	case d.Name == "" || d.Dev == 0:
		return Chardev{}, malformed("a character device without name or number")
	}
	return d, nil
}
