package model

import "encoding/binary"

// grhBytes is how much room a datagram's header has in front of its payload.
const grhBytes = 40

// Fields of flags_rqpn.
const (
	sourceGRH      = 1 << 28 // the header is in the receive's buffer
	sourceSLShift  = 24
	sourceIPv6     = 1 << 24
	sourceIPv4     = 2 << 24
	privateQKey    = 1 << 31
	rocePortsFrom  = 0xc000
	pathBitsMask   = 0x7f
	etherSLMask    = 0xe
	multicastQPN   = 0xffffff
	headerIPv4     = 20
	protocolUDP    = 17
	nextHeaderBTH  = 0x1b
	roceUDPHeaders = 8 + 12 + 8 + 4 // UDP, BTH, DETH, ICRC
)

// datagram carries a request of a UD queue pair. Once it is on its way it has
// succeeded, whatever becomes of it.
func (q *qp) datagram(w *wqe) verdict {
	p := q.port
	if w.length > 128<<p.mtu {
		return fails(syndLocalLength, vendBeyondMTU)
	}
	if reason := q.gather(w); reason != keyGood {
		return fails(syndLocalProt, vendGather+reason)
	}
	source, vendor := q.checkVector(&w.av)
	if vendor != 0 {
		return fails(syndLocalQPOp, vendor)
	}
	q.sendPSN = (q.sendPSN + 1) & psnMask
	if w.av.dqpn == multicastQPN {
		return q.multicast(w, source)
	}
	r := q.target(&w.av, source)
	if r == nil {
		return verdict{}
	}
	return r.arrive(q, w, source)
}

// checkVector is what the device checks of an address vector. It returns the source
// address, empty without a global header.
func (q *qp) checkVector(a *addressVector) (source GID, vendor uint8) {
	p := q.port
	global := a.grh&avGRH != 0
	switch {
	case !a.extended:
		return source, vendUDOther
	case p.ib && !global:
		return source, 0
	case !p.ib && global:
		q.d.m.violation("QP %#x: the address vector of a datagram on RoCE says that there is a GRH: the bit is InfiniBand's", q.qpn)
		return source, vendUDOther
	}
	source = p.gid(int(a.grh >> avSGIDShift & 0xff))
	switch {
	case source.empty():
		return source, vendUDGID
	case source.Type == GIDRoCE2 && a.dlid < rocePortsFrom:
		q.d.m.violation("QP %#x: a datagram of RoCE v2 leaves through UDP port %#x: the ports begin at %#x", q.qpn, a.dlid, rocePortsFrom)
	case !p.ib && a.slRate&^etherSLMask&0xf != 0:
		q.d.m.violation("QP %#x: the SL of a datagram on RoCE stands in bits 3 to 1 of its byte, which is %#x", q.qpn, a.slRate)
	}
	return source, 0
}

// target is the queue pair that a datagram reaches, nil if none.
func (q *qp) target(a *addressVector, source GID) *qp {
	m, p := q.d.m, q.port
	if !p.up {
		return nil
	}
	var to *port
	switch {
	case p.ib:
		to = m.lids[a.dlid]
		if !source.empty() && to != nil && !to.has(a.gid, source.Type) {
			return nil
		}
	default:
		if to = m.gids[a.gid]; to == nil || to.mac() != a.mac || !to.has(a.gid, source.Type) {
			return nil
		}
	}
	if to == nil || to.d.gone {
		return nil
	}
	if r := to.d.qps[a.dqpn]; r != nil && r.port == to && q.reaches(r, a) {
		return r
	}
	return nil
}

// arrive puts a datagram into a receive. Without one it is dropped.
func (r *qp) arrive(q *qp, w *wqe, source GID) verdict {
	m := r.d.m
	recv, ok := r.nextReceive()
	if !ok {
		return verdict{}
	}
	opcode := uint8(opSend)
	if w.opcode == wqeSendImm {
		opcode = opSendImm
	}
	n := grhBytes + w.length
	c := r.received(opcode, recv.index)
	c.bytes, c.solicited, c.source = uint32(n), w.solicit, q.qpn
	if opcode == opSendImm {
		c.imm = w.imm
	}
	header := m.grh[:]
	clear(header)
	if !source.empty() {
		c.source |= sourceGRH
		fillHeader(header, &w.av, source, w.length)
	}
	if q.port.ib {
		c.slid, c.path = q.port.lid|uint16(w.av.path&pathBitsMask), 0
		c.source |= uint32(w.av.slRate&0xf) << sourceSLShift
	} else if source.Type == GIDRoCE2 {
		c.source |= sourceIPv6
		if source.isIPv4() {
			c.source ^= sourceIPv6 | sourceIPv4
		}
	}
	m.src = append(m.src, span{})
	copy(m.src[1:], m.src)
	m.src[0] = span{b: header, n: grhBytes}
	syndrome, vendor, from := r.scatter(&recv, n, &c)
	if from == readFailed {
		return fails(syndLocalProt, vendGather+keyInvalid)
	}
	r.take(&recv)
	if syndrome == 0 {
		if !r.recvCQ.add(&c) {
			r.fatal()
		}
		return verdict{}
	}
	e := r.received(opRespErr, recv.index)
	e.syndrome, e.vendor = syndrome, vendor
	if !r.recvCQ.add(&e) {
		r.fatal()
	}
	r.enter(stateErr)
	return verdict{}
}

// fillHeader writes the global header that the network shows: an IPv6 one, or an IPv4
// one in the last 20 bytes.
func fillHeader(b []byte, a *addressVector, source GID, n uint64) {
	be := binary.BigEndian
	if source.Type == GIDRoCE2 && source.isIPv4() {
		h := b[grhBytes-headerIPv4:]
		h[0], h[1], h[8], h[9] = 0x45, a.class, a.hop, protocolUDP
		be.PutUint16(h[2:], uint16(headerIPv4+roceUDPHeaders+n))
		copy(h[12:], source.Addr[12:])
		copy(h[16:], a.gid[12:])
		var sum uint32
		for i := 0; i < headerIPv4; i += 2 {
			sum += uint32(be.Uint16(h[i:]))
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		be.PutUint16(h[10:], ^uint16(sum))
		return
	}
	next := uint8(nextHeaderBTH)
	if source.Type == GIDRoCE2 {
		next = protocolUDP
	}
	be.PutUint32(b, 6<<28|uint32(a.class)<<20|a.grh&avFlowMask)
	be.PutUint16(b[4:], uint16(roceUDPHeaders+n))
	b[6], b[7] = next, a.hop
	copy(b[8:], source.Addr[:])
	copy(b[24:], a.gid[:])
}
