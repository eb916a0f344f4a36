package uverbs

import (
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/rxe"
)

// Raw is a completion and its request as they stand in memory, for those who compare
// devices: copies, in the format of the device, whose kernel header has the layouts
// (linux/mlx5/device.h, rdma/rdma_user_rxe.h).
type Raw struct {
	// CQE is the entry of the completion queue, nil for a completion that the library
	// made itself. Where entries are compressed, it is one of the block.
	CQE []byte
	// WQE is the request, with the data that it carries; nil where others have its
	// place, and for receives of an SRQ, which forgets them.
	WQE []byte
}

// Raw copies what the device wrote of the completion that Poll has returned last, and
// what was posted for it: of the last one of the batch, so poll them one at a time. It is
// for the goroutine that polls, and only good until the device has gone round the queue.
// Programs that do not call it do not contain it.
func (q *CQ) Raw(w *WC) (r Raw) {
	if q.state.Load()&cq.Closed != 0 {
		return r
	}
	if ring, ok := q.ring.(interface{ LastRead() []byte }); ok && w.Flags&cq.FlagSynthetic == 0 {
		r.CQE = ring.LastRead()
	}
	qp := q.QP(w.QPN)
	if qp == nil || w.Side == RecvSide && qp.srq != nil {
		return r
	}
	requests := qp.sq.requests
	if w.Side == RecvSide {
		requests = qp.rq.requests
	}
	qp.modify.Lock()
	_, from := qp.failures.Since(w.Side)
	qp.modify.Unlock()
	past, ok := requests.Latest(w.ID, from)
	if !ok {
		return r
	}
	wrid := cq.MakeWRID(qp.index.n, w.Side, past.Seq)
	if w.Side == RecvSide {
		switch ring := qp.rq.ring.(type) {
		case *rxe.RQ:
			r.WQE = ring.Raw(wrid)
		case *mlx5.RQ:
			r.WQE = ring.Raw(past.Position)
		}
		return r
	}
	posted := qp.sq.ring
	if s, ok := posted.(interface{ inner() cq.SendRing }); ok {
		posted = s.inner() // the queue is timed
	}
	switch ring := posted.(type) {
	case *rxe.SQ:
		r.WQE = ring.Raw(wrid)
	case *mlx5.SQ:
		r.WQE = ring.Raw(past.Position)
	}
	return r
}
