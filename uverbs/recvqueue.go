package uverbs

import (
	"fmt"
	"runtime"

	"github.com/goverbs/goverbs/cq"
)

// RecvQueue stages receives and hands them to the device. One goroutine at a
// time uses it. It follows the rules of SendQueue.
type RecvQueue struct {
	qp       *QP
	ring     cq.RecvRing
	requests *cq.Requests
	err      error
	flushing uint32 // 1 inside Flush; see QP.end

	sges   []cq.SGE // of the request under construction
	length uint64   // of all of them, bytes
}

func (q *RecvQueue) init(qp *QP, ring cq.RecvRing, requests *cq.Requests) {
	q.qp, q.ring, q.requests = qp, ring, requests
	q.sges = make([]cq.SGE, 0, qp.limits.RecvSGE)
}

// Room is how many more receives can be staged now.
func (q *RecvQueue) Room() int { return q.requests.Room() }

// Recv offers a span for one message of the peer. A message that is longer
// fails on both sides.
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
		q.fail(fmt.Errorf("%d spans: the queue pair takes %d: ask for more with QPOptions.RecvSGE: %w", len(into), cap(q.sges), ErrInvalid))
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
}

func (q *RecvQueue) span(s Span) {
	e, ok := s.sge()
	switch {
	case !ok:
		q.fail(s.err())
		return
	case s.mr.access&LocalWrite == 0 && s.n > 0:
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
	if q.requests.Room() == 0 {
		q.fail(fmt.Errorf("%w: its %d receives are outstanding: poll the CQ, or ask for more with QPOptions.RecvDepth", ErrQueueFull, q.requests.Depth()))
		return
	}
	seq, _ := q.requests.Stage(id, cq.OpRecv, uint32(min(q.length, maxMessage)), false)
	q.ring.Put(cq.MakeWRID(q.qp.index.n, cq.RecvSide, seq), q.sges)
}

func (q *RecvQueue) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// Flush hands the staged receives to the device. It does not enter the kernel.
func (q *RecvQueue) Flush() error {
	n := q.requests.Staged()
	cq.StoreRelease32(&q.flushing, 1)
	if q.err != nil || q.qp.ending.Load() || !q.qp.receives() {
		return q.refuse(n)
	}
	if n > 0 {
		q.requests.Commit()
		q.ring.Publish()
		runtime.KeepAlive(q.qp.mapping[0])
	}
	cq.StoreRelease32(&q.flushing, 0)
	return nil
}

// receives says whether a receive posted now comes to an end. In RESET the
// device drops it, and in ERR soft-RoCE never flushes it.
func (qp *QP) receives() bool {
	s := QPState(qp.state.Load())
	return s != StateReset && s != StateErr
}

func (q *RecvQueue) refuse(n uint32) error {
	q.ring.Rollback(n)
	q.requests.Rollback(n)
	cq.StoreRelease32(&q.flushing, 0)
	err := q.err
	q.err = nil
	switch {
	case q.qp.ending.Load():
		err = q.qp.whyEnding()
	case err == nil && n == 0:
		return nil
	case err == nil:
		err = fmt.Errorf("%w: it is in %v, where receives do not end", ErrState, q.qp.State())
	}
	return q.qp.postError("receive", n, err)
}
