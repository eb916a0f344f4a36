package model

// An outcome says what became of an attempt to carry a request.
type outcome uint8

const (
	// carried: it is done, and its completion follows.
	carried outcome = iota
	// failed: it ends with the syndrome and vendor syndrome of verdict.
	failed
	// lost: nothing came back; it is sent again after the time-out.
	lost
	// notReady: the peer has no receive; it is sent again after the peer's timer.
	notReady
	// waits: a fault holds it up; it is tried again later.
	waits
)

// verdict is an outcome with what belongs to it.
type verdict struct {
	outcome
	syndrome, vendor uint8
	bytes            uint32 // that a read or an atomic brought
	inline           []byte // and what, if it goes into the CQE
	timer            uint8  // RNR timer code
}

func fails(syndrome, vendor uint8) verdict {
	return verdict{outcome: failed, syndrome: syndrome, vendor: vendor}
}

// list has the queue pair looked at before the lock is given back.
func (q *qp) list() {
	if !q.listed {
		q.listed = true
		q.d.m.ready = append(q.d.m.ready, q)
	}
}

// waiting says whether the request at the head waits for something.
func (q *qp) waiting() bool { return q.timer != nil || q.stuck || q.behind > 0 }

// work does what there is to do.
func (q *qp) work() {
	if q.d.gone || q.f.closed {
		return
	}
	switch q.state {
	case stateRTS, stateSQD:
		q.run()
	case stateSQE:
		q.flushSends()
	case stateErr:
		q.flushSends()
		q.flushReceives()
	}
}

// run carries out what was posted.
func (q *qp) run() {
	var w wqe
	for q.state == stateRTS && q.sendCI != q.sendPI && !q.waiting() {
		vendor := q.fetch(&w)
		if vendor != 0 {
			v := fails(syndLocalQPOp, vendor)
			q.finish(&w, &v)
			return
		}
		var v verdict
		if q.expired {
			q.expired = false
			v = fails(syndRetry, vendTimeout)
		} else {
			v = q.attempt(&w)
		}
		switch v.outcome {
		case lost:
			if q.d.m.observe != nil {
				q.tell(&w, OutcomeLost, &v, q.ackTimeout())
			}
			q.timeOut()
			continue
		case notReady:
			if q.d.m.observe != nil {
				q.tell(&w, OutcomeNotReady, &v, rnrTimer(v.timer))
			}
			if q.rnrAgain(v.timer) {
				continue
			}
			v = fails(syndRNRRetry, vendRNR)
		case waits:
			if q.d.m.observe != nil {
				q.tell(&w, OutcomeHeldUp, &v, 0)
			}
			continue
		}
		q.finish(&w, &v)
	}
	if q.state == stateSQD && q.drainEvent {
		q.drainEvent = false
		q.raise(eventSQDrained)
	}
}

// attempt carries a request, or does with it what a fault wants.
func (q *qp) attempt(w *wqe) verdict {
	m := q.d.m
	if len(m.faults.list) > 0 && !q.faultedHead {
		if v, ok := m.faults.request(q, w); ok {
			return v
		}
	}
	q.faultedHead = false
	m.passed(q)
	switch {
	case w.opcode == wqeNop:
		return verdict{}
	case w.opcode == wqeUMR:
		return q.umr(w)
	case q.typ == typeUD:
		return q.datagram(w)
	}
	return q.message(w)
}

// finish completes a request.
func (q *qp) finish(w *wqe, v *verdict) {
	if q.d.m.observe != nil {
		o := OutcomeCarried
		if v.outcome == failed {
			o = OutcomeFailed
		}
		q.tell(w, o, v, 0)
	}
	q.sendCI += w.blocks
	q.refill()
	c := completion{opcode: opRequester, sendOp: w.opcode, qpn: q.qpn, uidx: q.uidx, counter: w.index}
	if v.outcome != failed {
		if w.ce&ceSignal == 0 {
			return
		}
		c.bytes, c.inline, c.solicited = v.bytes, v.inline, w.ce == ceEvent
		if !q.sendCQ.add(&c) {
			q.fatal()
		}
		return
	}
	c.opcode, c.syndrome, c.vendor = opReqErr, v.syndrome, v.vendor
	added := q.sendCQ.add(&c)
	switch {
	case !added:
		q.fatal()
	case q.typ == typeRC:
		q.enter(stateErr)
	case q.state == stateRTS:
		// UC and UD go on receiving.
		q.enter(stateSQE)
	}
}

// flushSends ends what was posted and not carried out. Every request gets a
// completion, signalled or not.
func (q *qp) flushSends() {
	if !q.loadSends() {
		return
	}
	var w wqe
	for q.sendCI != q.sendPI {
		q.fetch(&w)
		q.sendCI += max(1, w.blocks)
		if q.d.m.observe != nil {
			q.tell(&w, OutcomeFlushed, &verdict{}, 0)
		}
		c := completion{opcode: opReqErr, sendOp: w.opcode, qpn: q.qpn, uidx: q.uidx, counter: w.index, syndrome: syndFlushed, vendor: vendFlushed}
		if !q.sendCQ.add(&c) {
			return
		}
	}
}

// flushReceives ends the receives that are left. Those of a shared queue stay.
func (q *qp) flushReceives() {
	if q.srq != nil || q.receives == 0 || !q.loadReceives() {
		return
	}
	for q.recvCI != q.recvPI {
		c := q.received(opRespErr, q.recvCI)
		c.syndrome, c.vendor = syndFlushed, vendFlushed
		q.recvCI++
		if !q.recvCQ.add(&c) {
			return
		}
	}
}

// loadSends reads from the doorbell record how far requests were posted.
func (q *qp) loadSends() bool {
	if q.blocks == 0 {
		return true
	}
	v, err := q.f.mem.Load32(q.db + recordSend)
	if err != nil {
		return false
	}
	if n := uint16(v) - q.sendCI; uint32(n) > q.blocks {
		q.d.m.violation("QP %#x: its doorbell record says that %d blocks are posted, of %d", q.qpn, n, q.blocks)
		q.sendPI = q.sendCI
		q.fatal()
		return false
	}
	q.sendPI = uint16(v)
	return true
}

// loadReceives reads from the doorbell record how far receives were posted.
func (q *qp) loadReceives() bool {
	v, err := q.f.mem.Load32(q.db + recordRecv)
	if err != nil {
		return false
	}
	if n := uint16(v) - q.recvCI; uint32(n) > q.receives {
		q.d.m.violation("QP %#x: its doorbell record says that %d receives are posted, of %d", q.qpn, n, q.receives)
		q.recvPI = q.recvCI
		q.fatal()
		return false
	}
	q.recvPI = uint16(v)
	return true
}
