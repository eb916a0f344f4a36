package mlx5

import (
	"unsafe"

	"github.com/goverbs/goverbs/cq"
)

// Put takes requests of all kinds. Whoever posts many of the common ones can do with
// less, in pieces that are small enough to be inlined:
//
//	w := q.Begin()
//	requests.Enter(id, n, w.Tag(cq.OpWrite), 0)
//	w = w.Remote(addr, rkey).Inline(n)
//	q.End(w, cq.OpWrite, ControlSignal)
//	w.Copy(data)
//
// Nothing of it checks anything: the queue has the operation and room, the request
// before is no window's, and data satisfies Straight.

// WQE is a request that is being written, and how long it is so far. Keep it no
// longer than until End and Copy.
type WQE struct {
	at    unsafe.Pointer
	next  uint32
	bytes uint32
}

// Straight says whether a request may carry n bytes inline, one at least, and does not
// go round the end of the ring now.
func (q *SQ) Straight(n int) bool {
	return uint(n)-1 < uint(q.maxInline) && q.next&(q.mask>>blockShift) <= q.straight
}

// Begin begins a request.
func (q *SQ) Begin() WQE {
	return WQE{unsafe.Add(q.base, q.next&(q.mask>>blockShift)<<blockShift), q.next, controlBytes}
}

// Tag is what cq.Requests.Enter takes.
func (w WQE) Tag(op cq.Opcode) uint32 { return w.next<<16 | uint32(op)<<8 }

// Remote adds a place in the peer's memory.
func (w WQE) Remote(addr uint64, rkey uint32) WQE {
	w.segment().put(addr, uint64(rkey)<<32)
	w.bytes += remoteBytes
	return w
}

// Element adds a piece of local memory, which is not empty.
func (w WQE) Element(e cq.SGE) WQE {
	w.segment().putPointer(e.Length, e.LKey, e.Addr)
	w.bytes += pointerBytes
	return w
}

// Inline adds n bytes of data: Copy writes them.
func (w WQE) Inline(n int) WQE {
	*(*uint32)(unsafe.Add(w.at, w.bytes)) = toBE32(uint32(n) | inlineMark)
	w.bytes += inlineHeader + uint32(n)
	return w
}

// Copy writes the data of Inline. Of lengths that are usual it does so in two or four
// pieces, which may overlap: a call takes longer, and so does a loop.
func (w WQE) Copy(data []byte) {
	to, from, n := unsafe.Add(w.at, w.bytes-uint32(len(data))), unsafe.Pointer(unsafe.SliceData(data)), len(data)-pieceBytes
	if uint(n) > 3*pieceBytes {
		copy(unsafe.Slice((*byte)(to), len(data)), data)
		return
	}
	if n > pieceBytes {
		*(*piece)(unsafe.Add(to, pieceBytes)) = *(*piece)(unsafe.Add(from, pieceBytes))
		*(*piece)(unsafe.Add(to, n-pieceBytes)) = *(*piece)(unsafe.Add(from, n-pieceBytes))
	}
	*(*piece)(to) = *(*piece)(from)
	*(*piece)(unsafe.Add(to, n)) = *(*piece)(unsafe.Add(from, n))
}

// piece is as much as all machines copy at once.
type piece [pieceBytes]byte

const pieceBytes = 16

func (w WQE) segment() *segment { return (*segment)(unsafe.Add(w.at, w.bytes)) }

// End makes w the queue's next request.
func (q *SQ) End(w WQE, op cq.Opcode, control uint64) {
	first := uint64(uint16(w.next))<<40 | uint64(sendOps[op&31].opcode)<<32 | uint64(q.qpn<<8|(w.bytes+segmentBytes-1)>>segmentShift)
	*(*segment)(w.at) = segment{toBE64(first), control}
	q.last = w.next
	q.next = w.next + (w.bytes+blockBytes-1)>>blockShift
}

// Control is what End takes of a request with flags, which completes unless they say
// Unsignaled.
func Control(f cq.SendFlags) uint64 { return toBE64(uint64(sendControl[f&7]) << 32) }
