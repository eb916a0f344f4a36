package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/mdlayher/netlink"
)

// Numbers of the kernel's headers: of linux/netlink.h, linux/genetlink.h and
// linux/ethtool_netlink.h. Package unix has them for Linux only.
const (
	netlinkGeneric = 16

	genlIDCtrl         = 16
	ctrlCmdGetFamily   = 3
	ctrlAttrFamilyID   = 1
	ctrlAttrFamilyName = 2

	ethtoolMsgCoalesceGet      = 19
	ethtoolHeaderDevName       = 2
	ethtoolCoalesceHeader      = 1
	ethtoolCoalesceRxUsecs     = 2
	ethtoolCoalesceRxMaxFrames = 3
	ethtoolCoalesceAdaptiveRx  = 11
)

// coalescing asks how a network device gathers packets, as ethtool -c does.
func coalescing(netdev string) (Coalescing, error) {
	if runtime.GOOS != "linux" {
		return Coalescing{}, errors.ErrUnsupported
	}
	c, err := netlink.Dial(netlinkGeneric, nil)
	if err != nil {
		return Coalescing{}, fmt.Errorf("ethtool: %w", err)
	}
	defer c.Close()
	family, err := ethtoolFamily(c)
	if err != nil {
		return Coalescing{}, err
	}
	name := netlink.NewAttributeEncoder()
	name.Nested(ethtoolCoalesceHeader, func(e *netlink.AttributeEncoder) error {
		e.String(ethtoolHeaderDevName, netdev)
		return nil
	})
	b, err := generic(c, family, ethtoolMsgCoalesceGet, name)
	if err != nil {
		return Coalescing{}, fmt.Errorf("ethtool: coalescing of %s: %w", netdev, err)
	}
	return parseCoalescing(b)
}

// ethtoolFamily asks for the number that the kernel gave ethtool.
func ethtoolFamily(c *netlink.Conn) (uint16, error) {
	name := netlink.NewAttributeEncoder()
	name.String(ctrlAttrFamilyName, "ethtool")
	b, err := generic(c, genlIDCtrl, ctrlCmdGetFamily, name)
	if err != nil {
		return 0, fmt.Errorf("ethtool: find its netlink family: %w", err)
	}
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return 0, err
	}
	for d.Next() {
		if d.Type() == ctrlAttrFamilyID {
			return d.Uint16(), d.Err()
		}
	}
	return 0, errors.Join(errors.New("ethtool: netlink tells no family"), d.Err())
}

// generic asks for one thing of a generic family and returns the attributes of the answer.
func generic(c *netlink.Conn, family uint16, command uint8, attrs *netlink.AttributeEncoder) ([]byte, error) {
	b, err := attrs.Encode()
	if err != nil {
		return nil, err
	}
	const version = 1
	answers, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(family), Flags: netlink.Request},
		Data:   append([]byte{command, version, 0, 0}, b...),
	})
	if err != nil {
		return nil, err
	}
	if len(answers) != 1 || len(answers[0].Data) < 4 {
		return nil, fmt.Errorf("%d answers to one question, or a short one", len(answers))
	}
	return answers[0].Data[4:], nil
}

// parseCoalescing reads the attributes of an answer of ethtool.
func parseCoalescing(b []byte) (Coalescing, error) {
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return Coalescing{}, err
	}
	d.ByteOrder = binary.NativeEndian
	var c Coalescing
	for d.Next() {
		switch d.Type() {
		case ethtoolCoalesceRxUsecs:
			c.Period = time.Duration(d.Uint32()) * time.Microsecond
		case ethtoolCoalesceRxMaxFrames:
			c.Frames = d.Uint32()
		case ethtoolCoalesceAdaptiveRx:
			c.Adaptive = d.Uint8() != 0
		}
	}
	return c, d.Err()
}
