package nldev

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/mdlayher/netlink"
)

// family is NETLINK_RDMA of linux/netlink.h.
const family = 20

// ErrNoRDMA says that the kernel has no RDMA netlink: no RDMA driver, and so
// not the module ib_core, is loaded.
var ErrNoRDMA = errors.New("the kernel has no RDMA netlink: ib_core is not loaded")

// A Conn is a netlink socket to the kernel's RDMA core. It sees the devices of
// the network namespace in which it was dialled.
type Conn struct {
	c *netlink.Conn
}

// Dial opens a netlink socket to the RDMA core of the kernel.
func Dial() (*Conn, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("nldev: RDMA netlink needs Linux: %w", errors.ErrUnsupported)
	}
	c, err := netlink.Dial(family, nil)
	switch {
	case errors.Is(err, syscall.EPROTONOSUPPORT):
		// socket(2) says so when nobody has registered the protocol.
		return nil, fmt.Errorf("nldev: %w", ErrNoRDMA)
	case err != nil:
		return nil, fmt.Errorf("nldev: open a socket: %w", err)
	}
	return &Conn{c: c}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.c.Close() }

// get asks for one thing and returns the payload of the answer.
func (c *Conn) get(op int, attrs []netlink.Attribute) ([]byte, error) {
	msgs, err := c.execute(op, 0, attrs)
	if err != nil {
		return nil, err
	}
	if len(msgs) != 1 {
		return nil, malformed("%d answers to one question", len(msgs))
	}
	return msgs[0], nil
}

// dump asks for a list and returns the payloads of its elements.
func (c *Conn) dump(op int, attrs []netlink.Attribute) ([][]byte, error) {
	return c.execute(op, netlink.Dump, attrs)
}

// do asks for a deed and waits for the acknowledgement.
func (c *Conn) do(op int, attrs []netlink.Attribute) error {
	_, err := c.execute(op, netlink.Acknowledge, attrs)
	return err
}

func (c *Conn) execute(op int, flags netlink.HeaderFlags, attrs []netlink.Attribute) ([][]byte, error) {
	data, err := netlink.MarshalAttributes(attrs)
	if err != nil {
		return nil, err
	}
	msgs, err := c.c.Execute(netlink.Message{
		Header: netlink.Header{Type: messageType(op), Flags: netlink.Request | flags},
		Data:   data,
	})
	if err != nil {
		return nil, err
	}
	payloads := make([][]byte, 0, len(msgs))
	for _, m := range msgs {
		if m.Header.Type == netlink.Error {
			continue // the acknowledgement; a refusal came as an error
		}
		if m.Header.Type != messageType(op) {
			return nil, malformed("message type %#x in answer to %#x", m.Header.Type, messageType(op))
		}
		payloads = append(payloads, m.Data)
	}
	return payloads, nil
}

// messageType is RDMA_NL_GET_TYPE of rdma/rdma_netlink.h.
func messageType(op int) netlink.HeaderType {
	return netlink.HeaderType(abi.RDMA_NL_NLDEV<<10 | op)
}
