package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
)

// capture writes the packets of a model as a network would show them: a file of pcap with
// frames of RoCE v2. Of each there are the headers; the payload, whose length they
// tell, is cut off, as by tcpdump -s. On InfiniBand the addresses are GIDs too.
type capture struct {
	file  *os.File
	begin time.Time // when the model began

	w   *bufio.Writer
	err error
	b   []byte // frame that is made
	// done are how many messages a responder has completed (MSN), by requester.
	done map[requester]uint32
}

// requester is a queue pair that sends.
type requester struct {
	device string
	qpn    uint32
}

// newCapture makes the file. begin is when the model began.
func newCapture(name string, begin time.Time) (*capture, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	c := &capture{file: f, begin: begin, w: bufio.NewWriterSize(f, 1<<16), done: make(map[requester]uint32)}
	const magic, ethernet, longest = 0xa1b23c4d, 1, 1 << 16 // time stamps are in nanoseconds
	h := binary.LittleEndian.AppendUint32(nil, magic)
	h = append(h, 2, 0, 4, 0) // version 2.4
	h = append(h, make([]byte, 8)...)
	h = binary.LittleEndian.AppendUint32(h, longest)
	h = binary.LittleEndian.AppendUint32(h, ethernet)
	_, c.err = c.w.Write(h)
	return c, nil
}

// flush gives the file what there is, so that it can be read while programs run.
func (c *capture) flush() {
	if err := c.w.Flush(); c.err == nil {
		c.err = err
	}
}

// close ends the file, and says if something of it is missing.
func (c *capture) close() error {
	c.flush()
	if err := c.file.Close(); c.err == nil {
		c.err = err
	}
	if c.err != nil {
		return fmt.Errorf("-pcap: %w", c.err)
	}
	return nil
}

// Types of queue pairs.
const (
	typeRC = 2
	typeUC = 3
	typeUD = 4
)

// event writes the packets of an event.
func (c *capture) event(e model.Event) {
	switch e := e.(type) {
	case model.StateEvent:
		if e.New == 0 { // RESET
			delete(c.done, requester{e.Device, e.QPN})
		}
	case model.RequestEvent:
		if e.Route.Packets > 0 {
			c.request(&e)
			if e.Route.Type == typeRC {
				c.answer(&e)
			}
		}
	}
}

// part is the n bytes of payload of the i-th packet of a message.
func part(r *model.Route, length uint64, i uint32) (n uint32) {
	return uint32(min(uint64(r.MTU), length-uint64(i)*uint64(r.MTU)))
}

// request writes what the requester sent.
func (c *capture) request(e *model.RequestEvent) {
	r := &e.Route
	p := packet{psn: r.PSN, qpn: e.PeerQPN}
	var reth []byte
	switch e.Opcode {
	case opWrite, opWriteImm, opRead, opCompSwap, opFetchAdd:
		reth = binary.BigEndian.AppendUint64(nil, e.Remote)
		reth = binary.BigEndian.AppendUint32(reth, e.RKey)
	}
	switch e.Opcode {
	case opRead:
		p.opcode, p.ack = bthReadRequest, true
		p.extended = binary.BigEndian.AppendUint32(reth, uint32(e.Length))
		c.frame(e, &p, true)
		return
	case opCompSwap, opFetchAdd:
		p.opcode, p.ack = bthCompSwap, true
		if e.Opcode == opFetchAdd {
			p.opcode = bthFetchAdd
		}
		p.extended = binary.BigEndian.AppendUint64(reth, e.SwapAdd)
		p.extended = binary.BigEndian.AppendUint64(p.extended, e.Compare)
		c.frame(e, &p, true)
		return
	}
	for i := range r.Packets {
		first, last := i == 0, i == r.Packets-1
		p := packet{psn: (r.PSN + i) & 0xffffff, qpn: e.PeerQPN, payload: part(r, e.Length, i)}
		p.opcode = messageOpcode(e.Opcode, first, last)
		if r.Type == typeUD {
			p.extended = binary.BigEndian.AppendUint32(p.extended, r.QKey)
			p.extended = binary.BigEndian.AppendUint32(p.extended, e.QPN)
		}
		if first && reth != nil {
			p.extended = binary.BigEndian.AppendUint32(append(p.extended, reth...), uint32(e.Length))
		}
		if last {
			p.ack, p.solicited = r.Type == typeRC, e.Flags&0x02 != 0
			if e.Opcode == opSendImm || e.Opcode == opWriteImm || e.Opcode == opSendInv {
				p.extended = binary.BigEndian.AppendUint32(p.extended, e.Immediate)
			}
		}
		c.frame(e, &p, true)
	}
}

// answer writes what the responder of a connection answered.
func (c *capture) answer(e *model.RequestEvent) {
	r := &e.Route
	key := requester{e.Device, e.QPN}
	p := packet{opcode: bthAcknowledge, psn: r.PSN, qpn: e.QPN}
	syndrome := uint32(0x1f) // ACK, with no word of credits
	switch e.Outcome {
	case model.OutcomeLost:
		return
	case model.OutcomeNotReady:
		syndrome = 0x20 | uint32(e.RNRTimer)
	case model.OutcomeFailed:
		syndrome = nakOf(e.Syndrome)
	default:
		c.done[key] = (c.done[key] + 1) & 0xffffff
		switch e.Opcode {
		case opRead:
			c.response(e)
			return
		case opCompSwap, opFetchAdd:
			// What stood there is not told: the frame is cut off before it.
			p.opcode, p.payload = bthAtomicAck, 8
		default:
			p.psn = (r.PSN + r.Packets - 1) & 0xffffff
		}
	}
	p.extended = binary.BigEndian.AppendUint32(nil, syndrome<<24|c.done[key])
	c.frame(e, &p, false)
}

// response writes what a READ brought.
func (c *capture) response(e *model.RequestEvent) {
	r := &e.Route
	for i := range r.Packets {
		first, last := i == 0, i == r.Packets-1
		p := packet{psn: (r.PSN + i) & 0xffffff, qpn: e.QPN, payload: part(r, e.Length, i)}
		switch {
		case first && last:
			p.opcode = bthReadOnly
		case first:
			p.opcode = bthReadFirst
		case last:
			p.opcode = bthReadLast
		default:
			p.opcode = bthReadMiddle
		}
		if first || last {
			p.extended = binary.BigEndian.AppendUint32(nil, 0x1f<<24|c.done[requester{e.Device, e.QPN}])
		}
		c.frame(e, &p, false)
	}
}

// nakOf is the syndrome of a negative acknowledgement that makes a completion fail so.
func nakOf(syndrome uint8) uint32 {
	switch syndrome {
	case 0x12: // invalid request
		return 0x61
	case 0x13: // remote access
		return 0x62
	}
	return 0x63 // remote operation
}
