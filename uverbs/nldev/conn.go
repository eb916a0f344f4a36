package nldev

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/mdlayher/netlink"
)

// ErrNoRDMA says that the kernel has no RDMA netlink: no RDMA driver, and so
// not the module ib_core, is loaded.
var ErrNoRDMA = errors.New("the kernel has no RDMA netlink: ib_core is not loaded")

// A Conn is a netlink socket to the kernel's RDMA core. It sees the devices of
// the network namespace in which it was dialled.
type Conn struct {
	mu   sync.Mutex // a request and its answers are one
	s    socket     // nil once closed
	seq  uint32     // of the last request
	room []byte     // for what is received
}

// A socket is a netlink socket that is connected to the kernel.
type socket interface {
	Send(message []byte) error
	// Receive receives a datagram and returns its size, which may be more
	// than fits into b.
	Receive(b []byte) (int, error)
	Close() error
}

// datagram is the size of the largest datagram that the kernel makes: it sizes
// its lists by this, or by what it is given room for (netlink_dump in
// net/netlink/af_netlink.c).
const datagram = 8192

// Dial opens a netlink socket to the RDMA core of the kernel. Close it when done.
func Dial() (*Conn, error) {
	s, err := openSocket()
	switch {
	case errors.Is(err, syscall.EPROTONOSUPPORT):
		// socket(2) says so when nobody has registered the protocol.
		return nil, fmt.Errorf("nldev: %w", ErrNoRDMA)
	case err != nil:
		return nil, fmt.Errorf("nldev: open a socket: %w", err)
	}
	return newConn(s), nil
}

func newConn(s socket) *Conn { return &Conn{s: s, room: make([]byte, datagram)} }

// Close closes the socket, when a request that is under way has its answer.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s == nil {
		return os.ErrClosed
	}
	s := c.s
	c.s = nil
	return s.Close()
}

// get asks for one thing and returns the payload of the answer.
func (c *Conn) get(op int, attrs ...netlink.Attribute) ([]byte, error) {
	payloads, err := c.execute(op, 0, attrs)
	if err != nil {
		return nil, err
	}
	if len(payloads) != 1 {
		return nil, malformed("%d answers to one question", len(payloads))
	}
	return payloads[0], nil
}

// dump asks for a list and returns the payloads of its elements.
func (c *Conn) dump(op int, attrs ...netlink.Attribute) ([][]byte, error) {
	return c.execute(op, netlink.Dump, attrs)
}

// do asks for a deed and waits for the acknowledgement.
func (c *Conn) do(op int, attrs ...netlink.Attribute) error {
	_, err := c.execute(op, netlink.Acknowledge, attrs)
	return err
}

// execute makes a request and returns the payloads of the answers.
func (c *Conn) execute(op int, flags netlink.HeaderFlags, attrs []netlink.Attribute) ([][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s == nil {
		return nil, os.ErrClosed
	}
	c.seq++
	request, err := makeMessage(netlink.Header{Type: messageType(op), Flags: netlink.Request | flags, Sequence: c.seq}, attrs)
	if err != nil {
		return nil, err
	}
	if err := c.s.Send(request); err != nil {
		return nil, err
	}
	var payloads [][]byte
	for {
		n, err := c.s.Receive(c.room)
		if err != nil {
			return nil, err
		}
		if n > len(c.room) {
			return nil, malformed("a datagram of %d bytes, more than %d", n, len(c.room))
		}
		for b := c.room[:n]; len(b) > 0; {
			var m netlink.Message
			if m, b, err = nextMessage(b); err != nil {
				return nil, err
			}
			switch h := m.Header; {
			case h.Sequence != c.seq:
				return nil, malformed("an answer to request %d, want %d", h.Sequence, c.seq)
			case h.Type == netlink.Error || h.Type == netlink.Done:
				return payloads, errorOf(m)
			case h.Type != messageType(op):
				return nil, malformed("message type %#x in answer to %#x", uint16(h.Type), uint16(messageType(op)))
			}
			payloads = append(payloads, append([]byte(nil), m.Data...))
			if m.Header.Flags&netlink.Multi == 0 {
				return payloads, nil
			}
		}
	}
}

// messageType is RDMA_NL_GET_TYPE of rdma/rdma_netlink.h.
func messageType(op int) netlink.HeaderType { return netlink.HeaderType(abi.RDMA_NL_NLDEV<<10 | op) }
