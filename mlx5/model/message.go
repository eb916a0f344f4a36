package model

import "encoding/binary"

// peer is the queue pair at the other end of a connection: by address, then by number. It
// is nil when packets would get lost on the way or be dropped there.
func (q *qp) peer() *qp {
	a := &q.attr
	var to *port
	p := q.port
	if !p.up {
		return nil
	}
	var source GID
	if a.path.IsGlobal != 0 {
		to = q.d.m.gids[a.path.DGID]
		if source = p.gid(int(a.path.SGIDIndex)); source.empty() || to == nil || !to.has(a.path.DGID, source.Type) {
			return nil
		}
	} else {
		to = q.d.m.lids[a.path.DLID]
	}
	if to == nil || !to.up || to.d.gone || to.ib != p.ib {
		return nil
	}
	r := to.d.qps[a.dest]
	switch {
	case r == nil || r.typ != q.typ || r.port != to || r.attr.dest != q.qpn,
		r.state != stateRTR && r.state != stateRTS && r.state != stateSQD && r.state != stateSQE,
		!matchKeys(p.pkey(q), to.pkey(r)):
		return nil
	case a.path.IsGlobal != 0 && (r.attr.path.IsGlobal == 0 || r.attr.path.DGID != source.Addr),
		a.path.IsGlobal == 0 && r.attr.path.DLID != p.lid:
		return nil // it is connected to somebody else
	}
	return r
}

// pkey is the P_Key that a queue pair uses: none, which matches nothing, if it moved to a
// port whose table is shorter.
func (p *port) pkey(q *qp) uint16 {
	if int(q.attr.pkeyIndex) >= len(p.pkeys) {
		return 0
	}
	return p.pkeys[q.attr.pkeyIndex]
}

// matchKeys compares two P_Keys: one of both at least is a full member's.
func matchKeys(a, b uint16) bool {
	const full = 1 << 15
	return (a^b)&^full == 0 && (a|b)&full != 0
}

// packets is how many packets a message of n bytes has.
func packets(n uint64, mtu uint8) uint32 {
	size := uint64(128) << mtu
	return uint32(max(1, (n+size-1)/size))
}

// message carries a request of a connected queue pair.
func (q *qp) message(w *wqe) verdict {
	switch {
	case w.isAtomic() && w.length != 8:
		return fails(syndLocalLength, vendAtomicSize)
	case w.length > maxMessage:
		if v := q.checkLocal(w); v.outcome == failed {
			return v
		}
		return fails(syndLocalLength, vendTooLong)
	}
	if v := q.checkLocal(w); v.outcome == failed {
		return v
	}
	r := q.peer()
	n := packets(w.length, q.attr.mtu)
	if q.typ == typeUC {
		psn := (q.sendPSN + n) & psnMask
		q.sendPSN = psn
		if r != nil {
			// A first packet is welcome with any number.
			r.recvPSN = psn
			r.respond(q, w)
		}
		return verdict{}
	}
	if r == nil || r.recvPSN != q.sendPSN {
		return verdict{outcome: lost}
	}
	v := r.respond(q, w)
	if v.outcome == carried {
		q.sendPSN, r.recvPSN = (q.sendPSN+n)&psnMask, (r.recvPSN+n)&psnMask
	}
	return v
}

// checkLocal looks at the requester's own memory: m.src is what is sent, m.dst
// where the answer goes.
func (q *qp) checkLocal(w *wqe) verdict {
	if w.opcode != wqeRead && !w.isAtomic() {
		if reason := q.gather(w); reason != keyGood {
			return fails(syndLocalProt, vendGather+reason)
		}
		return verdict{}
	}
	m := q.d.m
	var reason uint8
	if m.dst, reason = q.spans(m.dst[:0], w.local, w.length, localWrite); reason != keyGood {
		return fails(syndLocalProt, vendReadScatter+reason)
	}
	return verdict{}
}

// respond is what the responder does with a request that arrives.
func (r *qp) respond(q *qp, w *wqe) verdict {
	if !r.established && r.state == stateRTR {
		r.established = true
		r.raise(eventCommEst)
	}
	if q.attr.mtu > r.attr.mtu && w.opcode != wqeRead && w.length > 128<<r.attr.mtu {
		return r.reject(q, eventQPReqErr, syndInvalidReq, vendInvalidReq)
	}
	switch w.opcode {
	case wqeWrite, wqeWriteImm:
		return r.written(q, w)
	case wqeRead:
		return r.readFrom(q, w)
	case wqeCompSwap, wqeFetchAdd:
		return r.atomic(q, w)
	}
	return r.sentTo(q, w)
}

// reject refuses a request for the responder's reasons, without a completion of its own: it
// fails, and so does the requester. On UC nobody hears of it.
func (r *qp) reject(q *qp, event uint32, syndrome, vendor uint8) verdict {
	if r.typ == typeUC {
		return verdict{}
	}
	r.raise(event)
	r.enter(stateErr)
	return fails(syndrome, vendor)
}

// remote finds the responder's memory for a request, to span.
func (r *qp) remote(w *wqe, n uint64, access uint32) (s span, ok bool) {
	if n == 0 {
		return s, true // the key is not looked at
	}
	k, at, reason := r.remoteKey(w.rkey, w.remote, n, access)
	if reason != keyGood {
		return s, false
	}
	return span{mem: k.f.mem, addr: at, n: n}, true
}

// written carries an RDMA WRITE.
func (r *qp) written(q *qp, w *wqe) verdict {
	m := r.d.m
	if r.attr.access&remoteWrite == 0 {
		return r.reject(q, eventQPReqErr, syndInvalidReq, vendInvalidReq)
	}
	s, ok := r.remote(w, w.length, remoteWrite)
	if !ok {
		return r.reject(q, eventQPAccessErr, syndRemoteAccess, vendRemoteAccess)
	}
	var recv recvWQE
	if w.opcode == wqeWriteImm {
		if recv, ok = r.nextReceive(); !ok {
			return r.unready()
		}
	}
	m.dst = append(m.dst[:0], s)
	switch m.copy(w.length) {
	case readFailed:
		return fails(syndLocalProt, vendGather+keyInvalid)
	case writeFailed:
		return r.reject(q, eventQPAccessErr, syndRemoteAccess, vendRemoteAccess)
	}
	if w.opcode == wqeWrite {
		return verdict{}
	}
	r.take(&recv)
	c := r.received(opWriteImm, recv.index)
	c.bytes, c.imm, c.solicited = uint32(w.length), w.imm, w.solicit
	return r.deliver(q, &c)
}

// unready answers that there is no receive. UC drops the message.
func (r *qp) unready() verdict {
	if r.typ == typeUC {
		return verdict{}
	}
	if r.state == stateErr {
		// Looking for a receive found that the queue is broken.
		return fails(syndRemoteOp, vendRemoteOp)
	}
	return verdict{outcome: notReady, timer: r.attr.minRNR}
}

// deliver completes a receive.
func (r *qp) deliver(q *qp, c *completion) verdict {
	c.source, c.slid = q.qpn, 0
	if q.port.ib {
		c.slid = q.port.lid
		c.source |= uint32(q.attr.path.SL&0xf) << 24
	}
	if r.recvCQ.add(c) {
		return verdict{}
	}
	r.fatal()
	if r.typ == typeUC {
		return verdict{}
	}
	return fails(syndRemoteOp, vendRemoteOp)
}

// sentTo carries a SEND.
func (r *qp) sentTo(q *qp, w *wqe) verdict {
	recv, ok := r.nextReceive()
	if !ok {
		return r.unready()
	}
	opcode := uint8(opSend)
	switch w.opcode {
	case wqeSendImm:
		opcode = opSendImm
	case wqeSendInv:
		opcode = opSendInv
	}
	c := r.received(opcode, recv.index)
	c.bytes, c.solicited = uint32(w.length), w.solicit
	if opcode != opSend {
		c.imm = w.imm
	}
	syndrome, vendor, from := r.scatter(&recv, w.length, &c)
	switch {
	case from == readFailed:
		return fails(syndLocalProt, vendGather+keyInvalid)
	case syndrome == syndLocalLength && r.typ == typeUC && r.srq == nil:
		return verdict{} // UC drops the message and keeps the receive
	case syndrome == 0 && opcode == opSendInv && !r.invalidate(w.imm):
		syndrome, vendor = syndLocalAccess, vendInvalidate
	}
	r.take(&recv)
	if syndrome == 0 {
		return r.deliver(q, &c)
	}
	e := r.received(opRespErr, recv.index)
	e.syndrome, e.vendor = syndrome, vendor
	if !r.recvCQ.add(&e) {
		r.fatal()
	}
	r.enter(stateErr)
	switch {
	case r.typ == typeUC:
		return verdict{}
	case syndrome == syndLocalLength:
		return fails(syndInvalidReq, vendInvalidReq)
	case syndrome == syndLocalAccess:
		return fails(syndRemoteAccess, vendRemoteAccess)
	}
	return fails(syndRemoteOp, vendRemoteOp)
}

// readFrom carries an RDMA READ.
func (r *qp) readFrom(q *qp, w *wqe) verdict {
	m := r.d.m
	if r.attr.access&remoteRead == 0 || r.attr.maxDestRead == 0 {
		return r.reject(q, eventQPReqErr, syndInvalidReq, vendInvalidReq)
	}
	s, ok := r.remote(w, w.length, remoteRead)
	if !ok {
		return r.reject(q, eventQPAccessErr, syndRemoteAccess, vendRemoteAccess)
	}
	m.src = append(m.src[:0], s)
	v := verdict{bytes: uint32(w.length)}
	q.answerInline(w, &v)
	switch m.copy(w.length) {
	case readFailed:
		return r.reject(q, eventQPAccessErr, syndRemoteAccess, vendRemoteAccess)
	case writeFailed:
		return fails(syndLocalProt, vendReadScatter+keyInvalid)
	}
	return v
}

// answerInline makes the completion the place of what a read or an atomic brings, if
// there will be one and it fits.
func (q *qp) answerInline(w *wqe, v *verdict) {
	if !q.scatterSend || w.length == 0 || w.length > q.sendCQ.inlineRoom() || w.ce&ceSignal == 0 {
		return
	}
	b := q.d.m.inline[:q.sendCQ.inlineRoom()]
	clear(b)
	q.d.m.dst = append(q.d.m.dst[:0], span{b: b, n: w.length})
	v.inline = b
}

// atomic carries a compare-and-swap or fetch-and-add. The word is in the byte order of
// the machine, the operands of the request big-endian.
func (r *qp) atomic(q *qp, w *wqe) verdict {
	m := r.d.m
	if r.attr.access&remoteAtomic == 0 || r.attr.maxDestRead == 0 || w.remote%8 != 0 {
		return r.reject(q, eventQPReqErr, syndInvalidReq, vendInvalidReq)
	}
	s, ok := r.remote(w, 8, remoteAtomic)
	if !ok {
		return r.reject(q, eventQPAccessErr, syndRemoteAccess, vendRemoteAccess)
	}
	old := m.word[:]
	if s.mem.Read(s.addr, old) != nil {
		return r.reject(q, eventQPAccessErr, syndRemoteAccess, vendRemoteAccess)
	}
	was := binary.NativeEndian.Uint64(old)
	is := was + w.swapAdd
	if w.opcode == wqeCompSwap {
		if is = was; was == w.compare {
			is = w.swapAdd
		}
	}
	if is != was {
		b := m.chunk[:8]
		binary.NativeEndian.PutUint64(b, is)
		if s.mem.Write(s.addr, b) != nil {
			return r.reject(q, eventQPAccessErr, syndRemoteAccess, vendRemoteAccess)
		}
	}
	m.src = append(m.src[:0], span{b: old, n: 8})
	v := verdict{bytes: 8}
	q.answerInline(w, &v)
	if m.copy(8) != copied {
		return fails(syndLocalProt, vendReadScatter+keyInvalid)
	}
	return v
}
