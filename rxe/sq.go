package rxe

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// SQ is the send queue of a soft-RoCE queue pair. It is a [cq.SendRing]: one
// goroutine at a time uses it. The driver looks at what was published when the
// doorbell rings, which takes a system call and is the caller's business.
type SQ struct {
	producer
	maxSGE, maxInline int
}

var _ cq.SendRing = (*SQ)(nil)

// NewSQ makes a send queue of the ring that the driver mapped for it, for
// requests of at most maxSGE elements or maxInline bytes of inline data. An
// error says what in the ring's header cannot be.
//
// It goes on where the ring's producer index stands, which is not 0 on a queue
// pair that was reset.
func NewSQ(mem []byte, maxSGE, maxInline int) (*SQ, error) {
	if maxSGE < 0 || maxInline < 0 || maxSGE > maxElements || maxInline > maxElements*abi.SizeofRxeSGE {
		return nil, fmt.Errorf("rxe: a send queue for %d elements or %d bytes inline: both are from 0 to %d and %d",
			maxSGE, maxInline, maxElements, maxElements*abi.SizeofRxeSGE)
	}
	r, err := newRing(mem, "send", abi.SizeofRxeSendWQE+max(maxSGE*abi.SizeofRxeSGE, maxInline))
	if err != nil {
		return nil, err
	}
	return &SQ{producer: newProducer(r), maxSGE: maxSGE, maxInline: maxInline}, nil
}

// maxElements bounds the scatter/gather elements of one request. The driver's
// own limit is 32; this one only keeps sizes from overflowing.
const maxElements = 1 << 16

type sendOp struct {
	wire            uint8
	arm             arm
	imm, invalidate bool
}

// sendOps has, for each operation, the number in enum ib_uverbs_wr_opcode of
// rdma/ib_user_verbs.h, which arm of the request's union goes with it, and which
// of the union beside it.
var sendOps = [...]sendOp{
	cq.OpSend:            {wire: 2},
	cq.OpSendImm:         {wire: 3, imm: true},
	cq.OpSendInvalidate:  {wire: 9, invalidate: true},
	cq.OpWrite:           {wire: 0, arm: armRDMA},
	cq.OpWriteImm:        {wire: 1, arm: armRDMA, imm: true},
	cq.OpRead:            {wire: 4, arm: armRDMA},
	cq.OpCompareSwap:     {wire: 5, arm: armAtomic},
	cq.OpFetchAdd:        {wire: 6, arm: armAtomic},
	cq.OpLocalInvalidate: {wire: 7, invalidate: true},
	cq.OpBindMW:          {wire: 8, arm: armWindow},
	cq.OpFlush:           {wire: 14, arm: armFlush},
	cq.OpAtomicWrite:     {wire: 15, arm: armAtomicWrite},
}

// arm is the part of union wr of struct rxe_send_wr that an operation uses.
type arm uint8

const (
	armNone arm = iota
	armRDMA
	armAtomic
	armWindow
	armFlush
	armAtomicWrite // armRDMA, and eight bytes where others have elements
)

// Flags of a send work request, enum ib_send_flags of include/rdma/ib_verbs.h.
const (
	sendFence     = 1
	sendSignaled  = 2
	sendSolicited = 4
	sendInline    = 8
)

// wireFlags translates flags to the driver's: two are the same, two trade places, one of
// them turned round.
func wireFlags(f cq.SendFlags) uint32 {
	return uint32(f&(cq.Solicited|cq.Inline)) | uint32(f&cq.Fence)/uint32(cq.Fence)*sendFence | uint32(^f&cq.Unsignaled)*sendSignaled
}

// Where that is not so, one of these is less than 0, which does not compile.
const (
	_ = -(uint(cq.Solicited) ^ sendSolicited)
	_ = -(uint(cq.Inline) ^ sendInline)
	_ = -(uint(cq.Unsignaled) ^ 1)
)

// Put writes r to the next slot: all of it, so that nothing is left of the
// request that was there a lap before, nor of what the driver kept in it. The
// caller has checked that there is room, and that the operation and the lengths
// are allowed; what would not fit the slot panics instead of overwriting the
// next one.
func (q *SQ) Put(r *cq.SendRequest) {
	op := &sendOps[r.Op]
	w := q.ring.send(q.next)
	*w = abi.RxeSendWQE{}
	w.WR.WRID = r.WRID
	w.WR.Opcode = uint32(op.wire)
	w.WR.SendFlags = wireFlags(r.Flags)
	if op.imm {
		*w.WR.Ex.ImmData() = abi.MakeBe32(r.Imm)
	}
	switch op.arm {
	case armNone:
	case armRDMA:
		to := w.WR.WR.Rdma()
		to.RemoteAddr, to.RKey = r.RemoteAddr, r.RKey
		// The driver's running remote address: it starts from here, not
		// from the field above.
		w.IOVA = r.RemoteAddr
	default:
		putArm(w, r, op.arm)
	}
	if op.invalidate {
		*w.WR.Ex.InvalidateRKey() = r.InvalidateRKey
	}
	if r.AH != 0 {
		// The driver has the address vector; the room for one in the
		// request is for kernels before 5.15.
		to := w.WR.WR.UD()
		to.RemoteQPN, to.RemoteQKey, to.AHNum = r.DestQPN, r.QKey, r.AH
	}
	w.DMA.Length, w.DMA.Resid = r.Length, r.Length
	switch {
	case op.arm == armAtomicWrite:
		// Not inline by its flags, but in the same place. Every slot has
		// room for it: a size of 208 bytes is rounded up to 256.
		binary.NativeEndian.PutUint64(q.ring.inline(q.next, 8), r.Operand)
	case r.Flags&cq.Inline != 0:
		if len(r.Data) > q.maxInline {
			panic("rxe: Put: more inline data than the send queue was made for")
		}
		copy(q.ring.inline(q.next, len(r.Data)), r.Data)
	default:
		if len(r.SGEs) > q.maxSGE {
			panic("rxe: Put: more elements than the send queue was made for")
		}
		w.DMA.NumSGE = uint32(len(r.SGEs))
		putSGEs(q.ring.sges(q.next, abi.SizeofRxeSendWQE, len(r.SGEs)), r.SGEs)
	}
	q.advance()
}

// Begin and End are Put of a Send, Write or Read of one element, which the queue was made
// for: what is most often put, in two pieces that are small enough to be inlined.
func (q *SQ) Begin(wrid uint64, op cq.Opcode, flags cq.SendFlags) *abi.RxeSendWQE {
	w := q.ring.send(q.next)
	*w = abi.RxeSendWQE{}
	w.WR.WRID = wrid
	w.WR.Opcode = uint32(sendOps[op].wire)
	w.WR.SendFlags = wireFlags(flags)
	return w
}

// End ends the request that Begin returned. A Send has neither addr nor rkey.
func (q *SQ) End(w *abi.RxeSendWQE, e cq.SGE, addr uint64, rkey uint32) {
	to := w.WR.WR.Rdma()
	to.RemoteAddr, to.RKey = addr, rkey
	w.IOVA = addr
	w.DMA.Length, w.DMA.Resid, w.DMA.NumSGE = e.Length, e.Length, 1
	sge := q.ring.sge(w)
	sge.Addr, sge.Length, sge.LKey = e.Addr, e.Length, e.LKey
	q.advance()
}

// putArm writes the arms of less common operations.
func putArm(w *abi.RxeSendWQE, r *cq.SendRequest, a arm) {
	switch a {
	case armAtomicWrite:
		to := w.WR.WR.Rdma()
		to.RemoteAddr, to.RKey = r.RemoteAddr, r.RKey
	case armAtomic:
		to := w.WR.WR.Atomic()
		to.RemoteAddr, to.RKey = r.RemoteAddr, r.RKey
		// One field has what is compared or what is added.
		to.CompareAdd = r.Operand
		if r.Op == cq.OpCompareSwap {
			to.CompareAdd, to.Swap = r.Compare, r.Operand
		}
	case armFlush:
		to := w.WR.WR.Flush()
		to.RemoteAddr, to.RKey, to.Length = r.RemoteAddr, r.RKey, r.Length
		to.Type = r.FlushType
		if r.FlushWhole {
			to.Level = uint8(abi.IB_FLUSH_MR)
		}
	case armWindow:
		to := w.WR.WR.MW()
		to.Addr, to.Length, to.MRLKey = r.RemoteAddr, r.WindowBytes, r.WindowLKey
		to.MWRKey, to.RKey, to.Access = r.WindowRKey, r.RKey, r.WindowAccess
		return // its address is this side's, and nothing runs along it
	}
	w.IOVA = r.RemoteAddr
}

// putSGEs writes elements to a slot; the two are of one length.
func putSGEs(to []abi.RxeSGE, sges []cq.SGE) {
	for i := range to {
		to[i].Addr, to[i].Length, to[i].LKey = sges[i].Addr, sges[i].Length, sges[i].LKey
	}
}

// Publish lets the driver see all that was Put. It looks when the doorbell
// rings.
func (q *SQ) Publish() { q.publish() }

// Rollback takes the last n requests back, also when they were published: the
// driver looks at the queue in the doorbell alone, so those that were published
// and have had no doorbell can be withdrawn.
func (q *SQ) Rollback(n uint32) { q.rollback(n) }

// Capacity is how many requests the ring holds.
func (q *SQ) Capacity() int { return q.capacity() }

// Space is how many requests can be Put now, as the driver says. It is from 0
// to Capacity whatever the driver says.
func (q *SQ) Space() int { return q.space() }

// Empty says whether the driver is done with all requests that were published.
// Any goroutine may call it.
func (q *SQ) Empty() bool { return q.empty() }
