package nldev

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
)

// A Link is one RDMA device, as "rdma dev" shows it.
type Link struct {
	// Index is the kernel's number of the device. It is never reused while
	// the system is up.
	Index uint32

	// Name is the kernel's name, such as "mlx5_0" or "rxe0". It is fit to
	// stand as one element of a path.
	Name string

	// Ports is the number of ports; they are numbered from 1.
	Ports uint32

	// CapFlags are the device's capability bits (enum ib_device_cap_flags).
	CapFlags uint64

	// Firmware is the firmware version; "" where the driver has none.
	Firmware string

	// NodeGUID and SysImageGUID identify the device and the system it is
	// part of.
	NodeGUID, SysImageGUID uint64

	// NodeType tells adapters from switches and RNICs.
	NodeType NodeType

	// Protocol is "ib", "roce", "iw", "opa" or "usnic"; "" where the kernel
	// does not say.
	Protocol string

	// AdaptiveModeration tells whether the kernel's own completion queues
	// are moderated dynamically.
	AdaptiveModeration bool
}

// Links lists the RDMA devices of the network namespace.
func (c *Conn) Links() ([]Link, error) {
	answers, err := c.dump(abi.RDMA_NLDEV_CMD_GET)
	if err != nil {
		return nil, fmt.Errorf("nldev: list the devices: %w", err)
	}
	links := make([]Link, len(answers))
	for i, b := range answers {
		if err := links[i].parse(b); err != nil {
			return nil, fmt.Errorf("nldev: list the devices: %w", err)
		}
	}
	return links, nil
}

func (l *Link) parse(b []byte) error {
	var haveIndex bool
	err := each(b, func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_ATTR_DEV_INDEX:
			l.Index, haveIndex = v.uint32(), true
		case abi.RDMA_NLDEV_ATTR_DEV_NAME:
			l.Name = v.name(maxNameLength)
		case abi.RDMA_NLDEV_ATTR_PORT_INDEX:
			l.Ports = v.uint32()
		case abi.RDMA_NLDEV_ATTR_CAP_FLAGS:
			l.CapFlags = v.uint64()
		case abi.RDMA_NLDEV_ATTR_FW_VERSION:
			l.Firmware = v.text()
		case abi.RDMA_NLDEV_ATTR_NODE_GUID:
			l.NodeGUID = v.uint64()
		case abi.RDMA_NLDEV_ATTR_SYS_IMAGE_GUID:
			l.SysImageGUID = v.uint64()
		case abi.RDMA_NLDEV_ATTR_DEV_NODE_TYPE:
			l.NodeType = NodeType(v.uint8())
		case abi.RDMA_NLDEV_ATTR_DEV_PROTOCOL:
			l.Protocol = v.text()
		case abi.RDMA_NLDEV_ATTR_DEV_DIM:
			l.AdaptiveModeration = v.uint8() != 0
		}
	})
	if err == nil && (!haveIndex || l.Name == "") {
		err = malformed("a device without index or name")
	}
	return err
}

// NewLink makes a soft RDMA device: kind is "rxe" or "siw", netdev the network
// device below it, such as "eth0". The kernel loads the driver's module when it
// can. It needs CAP_NET_ADMIN.
func (c *Conn) NewLink(name, kind, netdev string) error {
	what := fmt.Sprintf("nldev: add %s link %q on %s", kind, name, netdev)
	if !isName(name) || len(name) > maxNameLength {
		return fmt.Errorf("%s: a device name has 1 to %d printable characters and no slash", what, maxNameLength)
	}
	if !isName(netdev) || len(netdev) > maxNetdevNameLength {
		return fmt.Errorf("%s: a network device's name has 1 to %d printable characters and no slash", what, maxNetdevNameLength)
	}
	err := c.do(abi.RDMA_NLDEV_CMD_NEWLINK,
		str(abi.RDMA_NLDEV_ATTR_DEV_NAME, name), str(abi.RDMA_NLDEV_ATTR_LINK_TYPE, kind), str(abi.RDMA_NLDEV_ATTR_NDEV_NAME, netdev))
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// DelLink removes a soft RDMA device. It needs CAP_NET_ADMIN.
//
// Soft-RoCE cannot take a device away from its users: the call waits inside
// the kernel, unbreakably, until every verbs context, completion channel and
// event descriptor of the device is closed.
func (c *Conn) DelLink(index uint32) error {
	if err := c.do(abi.RDMA_NLDEV_CMD_DELLINK, u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, index)); err != nil {
		return fmt.Errorf("nldev: delete device %d: %w", index, err)
	}
	return nil
}
