package nldev

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
)

// System is what the RDMA core says of itself, as "rdma system" shows it.
type System struct {
	// NetnsShared tells whether all network namespaces share the devices.
	// Otherwise each device belongs to one.
	NetnsShared bool

	// CopyOnFork tells whether the kernel copies registered memory for a
	// child at fork (Linux 5.12 and later), so that the parent's pages stay
	// the registered ones.
	CopyOnFork bool

	// PrivilegedQKey tells whether unprivileged programs may use Q_Keys
	// with the top bit set.
	PrivilegedQKey bool

	// Monitor tells whether the kernel reports device changes to netlink
	// listeners (Linux 6.12 and later).
	Monitor bool
}

// System asks for the settings of the RDMA core. What an older kernel does not
// report is false.
func (c *Conn) System() (System, error) {
	b, err := c.get(abi.RDMA_NLDEV_CMD_SYS_GET)
	var s System
	if err == nil {
		s, err = parseSystem(b)
	}
	if err != nil {
		return System{}, fmt.Errorf("nldev: read the system settings: %w", err)
	}
	return s, nil
}

func parseSystem(b []byte) (System, error) {
	var s System
	err := each(b, func(v value) {
		switch v.typ {
		case abi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE:
			s.NetnsShared = v.uint8() != 0
		case abi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK:
			s.CopyOnFork = v.uint8() != 0
		case abi.RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE:
			s.PrivilegedQKey = v.uint8() != 0
		case abi.RDMA_NLDEV_SYS_ATTR_MONITOR_MODE:
			s.Monitor = v.uint8() != 0
		}
	})
	if err != nil {
		return System{}, err
	}
	return s, nil
}
