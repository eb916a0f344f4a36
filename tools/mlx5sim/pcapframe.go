package main

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/mlx5/model"
)

// Opcodes of requests, the device's.
const (
	opSendInv  = 0x01
	opWrite    = 0x08
	opWriteImm = 0x09
	opSend     = 0x0a
	opSendImm  = 0x0b
	opRead     = 0x10
	opCompSwap = 0x11
	opFetchAdd = 0x12
)

// Operations of a base transport header, InfiniBand's table. The transport stands in the three
// bits above.
const (
	bthSendFirst = iota
	bthSendMiddle
	bthSendLast
	bthSendLastImm
	bthSendOnly
	bthSendOnlyImm
	bthWriteFirst
	bthWriteMiddle
	bthWriteLast
	bthWriteLastImm
	bthWriteOnly
	bthWriteOnlyImm
	bthReadRequest
	bthReadFirst
	bthReadMiddle
	bthReadLast
	bthReadOnly
	bthAcknowledge
	bthAtomicAck
	bthCompSwap
	bthFetchAdd

	bthSendLastInv = 0x16
	bthSendOnlyInv = 0x17
)

// messageOpcode is the operation of a packet of a SEND or WRITE, by its place.
func messageOpcode(op uint8, first, last bool) uint8 {
	write := op == opWrite || op == opWriteImm
	switch {
	case first && !last && write:
		return bthWriteFirst
	case first && !last:
		return bthSendFirst
	case !last && write:
		return bthWriteMiddle
	case !last:
		return bthSendMiddle
	}
	ends := map[uint8][2]uint8{ // not first, first
		opSend: {bthSendLast, bthSendOnly}, opSendImm: {bthSendLastImm, bthSendOnlyImm}, opSendInv: {bthSendLastInv, bthSendOnlyInv},
		opWrite: {bthWriteLast, bthWriteOnly}, opWriteImm: {bthWriteLastImm, bthWriteOnlyImm},
	}
	if first {
		return ends[op][1]
	}
	return ends[op][0]
}

// packet is what is particular of one.
type packet struct {
	opcode         uint8 // without the transport
	psn, qpn       uint32
	extended       []byte // headers behind the base
	payload        uint32 // bytes that are not written
	ack, solicited bool
}

// Sizes and numbers of headers.
const (
	etherBytes = 14
	ipv4Bytes  = 20
	ipv6Bytes  = 40
	udpBytes   = 8
	bthBytes   = 12
	icrcBytes  = 4
	udpIsIP    = 17
	rocePort   = 4791
)

// frame writes a packet of the request's, there or back, to the file.
func (c *capture) frame(e *model.RequestEvent, p *packet, there bool) {
	be, r := binary.BigEndian, &e.Route
	from, to, fromMAC, toMAC := r.FromGID, r.ToGID, r.FromMAC, r.ToMAC
	if !there {
		from, to, fromMAC, toMAC = to, from, toMAC, fromMAC
	}
	pad := -p.payload & 3
	udp := udpBytes + bthBytes + len(p.extended) + int(p.payload+pad) + icrcBytes
	b := append(append(c.b[:0], toMAC[:]...), fromMAC[:]...)
	if v4 := [12]byte{10: 0xff, 11: 0xff}; [12]byte(from.Addr[:12]) == v4 && [12]byte(to.Addr[:12]) == v4 {
		b = append(b, 0x08, 0x00, 0x45, r.Class)
		b = be.AppendUint16(b, uint16(ipv4Bytes+udp))
		b = append(b, 0, 0, 0x40, 0, r.HopLimit, udpIsIP, 0, 0) // not to be fragmented
		b = append(append(b, from.Addr[12:]...), to.Addr[12:]...)
		h := b[etherBytes:]
		be.PutUint16(h[10:], checksum(h))
	} else {
		b = append(b, 0x86, 0xdd)
		b = be.AppendUint32(b, 6<<28|uint32(r.Class)<<20|r.FlowLabel)
		b = be.AppendUint16(b, uint16(udp))
		b = append(b, udpIsIP, r.HopLimit)
		b = append(append(b, from.Addr[:]...), to.Addr[:]...)
	}
	source := r.SourceUDP
	if source == 0 {
		source = 0xc000 | uint16(e.QPN&0x3fff) // one that is the same for all of a connection
	}
	b = be.AppendUint16(b, source)
	b = be.AppendUint16(b, rocePort)
	b = be.AppendUint16(b, uint16(udp))
	b = append(b, 0, 0) // RoCE leaves the checksum out
	flags := uint8(pad << 4)
	if p.solicited {
		flags |= 0x80
	}
	b = append(b, map[uint8]uint8{typeRC: 0x00, typeUC: 0x20, typeUD: 0x60}[r.Type]|p.opcode, flags)
	b = be.AppendUint16(b, r.PKey)
	b = be.AppendUint32(b, p.qpn&0xffffff)
	psn := p.psn
	if p.ack {
		psn |= 1 << 31
	}
	b = be.AppendUint32(b, psn)
	b = append(b, p.extended...)
	c.b = b
	c.record(e, b, len(b)+int(p.payload+pad)+icrcBytes)
}

// record writes the beginning of a frame of n bytes.
func (c *capture) record(e *model.RequestEvent, b []byte, n int) {
	le := binary.LittleEndian
	at := c.begin.Add(e.Time)
	h := le.AppendUint32(nil, uint32(at.Unix()))
	h = le.AppendUint32(h, uint32(at.Nanosecond()))
	h = le.AppendUint32(h, uint32(len(b)))
	h = le.AppendUint32(h, uint32(n))
	for _, b := range [][]byte{h, b} {
		if c.err == nil {
			_, c.err = c.w.Write(b)
		}
	}
}

// checksum is that of an IPv4 header, where it is 0 yet.
func checksum(h []byte) uint16 {
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
