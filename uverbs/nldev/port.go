package nldev

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
)

// A Port is one port of an RDMA device, as "rdma link" shows it.
type Port struct {
	// DeviceIndex and Device name the device.
	DeviceIndex uint32
	Device      string

	// Index is the number of the port, from 1.
	Index uint32

	// State is the logical state, PhysState the physical one.
	State     PortState
	PhysState PortPhysState

	// CapFlags has InfiniBand's CapabilityMask in its low 32 bits and
	// CapabilityMask2 above; 0 on other link layers.
	CapFlags uint64

	// SubnetPrefix, LID, SMLID and LMC are InfiniBand addresses; 0 on other
	// link layers. OmniPath's LIDs have 32 bits.
	SubnetPrefix uint64
	LID, SMLID   uint32
	LMC          uint8

	// NetdevIndex and Netdev are the network device of a RoCE or iWARP
	// port; 0 and "" where there is none in this network namespace.
	NetdevIndex uint32
	Netdev      string
}

// Ports lists the ports of the device with the given index.
func (c *Conn) Ports(index uint32) ([]Port, error) {
	answers, err := c.dump(abi.RDMA_NLDEV_CMD_PORT_GET, u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, index))
	if err != nil {
		return nil, fmt.Errorf("nldev: list the ports of device %d: %w", index, err)
	}
	ports := make([]Port, 0, len(answers))
	for _, b := range answers {
		p, err := parsePort(b)
		if err == nil && p.DeviceIndex != index {
			err = malformed("a port of device %d", p.DeviceIndex)
		}
		if err != nil {
			return nil, fmt.Errorf("nldev: list the ports of device %d: %w", index, err)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

func parsePort(b []byte) (Port, error) {
	var p Port
	var haveDevice bool
	err := each(b, func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_ATTR_DEV_INDEX:
			p.DeviceIndex, haveDevice = v.uint32(), true
		case abi.RDMA_NLDEV_ATTR_DEV_NAME:
			p.Device = v.name(maxNameLength)
		case abi.RDMA_NLDEV_ATTR_PORT_INDEX:
			p.Index = v.uint32()
		case abi.RDMA_NLDEV_ATTR_CAP_FLAGS:
			p.CapFlags = v.uint64()
		case abi.RDMA_NLDEV_ATTR_SUBNET_PREFIX:
			p.SubnetPrefix = v.uint64()
		case abi.RDMA_NLDEV_ATTR_LID:
			p.LID = v.uint32()
		case abi.RDMA_NLDEV_ATTR_SM_LID:
			p.SMLID = v.uint32()
		case abi.RDMA_NLDEV_ATTR_LMC:
			p.LMC = v.uint8()
		case abi.RDMA_NLDEV_ATTR_PORT_STATE:
			p.State = PortState(v.uint8())
		case abi.RDMA_NLDEV_ATTR_PORT_PHYS_STATE:
			p.PhysState = PortPhysState(v.uint8())
		case abi.RDMA_NLDEV_ATTR_NDEV_INDEX:
			p.NetdevIndex = v.uint32()
		case abi.RDMA_NLDEV_ATTR_NDEV_NAME:
			p.Netdev = v.name(maxNetdevNameLength)
		}
	})
	switch {
	case err != nil:
		return Port{}, err
	case !haveDevice || p.Device == "" || p.Index == 0:
		return Port{}, malformed("a port without device or number")
	}
	return p, nil
}
