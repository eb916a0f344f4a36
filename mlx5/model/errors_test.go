package model_test

import (
	"testing"
)

// A request that fails ends with the syndrome that its fault has, the peer with its own, and
// all that was posted behind it, on both sides, is flushed in order.
func TestRequestErrors(t *testing.T) {
	type want struct{ syndrome, vendor uint8 }
	const accessErr, reqErr = 3, 2
	for _, c := range []struct {
		name    string
		access  uint32              // of the queue pairs: all by default
		post    func(w *two) uint16 // posts the bad request
		end     want                // of it
		peer    want                // of the peer's receive, zero if it has no completion
		peerErr bool                // the peer is in error
		event   uint32              // of the peer's, 0 if none
	}{
		{name: "no such lkey", end: want{0x04, 0x51}, post: func(w *two) uint16 {
			return w.qa.post(opSend, 0, 0, sge(&region{addr: w.ma.addr, key: w.ma.key ^ 1}, 0, 8))
		}},
		{name: "lkey of another PD", end: want{0x04, 0x52}, post: func(w *two) uint16 {
			return w.qa.post(opSend, 0, 0, sge(w.a.mrIn(w.a.allocPD(), 4096, allAccess), 0, 8))
		}},
		{name: "beyond a region", end: want{0x04, 0x54}, post: func(w *two) uint16 {
			return w.qa.post(opWrite, 0, 0, raddr(w.mb, 0), sge(w.ma, len(w.ma.b)-7, 8))
		}},
		{name: "before a region", end: want{0x04, 0x54}, post: func(w *two) uint16 {
			return w.qa.post(opWrite, 0, 0, raddr(w.mb, 0), sge(w.ma, -1, 8))
		}},
		{name: "a count of zero is 2 GiB", end: want{0x04, 0x54}, post: func(w *two) uint16 {
			return w.qa.post(opSend, 0, 0, sge(w.ma, 0, 0))
		}},
		{name: "read into a read-only region", end: want{0x04, 0x23}, post: func(w *two) uint16 {
			return w.qa.post(opRead, 0, 0, raddr(w.mb, 0), sge(w.a.mr(4096, remoteRead), 0, 8))
		}},
		{name: "no such rkey", end: want{0x13, 0x88}, peerErr: true, event: accessErr, post: func(w *two) uint16 {
			return w.qa.post(opWrite, 0, 0, raddr(&region{addr: w.mb.addr, key: w.mb.key + 256}, 0), sge(w.ma, 0, 8))
		}},
		{name: "rkey of another PD", end: want{0x13, 0x88}, peerErr: true, event: accessErr, post: func(w *two) uint16 {
			return w.qa.post(opRead, 0, 0, raddr(w.b.mrIn(w.b.allocPD(), 4096, allAccess), 0), sge(w.ma, 0, 8))
		}},
		{name: "write without the right", end: want{0x13, 0x88}, peerErr: true, event: accessErr, post: func(w *two) uint16 {
			return w.qa.post(opWrite, 0, 0, raddr(w.b.mr(4096, localWrite|remoteRead), 0), sge(w.ma, 0, 8))
		}},
		{name: "read without the right", end: want{0x13, 0x88}, peerErr: true, event: accessErr, post: func(w *two) uint16 {
			return w.qa.post(opRead, 0, 0, raddr(w.b.mr(4096, localWrite|remoteWrite), 0), sge(w.ma, 0, 8))
		}},
		{name: "beyond a remote region", end: want{0x13, 0x88}, peerErr: true, event: accessErr, post: func(w *two) uint16 {
			return w.qa.post(opWrite, 0, 0, raddr(w.mb, len(w.mb.b)-7), sge(w.ma, 0, 8))
		}},
		{name: "write to a queue pair without the right", access: remoteRead, end: want{0x12, 0x8a}, peerErr: true, event: reqErr, post: func(w *two) uint16 {
			return w.qa.post(opWrite, 0, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
		}},
		{name: "read from a queue pair without the right", access: remoteWrite, end: want{0x12, 0x8a}, peerErr: true, event: reqErr, post: func(w *two) uint16 {
			return w.qa.post(opRead, 0, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
		}},
		{name: "a crooked atomic", end: want{0x12, 0x8a}, peerErr: true, event: reqErr, post: func(w *two) uint16 {
			return w.qa.post(opFAA, 0, 0, raddr(w.mb, 4), atomicOperands(1, 0), sge(w.ma, 0, 8))
		}},
		{name: "an atomic of four bytes", end: want{0x01, 0xd3}, post: func(w *two) uint16 {
			return w.qa.post(opFAA, 0, 0, raddr(w.mb, 8), atomicOperands(1, 0), sge(w.ma, 0, 4))
		}},
		{name: "receive too small", end: want{0x12, 0x8a}, peer: want{0x01, 0xd4}, peerErr: true, post: func(w *two) uint16 {
			w.qb.recv(sge(w.mb, 0, 7))
			return w.qa.post(opSend, 0, 0, sge(w.ma, 0, 8))
		}},
		{name: "receive with a bad key", end: want{0x14, 0x89}, peer: want{0x04, 0x31}, peerErr: true, post: func(w *two) uint16 {
			w.qb.recv(sge(&region{addr: w.mb.addr, key: 77}, 0, 8))
			return w.qa.post(opSend, 0, 0, sge(w.ma, 0, 8))
		}},
		{name: "receive into a read-only region", end: want{0x14, 0x89}, peer: want{0x04, 0x33}, peerErr: true, post: func(w *two) uint16 {
			w.qb.recv(sge(w.b.mr(4096, remoteRead), 0, 8))
			return w.qa.post(opSend, 0, 0, sge(w.ma, 0, 8))
		}},
		{name: "wrong index", end: want{0x02, 0x68}, post: func(w *two) uint16 {
			w.qa.ring(w.qa.raw([]byte{0, 0, 9, opSend, 0, byte(w.qa.qpn >> 8), byte(w.qa.qpn), 1, 0, 0, 0, 0, 0, 0, 0, 0}))
			return 0
		}},
		{name: "wrong QPN", end: want{0x02, 0x68}, post: func(w *two) uint16 {
			w.qa.raw([]byte{0, 0, 0, opSend, 0, 9, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0})
			w.qa.ring(uint64(opSend)<<32 | uint64(w.qa.qpn)<<8 | 1)
			return 0
		}},
		{name: "reserved opcode", end: want{0x02, 0x71}, post: func(w *two) uint16 { return w.qa.post(0x3f, 0, 0) }},
		{name: "no remote address", end: want{0x02, 0x6e}, post: func(w *two) uint16 { return w.qa.post(opWrite, 0, 0) }},
		{name: "inline data in a read", end: want{0x02, 0x70}, post: func(w *two) uint16 {
			return w.qa.post(opRead, 0, 0, raddr(w.mb, 0), inline("x"))
		}},
		{name: "inline data beyond the request", end: want{0x02, 0x6f}, post: func(w *two) uint16 {
			b := inline("x")
			b[3] = 100
			return w.qa.post(opSend, 0, 0, b)
		}},
		{name: "more than was posted", end: want{0x02, 0x68}, post: func(w *two) uint16 {
			w.qa.raw([]byte{0, 0, 0, opSend, 0, byte(w.qa.qpn >> 8), byte(w.qa.qpn), 9, 0, 0, 0, 0, 0, 0, 0, 0})
			w.qa.ring(uint64(opSend)<<32 | uint64(w.qa.qpn)<<8 | 1)
			return 0
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := usual
			if c.access != 0 {
				p.access = c.access
			}
			w := newTwo(t, rc, cqOptions{}, qpOptions{}, p)
			index := c.post(w)
			checkError(t, w.qa.scq, 13, w.qa.qpn, index, c.end.syndrome, c.end.vendor)
			if got := w.qa.state(); got != stateErr {
				t.Errorf("state %d", got)
			}
			if c.peer != (want{}) {
				checkError(t, w.qb.rcq, 14, w.qb.qpn, 0, c.peer.syndrome, c.peer.vendor)
			}
			w.qb.rcq.none()
			if got := w.qb.state() == stateErr; got != c.peerErr {
				t.Errorf("the peer is in error: %v", got)
			}
			if c.event != 0 {
				w.b.wantAsync(w.qb.user, c.event)
			}
			if e, typ, ok := w.b.asyncEvent(); ok {
				t.Errorf("asynchronous event %d of %#x", typ, e)
			}
			// Later requests and receives are flushed, signalled or not, in order.
			i1, i2 := w.qa.post(opSend, 0, 0), w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
			checkError(t, w.qa.scq, 13, w.qa.qpn, i1, 0x05, 0xf9)
			checkError(t, w.qa.scq, 13, w.qa.qpn, i2, 0x05, 0xf9)
			// Receives have no doorbell: the next one of any kind finds them, or Recheck.
			r := w.qa.recv(sge(w.ma, 0, 8))
			w.a.f.Recheck()
			checkError(t, w.qa.rcq, 14, w.qa.qpn, r, 0x05, 0xf9)
			r = w.qa.recv(sge(w.ma, 0, 8))
			w.qa.rcq.none()
			w.qa.rcq.arm(false)
			checkError(t, w.qa.rcq, 14, w.qa.qpn, r, 0x05, 0xf9)
		})
	}
}

// Moving to ERR flushes what is posted; RESET drops it, and everything starts anew.
func TestFlushAndReset(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	w.qb.to(stateReset) // so that requests wait
	i1 := w.qa.post(opSend, signaled, 0)
	i2 := w.qa.post(opSend, 0, 0)
	r1, r2 := w.qa.recv(), w.qa.recv()
	w.qa.scq.none()
	w.qa.to(stateErr)
	for _, i := range []uint16{i1, i2} {
		checkError(t, w.qa.scq, 13, w.qa.qpn, i, 0x05, 0xf9)
	}
	for _, i := range []uint16{r1, r2} {
		checkError(t, w.qa.rcq, 14, w.qa.qpn, i, 0x05, 0xf9)
	}
	w.qa.scq.none()
	w.qa.to(stateReset)
	for _, q := range []*pair{w.qa, w.qb} {
		q.pi, q.recvPI = 0, 0
		clear(q.db[:8])
	}
	connect(w.qa, w.qb, usual)
	w.qb.recv()
	checkSend(t, w.qa, opSend, w.qa.post(opSend, signaled, 0), 0)
	noViolations(t, w.m)
}

// SQD stops sending after the request that is on its way, and says so if asked.
func TestSQD(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	m := modifyTo(stateSQD)
	m.AttrMask |= 1 << 2
	m.EnSqdAsyncNotify = 1
	w.a.must("SQD", w.qa.modify(m))
	w.a.wantAsync(w.qa.user, 5)
	w.qb.recv()
	i := w.qa.post(opSend, signaled, 0)
	w.qa.scq.none()
	w.qa.to(stateRTS)
	checkSend(t, w.qa, opSend, i, 0)
	noViolations(t, w.m)
}

// What programs do that no device would notice is written down.
func TestViolations(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *two)
	}{
		{"doorbell without its record", func(w *two) {
			_, first := w.qa.put(opSend, 0, 0)
			store(w.qa.db[4:], 0)
			w.qa.ring(first)
		}},
		{"doorbell for an unknown queue pair", func(w *two) { w.a.f.Ring(w.a.ncID, 0x800, 0x999999<<8|1) }},
		{"doorbell of another program's queue pair", func(w *two) { w.a.f.Ring(w.a.ncID, 0x800, uint64(w.qb.qpn)<<8|1) }},
		{"doorbell at no register", func(w *two) { w.a.f.Ring(w.a.ncID, 0x880, uint64(w.qa.qpn)<<8|1) }},
		{"doorbell at an unknown page", func(w *two) { w.a.f.Ring(77, 0x800, uint64(w.qa.qpn)<<8|1) }},
		{"doorbell at another page", func(w *two) {
			id, _ := w.a.uar(1)
			w.a.f.Ring(id, 0x800, uint64(w.qa.qpn)<<8|1)
		}},
		{"arm without its record", func(w *two) { w.a.f.Ring(w.a.ncID, 0x20, 1<<32|uint64(w.qa.scq.cqn)) }},
		{"arm of an unknown queue", func(w *two) { w.a.f.Ring(w.a.ncID, 0x20, 0x777) }},
		{"more requests than the queue holds", func(w *two) {
			store(w.qa.db[4:], 65)
			w.qa.ring(uint64(opSend)<<32 | uint64(w.qa.qpn)<<8 | 1)
		}},
		{"more receives than the queue holds", func(w *two) {
			store(w.qb.db, 17)
			w.qa.post(opSend, 0, 0)
		}},
		{"completion queue that is not initialised", func(w *two) { w.a.cq(8, cqOptions{dirty: true}) }},
		{"consumer index ahead of the producer", func(w *two) {
			store(w.qa.scq.db, 50)
			for range 40 {
				w.qa.post(opNop, signaled, 0)
			}
		}},
		{"user index taken twice", func(w *two) {
			w.a.uidx--
			w.a.qp(rc, w.qa.scq, w.qa.rcq, qpOptions{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
			c.do(w)
			if len(w.m.Violations()) == 0 {
				t.Error("nobody complains")
			}
		})
	}
}

// A context that was imported counts user indices of its own, and has completion queues of
// its own.
func TestUserIndexOfAnotherQueue(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	q := w.a.cq(64, cqOptions{})
	w.a.uidx--
	w.a.qp(rc, q, q, qpOptions{})
	noViolations(t, w.m)
}
