package nldev

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/abi"
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
func (c *Conn) get(op int, attrs ...attribute) ([]byte, error) {
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
func (c *Conn) dump(op int, attrs ...attribute) ([][]byte, error) {
	return c.execute(op, flagDump, attrs)
}

// do asks for a deed and waits for the acknowledgement.
func (c *Conn) do(op int, attrs ...attribute) error {
	_, err := c.execute(op, flagAck, attrs)
	return err
}

// execute makes a request and returns the payloads of the answers.
func (c *Conn) execute(op int, flags uint16, attrs []attribute) ([][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s == nil {
		return nil, os.ErrClosed
	}
	c.seq++
	request := header{typ: messageType(op), flags: flagRequest | flags, seq: c.seq}
	if err := c.s.Send(appendMessage(nil, request, attrs)); err != nil {
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
			var h header
			var data []byte
			if h, data, b, err = nextMessage(b); err != nil {
				return nil, err
			}
			switch {
			case h.seq != c.seq:
				return nil, malformed("an answer to request %d, want %d", h.seq, c.seq)
			case h.typ == typeError || h.typ == typeDone:
				return payloads, errorOf(h, data)
			case h.typ != request.typ:
				return nil, malformed("message type %#x in answer to %#x", h.typ, request.typ)
			}
			payloads = append(payloads, append([]byte(nil), data...))
			if h.flags&flagMulti == 0 {
				return payloads, nil
			}
		}
	}
}

// messageType is RDMA_NL_GET_TYPE of rdma/rdma_netlink.h.
func messageType(op int) uint16 { return uint16(abi.RDMA_NL_NLDEV<<10 | op) }
