package model

// Places for payload in a CQE.
const (
	inline32 = 32
	inline64 = 64
)

// inlineRoom is how much payload a CQE of the queue holds.
func (q *cq) inlineRoom() uint64 {
	if q.size == bigCQEBytes {
		return inline64
	}
	return inline32
}

// received begins the completion of a receive.
func (q *qp) received(opcode uint8, counter uint16) completion {
	c := completion{opcode: opcode, qpn: q.qpn, uidx: q.uidx, counter: counter}
	if q.srq != nil {
		c.srqn = q.srq.srqn
	}
	return c
}

// recvWQE is a receive that a message is to take.
type recvWQE struct {
	index uint16
	raw   []byte
}

// nextReceive finds the receive that the next message takes, without taking it.
func (q *qp) nextReceive() (r recvWQE, ok bool) {
	b := q.d.m.recvBlock[:]
	if q.srq != nil {
		r.index, ok = q.srq.next(b)
		r.raw = b[:q.srq.stride]
		return r, ok
	}
	if q.receives == 0 {
		return r, false
	}
	if q.recvCI == q.recvPI && !q.loadReceives() || q.recvCI == q.recvPI {
		return r, false
	}
	n := uint64(1) << q.shift
	at := q.recvBuf + uint64(uint32(q.recvCI)&(q.receives-1))*n
	if q.f.mem.Read(at, b[:n]) != nil {
		q.fatal()
		return r, false
	}
	return recvWQE{q.recvCI, b[:n]}, true
}

// take takes the receive that nextReceive found.
func (q *qp) take(r *recvWQE) {
	if q.srq != nil {
		q.srq.take(r.raw)
	} else {
		q.recvCI++
	}
}

// segments reads the scatter list of a receive, up to the terminator.
func (q *qp) segments(r *recvWQE) (list []segment, vendor uint8) {
	b := r.raw
	if q.srq != nil {
		b = b[segmentBytes:]
	}
	list = q.d.m.receive[:0]
	for ; len(b) >= segmentBytes; b = b[segmentBytes:] {
		s := readSegment(b)
		if s.n&inlineBit != 0 {
			vendor = vendInlineScatter
			break
		}
		if s.key == terminatorKey && s.n == 0 {
			break
		}
		list = append(list, s)
	}
	q.d.m.receive = list
	return list, vendor
}

// scatter puts n bytes of m.src into a receive, or into the completion if they
// fit there and may go there. A failure is that of the receive.
func (q *qp) scatter(r *recvWQE, n uint64, c *completion) (syndrome, vendor uint8, from side) {
	m := q.d.m
	list, vendor := q.segments(r)
	if vendor != 0 {
		return syndLocalQPOp, vendor, copied
	}
	var room uint64
	for _, s := range list {
		room += s.bytes()
	}
	if n > room {
		return syndLocalLength, vendRecvTooSmall, copied
	}
	if n == 0 {
		return 0, 0, copied
	}
	if q.scatterCQE && n <= q.recvCQ.inlineRoom() {
		b := m.inline[:q.recvCQ.inlineRoom()]
		clear(b)
		m.dst = append(m.dst[:0], span{b: b, n: n})
		c.inline = b
	} else {
		var reason uint8
		if m.dst, reason = q.spans(m.dst[:0], list, n, localWrite); reason != keyGood {
			return syndLocalProt, vendScatter + reason, copied
		}
	}
	if from = m.copy(n); from == writeFailed {
		return syndLocalProt, vendScatter + keyInvalid, copied
	}
	return 0, 0, from
}
