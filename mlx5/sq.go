package mlx5

import (
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

// SQ is the send queue of a queue pair. It is a [cq.SendRing]: one goroutine at a
// time uses it. Publish rings the doorbell; no system call is needed.
type SQ struct {
	wqes
	next      uint32 // block at which the next request begins, free-running
	published uint32 // next, when Publish was last called
	last      uint32 // block at which the last request begins

	qpn        uint32
	operations Operations
	maxSGE     int
	maxInline  int
	addresses  *AddressVectors // nil unless the queue sends datagrams

	// fence is in the control segment of the next request, what it was at
	// published beside it.
	fence, publishedFence uint8

	record   *uint32
	bell     bell
	requests *cq.Requests
	// straight is the last block in the ring at which a request of any length may
	// begin that does not go round the end.
	straight uint32
}

var _ cq.SendRing = (*SQ)(nil)

// SQConfig is what a send queue is made of.
type SQConfig struct {
	// Memory is the ring, as many bytes as Size says: zero, at a multiple of
	// 64.
	Memory []byte
	// Record is the doorbell record of the queue pair, 8 bytes. The send
	// queue has the second word of it.
	Record []byte
	// Doorbell is the register at which it rings.
	Doorbell *Doorbell
	// QPN is the number of the queue pair.
	QPN uint32
	// Size is what SizeSend computed.
	Size SendSize
	// Requests is the table of what is posted to the queue, of no more
	// requests at a time than Size says.
	Requests *cq.Requests
	// Addresses has the address vectors of datagrams, whose numbers stand in
	// requests as AH: UD only.
	Addresses *AddressVectors
}

// NewSQ makes the send queue of a queue pair that was just created or reset.
func NewSQ(c SQConfig) (*SQ, error) {
	s := c.Size
	switch {
	case s.Requests == 0:
		return nil, fmt.Errorf("mlx5: a send queue of no requests: it has no memory and nothing to do")
	case len(c.Memory) != s.Bytes || s.Bytes&(s.Bytes-1) != 0 || uint32(s.Bytes) != s.Blocks*blockBytes:
		return nil, fmt.Errorf("mlx5: %d bytes for a send queue of %d blocks: it takes %d", len(c.Memory), s.Blocks, uint64(s.Blocks)*blockBytes)
	case uint64(s.Requests)*uint64(s.RequestBytes) > uint64(s.Bytes) || s.mostBytes() > min(s.RequestBytes, maxSegments*segmentBytes):
		return nil, fmt.Errorf("mlx5: a send queue of %d bytes for %d requests of %d elements or %d bytes inline: take the size from SizeSend",
			s.Bytes, s.Requests, s.MaxSGE, s.MaxInline)
	case c.QPN >= cq.NoQPN:
		return nil, fmt.Errorf("mlx5: a send queue of QP %#x: queue pairs have 24 bits", c.QPN)
	case c.Doorbell == nil:
		return nil, fmt.Errorf("mlx5: a send queue without a doorbell")
	case c.Requests == nil || c.Requests.Depth() > int(s.Requests):
		return nil, fmt.Errorf("mlx5: a send queue of %d requests needs a table of what is posted, of no more", s.Requests)
	case (c.Addresses != nil) != (s.Transport == UD):
		return nil, fmt.Errorf("mlx5: a send queue of %v: address vectors are for UD, which cannot do without", s.Transport)
	}
	if _, off := wordAt(c.Memory, blockBytes); off != 0 {
		return nil, fmt.Errorf("mlx5: the memory of the send queue starts %d bytes past a multiple of %d: allocate whole pages", off, blockBytes)
	}
	record, err := recordWord(c.Record, recordSend)
	if err != nil {
		return nil, err
	}
	return &SQ{
		wqes:       newWQEs(c.Memory),
		qpn:        c.QPN,
		operations: s.Operations,
		maxSGE:     int(s.MaxSGE),
		maxInline:  int(s.MaxInline),
		addresses:  c.Addresses,
		record:     record,
		bell:       c.Doorbell.bell(),
		requests:   c.Requests,
		straight:   s.Blocks - (s.RequestBytes+blockBytes-1)>>blockShift,
	}, nil
}

// Put writes r to the next blocks. The caller has checked that there is room, and
// that the operation and the lengths are allowed; what the queue was not made for
// panics instead of overwriting other requests.
//
// Elements of length 0 are left out, as the device would take them for 2^31 bytes.
// Of an atomic's element 8 bytes are used, whatever its length. A datagram whose
// address handle is not there any more goes to no port.
func (q *SQ) Put(r *cq.SendRequest) {
	if !q.operations.Has(r.Op) {
		panic("mlx5: Put: an operation that the send queue was not made for")
	}
	op := &sendOps[r.Op&31]
	begin := q.next << blockShift
	pos := begin + controlBytes
	if q.addresses != nil {
		pos = q.putAddress(pos, r)
	}
	immediate := r.Imm&op.imm | r.InvalidateRKey&op.invalidate
	control := sendControl[r.Flags&(cq.Unsignaled|cq.Fence|cq.Solicited)]
	if control&ctrlFence == 0 {
		control |= q.fence
	}
	q.fence = 0
	switch op.form {
	case formPlain:
	case formRemote:
		pos = q.putSegment(pos, r.RemoteAddr, uint64(r.RKey)<<32)
	case formAtomic:
		pos = q.putAtomic(pos, r)
	default:
		pos, immediate = q.putWindow(pos, r)
		q.fence = ctrlSmallFence
	}
	if op.form > formRemote {
		// It has no data, or has written it.
	} else if r.Flags&cq.Inline != 0 {
		if len(r.Data) > q.maxInline {
			panic("mlx5: Put: more inline data than the send queue was made for")
		}
		if len(r.Data) != 0 {
			pos = q.putInline(pos, r.Data)
		}
	} else {
		if len(r.SGEs) > q.maxSGE {
			panic("mlx5: Put: more elements than the send queue was made for")
		}
		for i := range r.SGEs {
			if e := &r.SGEs[i]; e.Length != 0 {
				q.segment(pos).putPointer(e.Length, e.LKey, e.Addr)
				pos += pointerBytes
			}
		}
	}
	bytes := pos - begin
	first := uint64(uint16(q.next))<<40 | uint64(op.opcode)<<32 | uint64(q.qpn<<8|bytes>>segmentShift)
	q.putSegment(begin, first, uint64(control)<<32|uint64(immediate))
	q.requests.Place(requestNumber(r.WRID), uint16(q.next))
	q.last = q.next
	q.next += (bytes + blockBytes - 1) >> blockShift
}

// PutNop writes a request that does nothing, and completes when all that was put
// before it has been carried out. The caller has checked that there is room.
func (q *SQ) PutNop(wrid uint64) {
	begin := q.next << blockShift
	first := uint64(uint16(q.next))<<40 | uint64(opcodeNop)<<32 | uint64(q.qpn<<8|controlBytes>>segmentShift)
	q.putSegment(begin, first, uint64(ctrlSignal|q.fence)<<32)
	q.fence = 0
	q.requests.Place(requestNumber(wrid), uint16(q.next))
	q.last = q.next
	q.next++
}

// putInline writes an inline segment of data, which is not empty, at pos and
// returns where it ends.
func (q *SQ) putInline(pos uint32, data []byte) uint32 {
	n := uint32(len(data))
	*q.half(pos) = toBE32(n | inlineMark)
	q.copy(pos+inlineHeader, data)
	return pos + (inlineHeader+n+segmentBytes-1)&^(segmentBytes-1)
}

// putAtomic writes the remote address, the operands and the element of an atomic.
func (q *SQ) putAtomic(pos uint32, r *cq.SendRequest) uint32 {
	compare := uint64(0)
	if r.Op == cq.OpCompareSwap {
		compare = r.Compare
	}
	pos = q.putSegment(pos, r.RemoteAddr, uint64(r.RKey)<<32)
	pos = q.putSegment(pos, r.Operand, compare)
	if len(r.SGEs) > 1 {
		panic("mlx5: Put: more elements than an atomic has")
	}
	for i := range r.SGEs {
		if e := &r.SGEs[i]; e.Length != 0 {
			q.segment(pos).putPointer(atomicOperands, e.LKey, e.Addr)
			pos += pointerBytes
		}
	}
	return pos
}

// putAddress writes the address vector of a datagram.
func (q *SQ) putAddress(pos uint32, r *cq.SendRequest) uint32 {
	a := q.addresses.get(r.AH)
	q.segment(pos).put(uint64(r.QKey)<<32, uint64(r.DestQPN|extendedAV)<<32|a[0])
	q.segment(pos+16).put(a[1], a[2])
	q.segment(pos+32).put(a[3], a[4])
	return pos + addressBytes
}

// Publish hands all that was Put to the device: it writes the doorbell record and
// rings.
func (q *SQ) Publish() {
	if q.next == q.published {
		return
	}
	storeRecord(q.record, q.next)
	at := q.bell.at
	q.bell.ring(&q.wqes, q.last<<blockShift, q.next-q.last, q.last == q.published)
	if q.bell.tell != nil {
		q.bell.told(at, q.segment(q.last<<blockShift).first())
	}
	q.published, q.publishedFence = q.next, q.fence
}

// Rollback takes the last n requests back. Published ones are the device's: they
// stay.
func (q *SQ) Rollback(n uint32) {
	// Requests do not say where the one before begins, so this goes over all, and
	// over those that stay.
	keep := -int(n)
	for pos := q.published; int32(q.next-pos) > 0; keep++ {
		pos += q.blocks(pos)
	}
	q.next, q.last, q.fence = q.published, q.published, q.publishedFence
	for ; keep > 0; keep-- {
		q.last = q.next
		q.next += q.blocks(q.last)
		q.fence = 0
		if q.segment(q.last<<blockShift).opcode() == opcodeUMR {
			q.fence = ctrlSmallFence
		}
	}
}

// blocks is how many blocks the request at a block takes, as the memory says, one at
// least.
func (q *SQ) blocks(at uint32) uint32 {
	return max((q.segment(at<<blockShift).segments()*segmentBytes+blockBytes-1)>>blockShift, 1)
}

// Reset begins anew, after the queue pair was reset: the device counts from 0
// again. Nothing may be outstanding or staged.
func (q *SQ) Reset() {
	q.next, q.published, q.last = 0, 0, 0
	q.fence, q.publishedFence = 0, 0
	cq.StoreRelease32(q.record, 0)
}

// Empty says whether all that was posted has ended. The device says that by
// completions alone, so the end of unsignalled requests shows with that of a
// signalled one after them. Any goroutine may call it.
func (q *SQ) Empty() bool { return q.requests.Idle() }
