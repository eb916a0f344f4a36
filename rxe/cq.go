package rxe

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// CQ is the completion queue of a soft-RoCE device. It is a
// [cq.CompletionRing]: one goroutine at a time calls its methods, Empty
// excepted.
type CQ struct {
	ring  ring
	eps   *cq.Endpoints
	state *cq.State

	// Indices are free-running here and masked on their way to memory. The
	// consumer index in memory is written and never read again: the poller
	// goes by its own.
	next  uint32 // the next slot to read
	start uint32 // where next began
	given uint32 // next as last stored in the ring; atomic
}

var _ cq.CompletionRing = (*CQ)(nil)

// NewCQ makes a completion queue of the ring that the driver mapped for it.
// Completions are looked up in eps, and those of queues that complete on state
// are taken. An error says what in the ring's header cannot be.
//
// The memory has to stay readable and writable as long as the CQ is used. It
// may be replaced by other pages at any time, if state says Closed before.
func NewCQ(mem []byte, eps *cq.Endpoints, state *cq.State) (*CQ, error) {
	r, err := newRing(mem, "completion", abi.SizeofUverbsWC)
	if err != nil {
		return nil, err
	}
	i := r.loadConsumer()
	return &CQ{ring: r, eps: eps, state: state, next: i, start: i, given: i}, nil
}

// Poll decodes at most len(wcs) completions into wcs and returns how many, and
// whether it has read all that were there when it began. Completions that cannot
// belong to a posted request are dropped and counted in the State, as are those
// of closed QPs; quiet requests that succeeded are dropped in silence, so n may
// be less than what was read. What wcs holds from n on is not defined.
//
// The slots of the batch go back to the driver in one store at the end, unless
// the State says by then that the queue is closed.
func (q *CQ) Poll(wcs []cq.WC) (n int, drained bool) {
	producer := q.ring.loadProducer()
	next := q.next
	// A hostile producer index can announce at most one lap.
	for next&q.ring.mask != producer && n < len(wcs) {
		e := q.ring.completion(next)
		next++
		// Every word of e is read once: it could change in between.
		index, side, seq, ok := cq.SplitWRID(e.WRID)
		ep := q.eps.Get(index)
		qpn := e.QPNum
		if !ok || ep == nil || ep.Closed || ep.QPN != qpn {
			if ok && ep != nil && ep.Shared != nil && side == cq.RecvSide {
				if q.shared(ep.Shared, e, qpn, seq, next, &wcs[n]) {
					n++
				}
				continue
			}
			q.drop(ok && ep != nil && ep.Closed)
			continue
		}
		r := ep.Side(side)
		if r == nil || !r.Belongs(q.state) {
			q.drop(false)
			continue
		}
		w := &wcs[n]
		status := cq.Status(e.Status)
		oldest := r.Oldest(seq)
		switch {
		case status != cq.StatusSuccess:
			show, ok := ep.Fail(r, seq, status, e.VendorErr, w)
			if !ok {
				q.drop(false)
			} else if show {
				n++
			}
			continue
		case oldest:
			if !r.EndOldest(seq, w) {
				continue
			}
		default:
			// Successes after or before requests that have not or have
			// ended, and what names no outstanding one.
			show, ok := r.Complete(seq, status, w)
			if !ok {
				q.drop(false)
			}
			if !show {
				continue
			}
		}
		n++
		if side == cq.RecvSide {
			flags := e.WCFlags
			received(e, w)
			if flags&(wcImm|wcInvalidate) != 0 {
				if flags&wcImm != 0 {
					w.SetImm(e.Ex.ImmData().Uint32())
				} else {
					invalidated(ep, e, w)
				}
			}
			if src := e.SrcQP; src != 0 {
				datagram(w, src, flags)
			}
		}
	}
	if next != q.next {
		q.next = next
		if q.state.Load()&cq.Closed == 0 {
			q.ring.storeConsumer(next)
			cq.StoreRelease32(&q.given, next)
		}
	}
	return n, next&q.ring.mask == producer
}

// drop counts a completion that the program does not see; late says that its QP
// was closed. It stands apart because counting takes a locked instruction.
//
//go:noinline
func (q *CQ) drop(late bool) {
	q.state.Dropped(late)
}

// The kernel's numbers in successful receive completions: enum ib_wc_opcode and
// enum ib_wc_flags of include/rdma/ib_verbs.h. Soft-RoCE copies them to user
// space as they are; libibverbs has other numbers for some.
const (
	wcRecvWriteImm = 129
	wcGRH          = 1
	wcImm          = 2
	wcInvalidate   = 4
)

// received fills in what only a successful receive has. The opcode of a send
// completion is not looked at: the request knows it. An opcode that is neither
// of the two is taken for a receive, since the request has ended. The length of
// a message is at most that of the receive that took it, which is in w, so that
// a program may slice its buffer by it; a write's length has no such bound.
func received(e *abi.UverbsWC, w *cq.WC) {
	n := e.ByteLen
	if e.Opcode == wcRecvWriteImm {
		w.Opcode = cq.OpRecvWriteImm
		w.Bytes = n
		return
	}
	w.Opcode = cq.OpRecv
	w.Bytes = min(w.Bytes, n)
}

// invalidated fills in the key that a message took away. The same four bytes are
// the wire's for immediate data and a number in the machine's order for a key.
// It stands apart because it calls what is not known here.
//
//go:noinline
func invalidated(ep *cq.Endpoint, e *abi.UverbsWC, w *cq.WC) {
	key := *e.Ex.InvalidateRKey()
	w.SetInvalidatedRKey(key)
	if ep.Invalidated != nil {
		ep.Invalidated(key)
	}
}

// datagram fills in where a datagram came from. Soft-RoCE sets the GRH bit on
// every receive and writes a GRH to the buffer on datagram queues only, which
// are also the only ones where it gives the sender's QP, a number that is never
// 0. So the bit counts only with that number.
func datagram(w *cq.WC, src, flags uint32) {
	w.SrcQPN = src
	if flags&wcGRH != 0 {
		w.Flags |= cq.FlagGRH
	}
}

// Consumed is the number of slots that Poll has read so far, modulo 2^32.
func (q *CQ) Consumed() uint32 { return q.next - q.start }

// Produced is the number of slots that the driver has filled so far, counted as
// Consumed is. Any goroutine may call it.
func (q *CQ) Produced() uint32 {
	for {
		given := atomic.LoadUint32(&q.given)
		producer := q.ring.loadProducer()
		// Had the poller moved in between, the two could be of different
		// laps.
		if atomic.LoadUint32(&q.given) == given {
			return given - q.start + (producer-given)&q.ring.mask
		}
	}
}

// Continue makes Consumed and Produced go on from a number: that of an older
// ring whose completions this one took over. It comes before all other methods.
func (q *CQ) Continue(consumed uint32) { q.start = q.next - consumed }

// Capacity is how many completions the ring holds: one less than it has slots,
// since a full ring must differ from an empty one.
func (q *CQ) Capacity() uint32 { return q.ring.mask }

// Holds says whether the driver has written at least n completions that Poll has not
// given back. Any goroutine may call it; see [cq.CompletionRing].
func (q *CQ) Holds(n uint32) bool {
	given := atomic.LoadUint32(&q.given)
	return (q.ring.loadProducer()-given)&q.ring.mask >= n
}

// Empty says whether all that the driver has written was read and given back at
// one moment during the call. Any goroutine may call it.
func (q *CQ) Empty() bool {
	given := atomic.LoadUint32(&q.given)
	producer := q.ring.loadProducer()
	// Had the poller moved in between, the two could be of different laps.
	return given&q.ring.mask == producer && atomic.LoadUint32(&q.given) == given
}
