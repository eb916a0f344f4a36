package model

import "slices"

// loadConsumer reads how far the program has got.
func (q *cq) loadConsumer() {
	ci, err := q.f.mem.Load32(q.db + recordCI)
	if err != nil {
		return
	}
	// The record has the low 24 bits of a count that lags by less than a ring.
	left := (q.producer - ci) & indexMask
	if left > q.entries {
		q.d.m.violation("CQ %#x: the consumer index in the doorbell record is %#x, the producer's %#x: they differ by more than the %d entries", q.cqn, ci, q.producer&indexMask, q.entries)
		return
	}
	q.consumer = q.producer - left
}

// add writes a completion. It says false when the queue is in error: then the
// completion is lost, and the queue pair must fail.
func (q *cq) add(c *completion) bool {
	c.cq = q
	if q.dead {
		return false
	}
	c.stamp = q.stamp()
	// What is held stays so when the faults are taken back, and what follows behind it.
	if len(q.d.m.faults.list) > 0 || q.holding {
		switch q.d.m.faults.completion(q, c) {
		case cqeHeld:
			return true
		case cqeOverrun:
			q.overrun()
			return false
		case cqeLost:
			return true
		case cqeDoubled:
			if !q.write(c) {
				return false
			}
		}
	}
	return q.write(c)
}

// stamp is the time, as completions of the queue have it.
func (q *cq) stamp() uint64 {
	if q.realTime || q.d.cfg.Timestamps == RealTimeOnly {
		return q.d.realTime()
	}
	return q.d.cycles()
}

// hold keeps a completion for later.
func (q *cq) hold(c *completion) {
	k := *c
	k.inline = slices.Clone(c.inline)
	q.held = append(q.held, k)
}

// write puts a completion into the ring, or to those that will be compressed.
func (q *cq) write(c *completion) bool {
	if q.compress && q.compressible(c) {
		return true
	}
	q.endSession()
	return q.emit(c)
}

// emit puts a completion into the ring.
func (q *cq) emit(c *completion) bool {
	if !q.room(1) {
		return false
	}
	q.put(c)
	q.produced(1, c.solicited || c.failed())
	return true
}

// room says whether n more completions fit. If not, the queue overran.
func (q *cq) room(n uint32) bool {
	if q.dead {
		return false
	}
	if q.ignoreOverrun || q.producer-q.consumer+n <= q.entries {
		return true
	}
	if q.loadConsumer(); q.producer-q.consumer+n <= q.entries {
		return true
	}
	q.overrun()
	return false
}

// overrun puts the queue into error for good.
func (q *cq) overrun() {
	if q.dead {
		return
	}
	q.dead = true
	q.stopTimer()
	q.session = q.session[:0]
	q.f.async(q.asyncFile, q.userHandle, eventCQErr, &q.async)
	// Queue pairs notice when they are to complete something; those that are attached
	// to it are lost.
	for _, p := range q.d.pairs() {
		if p.sendCQ == q || p.recvCQ == q {
			p.fatal()
		}
	}
}

// put writes the CQE at the producer index, its owner byte last.
func (q *cq) put(c *completion) {
	b := q.d.m.entry[:q.size]
	before := b[:q.size-cqeBytes]
	clear(before)
	cqe := b[len(before):]
	c.encode(cqe, q.f.ctx.version)
	c.encodeInline(before, cqe)
	cqe[63] |= q.owner(q.producer)
	q.publish(q.producer, b)
	if q.d.m.observe != nil {
		q.tell(c, q.producer, false)
	}
	q.producer++
}

// owner is the owner bit of an index: it changes with every lap.
func (q *cq) owner(index uint32) uint8 {
	if index&q.entries != 0 {
		return bitOwner
	}
	return 0
}

func (q *cq) slot(index uint32) uint64 {
	return q.buf + uint64(index&(q.entries-1))*uint64(q.size)
}

func (q *cq) publish(index uint32, b []byte) {
	if q.f.mem.Publish(q.slot(index), b) != nil {
		q.d.m.violation("CQ %#x: its ring at %#x was unmapped before it was destroyed", q.cqn, q.buf)
	}
}
