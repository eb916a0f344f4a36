package fakekernel

import (
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/abi"
)

// Statuses of enum ib_wc_status.
const (
	statusOK          = 0
	statusLocalQPOp   = 2
	statusLocalProt   = 4
	statusFlushed     = 5
	statusRemoteReq   = 9
	statusRemoteAcc   = 10
	statusRemoteOp    = 11
	statusRetryExc    = 12
	statusRNRRetryExc = 13

	// The verdicts that end in another attempt.
	lost         = 1 << 16 // nobody answered
	notReady     = 1 << 17 // the peer has no receive
	retryForever = 7
)

// run works on the send queue until it is empty, has to wait, or the queue pair
// fails. The kernel's lock is held.
func (q *qp) run() {
	for !q.destroyed && q.timer == nil {
		if q.state == stateErr {
			q.flushSends()
			return
		}
		producer := q.sq.producer()
		switch {
		case q.state != stateRTS:
			return
		case producer > q.sq.mask:
			// The driver compares the raw index with its own for
			// equality, so it stalls.
			q.ctx.k.violation("the producer index of a send ring is %d, its mask %d", producer, q.sq.mask)
			return
		case producer == q.sqConsumer:
			return
		}
		b := q.sq.slot(q.sqConsumer)
		w, bad := q.parseSend(b)
		verdict := statusLocalQPOp
		if bad != "" {
			q.ctx.k.violation("a send request of QP %d has %s", q.number, bad)
		} else {
			verdict = q.carry(&w)
		}
		if q.state == stateErr {
			// It is its own peer, refused what it asked for, and has
			// flushed the request.
			return
		}
		switch verdict {
		case lost:
			q.retry(&q.retries, q.attr.RetryCnt, q.ackTimeout(), &w, statusRetryExc)
		case notReady:
			q.retry(&q.rnrRetries, q.attr.RNRRetry, rnrTimer(q.peer().attr.MinRNRTimer), &w, statusRNRRetryExc)
		default:
			q.retries, q.rnrRetries = q.attr.RetryCnt, q.attr.RNRRetry
			q.complete(&w, uint32(verdict))
		}
	}
}

// complete ends the request at the head of the send queue.
func (q *qp) complete(w *sendWQE, status uint32) {
	b := q.sq.slot(q.sqConsumer)
	// The driver works in the slot: what a program reads there later is not
	// what it wrote.
	binary.NativeEndian.PutUint32(b[sendStatus:], status)
	binary.NativeEndian.PutUint32(b[sendState:], wqeDone)
	q.sqConsumer = (q.sqConsumer + 1) & q.sq.mask
	q.sq.setConsumer(q.sqConsumer)
	if status != statusOK {
		q.sendCQ.post(completion{wrID: w.id, status: status, qpn: q.number}, false)
		q.enter(stateErr)
		return
	}
	if w.flags&flagSignaled == 0 && !q.sigAll {
		return
	}
	c := completion{wrID: w.id, opcode: w.wcOpcode(), byteLen: w.length, qpn: q.number}
	if w.hasImm() {
		c.flags, c.imm = wcWithImm, w.imm
	}
	q.sendCQ.post(c, false)
}

// retry waits for another attempt, or gives up.
func (q *qp) retry(left *uint8, count uint8, wait time.Duration, w *sendWQE, exceeded uint32) {
	if count != retryForever {
		if *left == 0 {
			q.complete(w, exceeded)
			return
		}
		*left--
	}
	if wait == 0 {
		// No timer: nothing is ever sent again, but the queue pair is
		// stuck, not idle.
		q.timer = time.NewTimer(time.Hour)
		return
	}
	k := q.ctx.k
	var t *time.Timer
	t = time.AfterFunc(wait, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		// Stop cannot keep a timer from firing that waits for the lock.
		if q.timer == t {
			q.timer = nil
			q.run()
		}
	})
	q.timer = t
}

// ackTimeout is how long to wait for an acknowledgement; 0 is for ever.
func (q *qp) ackTimeout() time.Duration {
	if q.attr.Timeout == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << q.attr.Timeout
}

// rnrTimer translates InfiniBand's RNR timer codes.
func rnrTimer(code uint8) time.Duration {
	hundredths := [32]int{
		65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
		4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
	}
	return time.Duration(hundredths[code&31]) * 10 * time.Microsecond
}

// peer is the queue pair at the other end: by address, then by number. It is
// nil when packets would get lost on the way or be dropped there.
func (q *qp) peer() *qp {
	if !q.ctx.dev.up {
		return nil
	}
	from := q.ctx.dev.gids[q.attr.Dest.SGIDIndex]
	for _, d := range q.ctx.k.devices {
		for _, g := range d.gids {
			if g != q.attr.Dest.DGID || !d.up || d.gone {
				continue
			}
			for _, c := range d.contexts {
				for _, o := range c.objects {
					p, ok := o.(*qp)
					if ok && p.typ == q.typ && p.number == q.attr.DestQPNum && p.attr.Dest.DGID == from && (p.state == stateRTR || p.state == stateRTS) {
						return p
					}
				}
			}
		}
	}
	return nil
}

// carry does one request and returns a status for the completion, or a verdict.
func (q *qp) carry(w *sendWQE) int {
	if q.typ == uint64(abi.IB_UVERBS_QPT_UD) {
		return q.datagram(w)
	}
	return q.execute(w)
}

// execute carries one request to the peer and returns a status for the
// completion, or a verdict.
func (q *qp) execute(w *sendWQE) int {
	if w.isLocal() {
		return q.local(w)
	}
	data, ok := q.gather(w)
	if !ok {
		return statusLocalQPOp // Linux 6.1's status for it
	}
	p := q.peer()
	if q.typ == typeUC {
		return q.throw(p, w, data)
	}
	if p == nil || p.rqPSN != q.sqPSN {
		return lost
	}
	if w.length > maxMessage || p.attr.PathMTU != q.attr.PathMTU && int(w.length) > 128<<min(p.attr.PathMTU, q.attr.PathMTU) {
		return p.refuse(nil, statusRemoteReq, statusRemoteReq)
	}
	verdict := p.respond(q, w, data)
	if verdict == statusOK {
		n := packets(w.length, q.attr.PathMTU)
		q.sqPSN, p.rqPSN = (q.sqPSN+n)&psnMask, (p.rqPSN+n)&psnMask
	}
	return verdict
}

// throw carries a request to the peer of a UC queue pair. Whatever becomes of it
// there, it has succeeded here.
func (q *qp) throw(p *qp, w *sendWQE, data []byte) int {
	n := packets(w.length, q.attr.PathMTU)
	psn := (q.sqPSN + n) & psnMask
	q.sqPSN = psn
	if p == nil {
		return statusOK
	}
	// A first packet is welcome with any number.
	p.rqPSN = psn
	if w.length <= maxMessage && (p.attr.PathMTU == q.attr.PathMTU || int(w.length) <= 128<<min(p.attr.PathMTU, q.attr.PathMTU)) {
		p.respond(q, w, data)
	}
	return statusOK
}

// packets is how many packets a message of n bytes has.
func packets(n uint32, mtu uint8) uint32 {
	size := uint32(128) << mtu
	return max(1, (n+size-1)/size)
}

// gather copies what a request sends. Spans of a read are looked at when the
// data is there.
func (q *qp) gather(w *sendWQE) ([]byte, bool) {
	if w.opcode == opRead || w.opcode == opCompareSwap || w.opcode == opFetchAdd || w.opcode == opFlush {
		return nil, true
	}
	if w.flags&flagInline != 0 || w.opcode == opAtomicWrite {
		return append([]byte(nil), w.inline...), true
	}
	return q.copyOut(w.sges, 0)
}

// copyOut reads spans of local memory.
func (q *qp) copyOut(list []sge, access uint32) ([]byte, bool) {
	var data []byte
	for _, s := range list {
		if s.length == 0 {
			continue
		}
		at, ok := q.ctx.k.region(q.ctx.dev, q.pd, s.lkey, s.addr, uint64(s.length), access)
		if !ok {
			return nil, false
		}
		b := make([]byte, s.length)
		if (memory{}).Read(at, b) != nil {
			return nil, false
		}
		data = append(data, b...)
	}
	return data, true
}

// copyIn writes data to spans of local memory. fits is false when they are too
// small, ok when they may not be written.
func (q *qp) copyIn(list []sge, data []byte) (fits, ok bool) {
	if uint64(len(data)) > total(list) {
		return false, true
	}
	for _, s := range list {
		n := min(int(s.length), len(data))
		if n == 0 {
			continue
		}
		at, ok := q.ctx.k.region(q.ctx.dev, q.pd, s.lkey, s.addr, uint64(n), localWrite)
		if !ok || (memory{}).Write(at, data[:n]) != nil {
			return true, false
		}
		data = data[n:]
	}
	return true, true
}
