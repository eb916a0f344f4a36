package rxe

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// shared decodes the completion e, which names request seq of the shared receive
// queue s and queue pair qpn, into w; next is the slot after its own. It says
// whether the program is to hear of it. It stands apart because other pollers may
// end requests of s at the same time, which takes locked instructions.
//
//go:noinline
func (q *CQ) shared(s *cq.SharedRequests, e *abi.UverbsWC, qpn, seq, next uint32, w *cq.WC) bool {
	status := cq.Status(e.Status)
	ep, ok := s.Complete(qpn, q.state, next-1-q.start, seq, status, w)
	if ep == nil {
		q.drop(ok)
		return false
	}
	if status != cq.StatusSuccess {
		ep.Fail(nil, seq, status, e.VendorErr, w)
		q.state.Failed(status)
		return true
	}
	flags := e.WCFlags
	received(e, w)
	if flags&wcImm != 0 {
		w.SetImm(e.Ex.ImmData().Uint32())
	} else if flags&wcInvalidate != 0 {
		invalidated(ep, e, w)
	}
	if src := e.SrcQP; src != 0 {
		datagram(w, src, flags)
	}
	return true
}

// ReturnShared ends the receives of shared queues whose completions are in the
// ring, so that their slots are not lost with it. The queue is closed, so that
// the driver adds no more. Any goroutine may call it, also beside Poll.
func (q *CQ) ReturnShared() {
	var w cq.WC
	producer := q.ring.loadProducer()
	for i := atomic.LoadUint32(&q.given); i&q.ring.mask != producer; i++ {
		e := q.ring.completion(i)
		index, side, seq, ok := cq.SplitWRID(e.WRID)
		if ep := q.eps.Get(index); ok && side == cq.RecvSide && ep != nil && ep.Shared != nil {
			ep.Shared.Complete(e.QPNum, q.state, i-q.start, seq, cq.StatusFlushed, &w)
		}
	}
}
