package rxe

import (
	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// Posted reads back the request that was Put under wrid. ok is false when another one
// has taken its slot, or the driver has wiped the ring. It is no more than what stands
// there: the driver can write to all of it. Of inline data only the length is there, in
// Length. Any goroutine may call it, beside the one that uses the queue.
func (q *SQ) Posted(wrid uint64) (r cq.SendRequest, ok bool) {
	i, ok := q.ring.find(wrid)
	if !ok {
		return r, false
	}
	var w abi.RxeSendWQE
	q.ring.peek(w.Bytes(), i, 0)
	r = cq.SendRequest{WRID: wrid, Length: w.DMA.Length}
	var op *sendOp
	for o := range sendOps {
		if uint32(sendOps[o].wire) == w.WR.Opcode {
			r.Op, op = cq.Opcode(o), &sendOps[o]
		}
	}
	if op == nil {
		return r, false
	}
	if w.WR.SendFlags&sendSignaled == 0 {
		r.Flags |= cq.Unsignaled
	}
	switch op.arm {
	case armNone:
		if to := w.WR.WR.UD(); to.AHNum != 0 {
			r.AH, r.DestQPN, r.QKey = to.AHNum, to.RemoteQPN, to.RemoteQKey
		}
	case armRDMA, armAtomicWrite:
		to := w.WR.WR.Rdma()
		r.RemoteAddr, r.RKey = to.RemoteAddr, to.RKey
	case armAtomic:
		to := w.WR.WR.Atomic()
		r.RemoteAddr, r.RKey = to.RemoteAddr, to.RKey
	case armFlush:
		to := w.WR.WR.Flush()
		r.RemoteAddr, r.RKey = to.RemoteAddr, to.RKey
	case armWindow:
		to := w.WR.WR.MW()
		r.RemoteAddr, r.RKey, r.WindowBytes, r.WindowLKey = to.Addr, to.RKey, to.Length, to.MRLKey
	}
	if op.invalidate {
		r.InvalidateRKey = *w.WR.Ex.InvalidateRKey()
	}
	switch {
	case w.WR.SendFlags&sendInline != 0:
		r.Flags |= cq.Inline
	case op.arm != armAtomicWrite:
		r.SGEs, ok = q.ring.elements(i, abi.SizeofRxeSendWQE, w.DMA.NumSGE, q.maxSGE)
	}
	at, still := q.ring.find(wrid) // it may have been written over meanwhile
	return r, ok && still && at == i
}

// Posted reads back the elements of the receive that was Put under wrid, as that of a
// send queue does.
func (q *RQ) Posted(wrid uint64) (sges []cq.SGE, ok bool) {
	i, ok := q.ring.find(wrid)
	if !ok {
		return nil, false
	}
	var w abi.RxeRecvWQE
	q.ring.peek(w.Bytes(), i, 0)
	if sges, ok = q.ring.elements(i, abi.SizeofRxeRecvWQE, w.DMA.NumSGE, q.maxSGE); !ok {
		return nil, false
	}
	at, still := q.ring.find(wrid)
	return sges, still && at == i
}

// find finds the slot of a request, of either kind: both begin with its id.
func (r *ring) find(wrid uint64) (i uint32, ok bool) {
	var id abi.RxeRecvWQE
	for i := range r.mask + 1 {
		if r.peek(id.Bytes()[:8], i, 0); id.WRID == wrid {
			return i, true
		}
	}
	return 0, false
}

// elements copies the n elements of slot i, which stand behind a fixed part of so many
// bytes, if there can be so many.
func (r *ring) elements(i uint32, fixed uintptr, n uint32, most int) ([]cq.SGE, bool) {
	if int64(n) > int64(most) {
		return nil, false
	}
	sges := make([]cq.SGE, n)
	for k := range sges {
		var e abi.RxeSGE
		r.peek(e.Bytes(), i, fixed+uintptr(k)*abi.SizeofRxeSGE)
		sges[k] = cq.SGE{Addr: e.Addr, Length: e.Length, LKey: e.LKey}
	}
	return sges, true
}

// Raw copies the slot of the request that was Put under wrid, all of it: data of
// requests that carry it included, and what the driver has written there since. It is
// nil when another one has taken the slot.
func (q *SQ) Raw(wrid uint64) []byte { return q.ring.raw(wrid) }

// Raw is as that of a send queue.
func (q *RQ) Raw(wrid uint64) []byte { return q.ring.raw(wrid) }

func (r *ring) raw(wrid uint64) []byte {
	i, ok := r.find(wrid)
	if !ok {
		return nil
	}
	b := make([]byte, r.size)
	r.peek(b, i, 0)
	if at, still := r.find(wrid); !still || at != i {
		return nil
	}
	return b
}

// LastRead copies the entry that Poll has read last. It is for the goroutine that
// polls, between two calls of Poll: the slot is the driver's already, which comes back
// to it after one turn of the ring. It is nil before the first.
func (q *CQ) LastRead() []byte {
	if q.next == q.start {
		return nil
	}
	b := make([]byte, abi.SizeofUverbsWC)
	q.ring.peek(b, q.next-1, 0)
	return b
}
