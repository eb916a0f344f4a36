package uverbs

import (
	"fmt"
	"os"
	"runtime"

	"github.com/goverbs/goverbs/cq"
)

// RecvQueue stages receives and hands them to the device. One goroutine at a
// time uses it. It follows the rules of SendQueue. It is a queue pair's own, or
// an SRQ's.
type RecvQueue struct {
	qp       *QP          // whose it is, or
	srq      *SRQ         // whose it is
	requests *cq.Requests // of qp
	table    recvTable    // requests, or those of srq
	ring     cq.RecvRing
	index    uint32 // user index of qp or srq
	err      error
	flushing uint32 // 1 inside Flush; see QP.flushes
	epoch    uint32 // of qp, when the first of the staged requests was

	sges   []cq.SGE // of the request under construction
	length uint64   // of all of them, bytes
}

// recvTable remembers what was posted: a cq.Requests or a cq.SharedRequests.
type recvTable interface {
	Depth() int
	Room() int
	Stage(id uint64, op Opcode, bytes uint32, quiet bool) (seq uint32, signal bool)
	Commit()
	Staged() uint32
	Rollback(n uint32)
}

func (q *RecvQueue) init(qp *QP, ring cq.RecvRing, requests *cq.Requests) {
	q.qp, q.ring, q.requests, q.table = qp, ring, requests, requests
	q.index = qp.index.n
	q.sges = make([]cq.SGE, 0, qp.limits.RecvSGE)
}

// Room is how many more receives can be staged now.
func (q *RecvQueue) Room() int { return q.table.Room() }

// Recv offers a span for one message of the peer. A message that is longer fails
// on both sides: the receive with StatusLocalLength and the send with
// StatusRemoteInvalidReq, on soft-RoCE with StatusLocalQPOperation and
// StatusRemoteOperation.
func (q *RecvQueue) Recv(id uint64, into Span) {
	q.begin()
	q.span(into)
	q.stage(id)
}

// RecvV offers several spans, filled one after another, for one message. No
// span at all suits messages that have only immediate data.
func (q *RecvQueue) RecvV(id uint64, into []Span) {
	q.begin()
	if len(into) > cap(q.sges) {
		q.fail(fmt.Errorf("%d spans: the queue takes %d: ask for more with %s: %w", len(into), cap(q.sges), q.option("QPOptions.RecvSGE", "SRQOptions.SGE"), ErrInvalid))
		return
	}
	for _, s := range into {
		q.span(s)
	}
	q.stage(id)
}

// begin clears the request under construction.
func (q *RecvQueue) begin() {
	q.sges, q.length = q.sges[:0], 0
	if q.qp != nil && q.qp.srq != nil {
		q.fail(fmt.Errorf("the queue pair takes its receives from an SRQ: post to SRQ.RecvQueue: %w", ErrInvalid))
	}
}

// option is where a program asks for more.
func (q *RecvQueue) option(ofQP, ofSRQ string) string {
	if q.srq != nil {
		return ofSRQ
	}
	return ofQP
}

func (q *RecvQueue) span(s Span) {
	e, ok := s.sge()
	switch {
	case !ok:
		q.fail(s.err())
		return
	case s.mr.Access()&LocalWrite == 0 && s.n > 0:
		q.fail(fmt.Errorf("receive into a memory region registered without LocalWrite: %w", ErrInvalid))
		return
	}
	q.sges = append(q.sges, e)
	q.length += uint64(e.Length)
}

func (q *RecvQueue) stage(id uint64) {
	if q.err != nil {
		return
	}
	if q.table.Room() == 0 {
		q.fail(fmt.Errorf("%w: its %d receives are outstanding: poll the CQ, or ask for more with %s", ErrQueueFull, q.table.Depth(), q.option("QPOptions.RecvDepth", "SRQOptions.Depth")))
		return
	}
	if q.qp != nil && q.table.Staged() == 0 {
		if e := q.qp.epoch(); e != q.epoch {
			q.epoch = e
			beginAnew(q.ring)
		}
	}
	seq, _ := q.table.Stage(id, cq.OpRecv, uint32(min(q.length, maxMessage)), false)
	q.ring.Put(cq.MakeWRID(q.index, cq.RecvSide, seq), q.sges)
}

func (q *RecvQueue) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// Flush hands the staged receives to the device. It does not enter the kernel.
func (q *RecvQueue) Flush() error {
	n := q.table.Staged()
	cq.StoreRelease32(&q.flushing, 1)
	if q.err != nil || q.ended() || q.qp != nil && (!q.qp.receives() || n > 0 && !q.qp.sameEpoch(q.epoch)) {
		return q.refuse(n)
	}
	if n > 0 {
		q.table.Commit()
		q.ring.Publish()
		runtime.KeepAlive(q)
	}
	cq.StoreRelease32(&q.flushing, 0)
	return nil
}

// ended says whether the queue takes nothing more.
func (q *RecvQueue) ended() bool {
	if q.srq != nil {
		return q.srq.closing.Load() || q.srq.lost != nil
	}
	return q.qp.ending.Load()
}

// receives says whether a receive posted now comes to an end. In RESET the
// device drops it, and in ERR soft-RoCE never flushes it.
func (qp *QP) receives() bool {
	s := QPState(qp.state.Load())
	return s != StateReset && s != StateErr
}

func (q *RecvQueue) refuse(n uint32) error {
	q.ring.Rollback(n)
	q.table.Rollback(n)
	cq.StoreRelease32(&q.flushing, 0)
	err := q.err
	q.err = nil
	switch {
	case q.srq != nil && q.srq.closing.Load():
		err = q.srq.whyClosing()
	case q.srq != nil && q.srq.lost != nil:
		err = q.srq.lost
	case q.srq != nil && err == nil:
		// When Flush looked it was being closed, which has failed since.
		err = os.ErrClosed
	case q.qp != nil && q.ended():
		err = q.qp.whyEnding()
	case err == nil && n == 0:
		return nil
	case err == nil && !q.qp.sameEpoch(q.epoch):
		err = errReset
	case err == nil:
		err = fmt.Errorf("%w: it is in %v, where receives do not end", ErrState, q.qp.State())
	}
	if q.srq != nil {
		return q.srq.dev.denied("flush of an SRQ", err)
	}
	return q.qp.postError("receive", err)
}
