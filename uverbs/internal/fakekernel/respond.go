package fakekernel

// respond does the peer's part of a request of q and returns the verdict that
// the requester gets.
func (p *qp) respond(q *qp, w *sendWQE, data []byte) int {
	var recv *recvWQE
	if w.consumesReceive() {
		r, ok := p.peekRecv()
		if !ok {
			return notReady
		}
		recv = &r
	}
	access := w.rights()
	if p.attr.QPAccessFlags&access != access || w.takesDepth() && p.attr.MaxDestRdAtomic == 0 {
		return p.refuse(nil, 0, statusRemoteReq)
	}
	if w.isRDMA() && (w.length > 0 || w.opcode == opFlush) {
		at, ok := p.ctx.k.remote(p, w.rkey, w.remote, uint64(w.length), access)
		if !ok {
			return p.refuse(nil, 0, statusRemoteAcc)
		}
		switch w.opcode {
		case opRead:
			return p.read(q, w, at)
		case opCompareSwap, opFetchAdd:
			return p.fetch(q, w, at)
		case opFlush:
			return statusOK // there is nothing to flush
		case opAtomicWrite:
			if at%atomicSize != 0 {
				return p.refuse(nil, 0, statusRemoteReq)
			}
		}
		if (memory{}).Write(at, data) != nil {
			return p.refuse(nil, 0, statusRemoteAcc)
		}
	}
	if recv == nil {
		return statusOK
	}
	c := completion{wrID: recv.id, opcode: 128, byteLen: w.length, qpn: p.number, flags: wcGRH, port: p.attr.PortNum}
	if w.opcode == opWriteImm {
		c.opcode = 129
	} else if fits, ok := p.copyIn(recv.sges, data); !fits {
		return p.refuse(recv, statusLocalQPOp, statusRemoteOp)
	} else if !ok {
		return p.refuse(recv, statusLocalProt, statusRemoteOp)
	}
	if w.hasImm() {
		c.flags |= wcWithImm
		c.imm = w.imm
	}
	if w.opcode == opSendInvalidate {
		if !p.invalidate(w.invalidateRKey()) {
			// The requester's work was done.
			return p.refuse(recv, statusRemoteReq, statusOK)
		}
		c.flags |= wcInvalidated
		c.imm = w.imm
	}
	p.popRecv()
	if !p.recv.post(c, w.flags&flagSolicit != 0) {
		// A lost receive completion is more than the peer can bear.
		p.enter(stateErr)
		return statusRemoteOp
	}
	return statusOK
}

// read answers an RDMA read.
func (p *qp) read(q *qp, w *sendWQE, at uint64) int {
	data := make([]byte, w.length)
	if (memory{}).Read(at, data) != nil {
		return p.refuse(nil, 0, statusRemoteAcc)
	}
	if _, ok := q.copyIn(w.sges, data); !ok {
		return statusLocalProt
	}
	return statusOK
}

// refuse ends the peer's queue pair for what it was asked. The receive that was
// hit, if any, ends with own, the request with answer. A UC queue pair drops what
// it does not like, unless its own receive is at fault.
func (p *qp) refuse(recv *recvWQE, own uint32, answer int) int {
	if p.typ == typeUC && own != statusLocalProt && own != statusLocalQPOp {
		return statusOK
	}
	if recv != nil {
		p.popRecv()
		p.recv.post(completion{wrID: recv.id, status: own, qpn: p.number}, true)
	}
	p.enter(stateErr)
	return answer
}

// fail is what happens on entering the error state: everything that was posted
// ends as flushed. What is posted later is not looked at.
func (q *qp) fail() {
	q.stopTimer()
	q.flushSends()
	for q.srq == nil { // receives of an SRQ are for the others
		r, ok := q.peekRecv()
		if !ok {
			return
		}
		q.popRecv()
		q.recv.post(completion{wrID: r.id, status: statusFlushed, qpn: q.number}, true)
	}
}

// flushSends ends the posted sends, also unsignalled ones.
func (q *qp) flushSends() {
	for {
		producer := q.sq.producer()
		if producer > q.sq.mask || producer == q.sqConsumer {
			return
		}
		w, _ := q.parseSend(q.sq.slot(q.sqConsumer))
		q.sqConsumer = (q.sqConsumer + 1) & q.sq.mask
		q.sq.setConsumer(q.sqConsumer)
		q.sendCQ.post(completion{wrID: w.id, status: statusFlushed, qpn: q.number}, false)
	}
}
