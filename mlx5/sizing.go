package mlx5

import (
	"fmt"
	"math/bits"

	"github.com/goverbs/goverbs/cq"
)

// The sizes of queues are the library's to choose: the device is told how many
// blocks and requests there are and where. What is here computes as rdma-core's
// libmlx5 does (mlx5_calc_sq_size, mlx5_calc_rq_size, mlx5_alloc_srq_buf), so that
// a queue pair has the same limits with both.

// Transport is the kind of a queue pair.
type Transport uint8

const (
	RC Transport = iota
	UC
	UD
)

// String is the name of the transport, or Transport(n).
func (t Transport) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	}
	return fmt.Sprintf("Transport(%d)", uint8(t))
}

// Operations is a set of send operations.
type Operations uint32

// OperationsOf is the set of the given ones.
func OperationsOf(ops ...cq.Opcode) Operations {
	var s Operations
	for _, o := range ops {
		s |= 1 << o
	}
	return s
}

// Has says whether o is in the set.
func (s Operations) Has(o cq.Opcode) bool { return s>>o&1 != 0 }

// Operations returns what queue pairs of the transport can send. The device has
// windows on UC too, but takes no reads and atomics there.
func (t Transport) Operations() Operations {
	plain := OperationsOf(cq.OpSend, cq.OpSendImm)
	switch t {
	case RC:
		return plain | OperationsOf(cq.OpSendInvalidate, cq.OpWrite, cq.OpWriteImm, cq.OpRead, cq.OpCompareSwap, cq.OpFetchAdd, cq.OpLocalInvalidate, cq.OpBindMW)
	case UC:
		return plain | OperationsOf(cq.OpSendInvalidate, cq.OpWrite, cq.OpWriteImm, cq.OpLocalInvalidate, cq.OpBindMW)
	case UD:
		return plain
	}
	return 0
}

// Limits are the device's, from the context: see [Context.Limits].
type Limits struct {
	SendBytes      uint32 // of a send request, at most 2^16
	RecvBytes      uint32 // of a receive, at most 2^16
	SendBlocks     uint32 // of a send queue, of 64 bytes
	RecvRequests   uint32 // of a receive queue
	SharedRequests uint32 // of a shared receive queue
}

// SendSize is the size of a send queue.
type SendSize struct {
	Transport  Transport
	Operations Operations
	// Requests is how many it takes at a time: at least what was asked for.
	Requests uint32
	// MaxSGE and MaxInline bound the data of one request: elements, bytes.
	MaxSGE, MaxInline uint32
	// RequestBytes is what a request can take at most, Blocks how many blocks
	// the ring has, a power of two, and Bytes its memory.
	RequestBytes, Blocks uint32
	Bytes                int
}

// fixedBytes is what the largest operation of a set takes beside its data,
// without what the transport adds.
func fixedBytes(ops Operations) uint32 {
	n := uint32(controlBytes)
	if ops&OperationsOf(cq.OpWrite, cq.OpWriteImm, cq.OpRead) != 0 {
		n = controlBytes + remoteBytes
	}
	if ops&OperationsOf(cq.OpCompareSwap, cq.OpFetchAdd) != 0 {
		n = controlBytes + remoteBytes + atomicBytes
	}
	if ops&OperationsOf(cq.OpLocalInvalidate, cq.OpBindMW) != 0 {
		n = controlBytes + umrBytes + mkeyBytes + klmBytes
	}
	return n
}

// dataBytes is what the largest operation that carries as many data pointers as
// the queue takes, or inline data, has beside them.
func dataBytes(t Transport, ops Operations) uint32 {
	n := fixedBytes(ops &^ OperationsOf(cq.OpLocalInvalidate, cq.OpBindMW, cq.OpCompareSwap, cq.OpFetchAdd))
	if t == UD {
		n += addressBytes
	}
	return n
}

// mostBytes is what a request can take that stays within MaxSGE and MaxInline.
func (s *SendSize) mostBytes() uint32 {
	data := pointerBytes * uint64(s.MaxSGE)
	if s.MaxInline > 0 {
		data = max(data, alignUp(inlineHeader+uint64(s.MaxInline), segmentBytes))
	}
	if data > maxSegments*segmentBytes {
		return all
	}
	n := dataBytes(s.Transport, s.Operations) + uint32(data)
	if s.Operations&OperationsOf(cq.OpCompareSwap, cq.OpFetchAdd) != 0 {
		n = max(n, controlBytes+remoteBytes+atomicBytes+pointerBytes)
	}
	return max(n, fixedBytes(s.Operations))
}

// SizeSend computes the size of a send queue for so many requests at a time, of so
// many elements, or bytes inline, and of the given operations, 0 for all that the
// transport has. Fewer operations can make a queue of the same memory hold more.
// No requests are a queue that nothing can be sent through.
//
// An error says which limit of the device it goes past. One differs from
// libmlx5's: a request's own count of its size ends at 1008 bytes, and the device
// may offer 1024.
func SizeSend(l Limits, t Transport, requests, sge, inline uint32, ops Operations) (SendSize, error) {
	if t.Operations() == 0 {
		return SendSize{}, fmt.Errorf("mlx5: a send queue of %v: it is RC, UC or UD", t)
	}
	if ops == 0 {
		ops = t.Operations()
	}
	if more := ops &^ t.Operations(); more != 0 {
		return SendSize{}, fmt.Errorf("mlx5: a send queue of %v for %v, which it does not have", t, cq.Opcode(bits.TrailingZeros32(uint32(more))))
	}
	if requests == 0 {
		return SendSize{Transport: t, Operations: ops}, nil
	}
	fixed := uint64(fixedBytes(ops))
	// libmlx5 reserves the room of windows and atomics for all of them.
	if t == UD {
		fixed += addressBytes
	}
	pointers := fixed + pointerBytes*uint64(sge)
	size := pointers
	if inline > 0 {
		size = max(size, fixed+alignUp(inlineHeader+uint64(inline), segmentBytes))
	}
	size = alignUp(size, blockBytes)
	if size > uint64(l.SendBytes) {
		return SendSize{}, fmt.Errorf("mlx5: send requests of %d elements or %d bytes inline take %d bytes, in whole blocks, the device has %d: ask for fewer", sge, inline, size, l.SendBytes)
	}
	data := dataBytes(t, ops)
	if data+pointerBytes*sge > maxSegments*segmentBytes || fixed > maxSegments*segmentBytes {
		return SendSize{}, fmt.Errorf("mlx5: send requests of %d elements take %d bytes, a request can say %d: ask for fewer",
			sge, data+pointerBytes*sge, maxSegments*segmentBytes)
	}
	ring := pow2(uint64(requests) * size)
	if most := min(l.SendBlocks, maxPositions); ring/blockBytes > uint64(most) {
		return SendSize{}, fmt.Errorf("mlx5: %d send requests of %d bytes take %d blocks of %d, the device has %d: ask for fewer requests, elements or inline bytes",
			requests, size, ring/blockBytes, blockBytes, most)
	}
	maxInline := uint32(0)
	if size > fixed+inlineHeader {
		maxInline = min(uint32(size-fixed-inlineHeader), maxSegments*segmentBytes-data-inlineHeader)
	}
	if inline > maxInline {
		return SendSize{}, fmt.Errorf("mlx5: %d bytes inline: a request can have %d", inline, maxInline)
	}
	return SendSize{
		Transport:    t,
		Operations:   ops,
		Requests:     uint32(ring / size),
		MaxSGE:       sge,
		MaxInline:    maxInline,
		RequestBytes: uint32(size),
		Blocks:       uint32(ring / blockBytes),
		Bytes:        int(ring),
	}, nil
}

// RecvSize is the size of a receive queue.
type RecvSize struct {
	// Requests is how many receives it takes at a time, a power of two: at
	// least what was asked for.
	Requests uint32
	MaxSGE   uint32 // elements of one receive, at least what was asked for
	// RequestBytes is what a receive takes, 1<<Shift, and Bytes the memory of
	// the ring.
	RequestBytes, Shift uint32
	Bytes               int
}

// SizeRecv computes the size of a receive queue for so many receives at a time of
// so many elements. None are a queue pair without one, as with a shared receive
// queue.
func SizeRecv(l Limits, requests, sge uint32) (RecvSize, error) {
	if requests == 0 {
		return RecvSize{}, nil
	}
	if most := min(l.RecvRequests, maxPositions); requests > most {
		return RecvSize{}, fmt.Errorf("mlx5: %d receives, the device has %d: ask for fewer", requests, most)
	}
	size := pow2(pointerBytes * uint64(max(sge, 1)))
	if size > uint64(l.RecvBytes) {
		return RecvSize{}, fmt.Errorf("mlx5: receives of %d elements take %d bytes, the device has %d: ask for fewer", sge, size, l.RecvBytes)
	}
	ring := max(pow2(uint64(requests))*size, blockBytes)
	return RecvSize{
		Requests:     uint32(ring / size),
		MaxSGE:       uint32(size / pointerBytes),
		RequestBytes: uint32(size),
		Shift:        uint32(bits.TrailingZeros64(size)),
		Bytes:        int(ring),
	}, nil
}

// QueuePairSize is how the queues of a queue pair lie in their common memory: the
// receive queue at its start, the send queue behind it.
type QueuePairSize struct {
	Send SendSize
	Recv RecvSize
}

// SendOffset is where the send queue begins.
func (s QueuePairSize) SendOffset() int { return s.Recv.Bytes }

// Bytes is how much memory both take. It begins at a page.
func (s QueuePairSize) Bytes() int { return s.Recv.Bytes + s.Send.Bytes }

// SharedSize is the size of a shared receive queue.
type SharedSize struct {
	// Requests is how many receives it takes at a time: at least what was
	// asked for.
	Requests uint32
	MaxSGE   uint32 // elements of one receive, at least what was asked for
	// Elements is how many the ring has, a power of two and more than
	// Requests; the kernel is told one less. RequestBytes is what each takes,
	// 1<<Shift, and Bytes the memory of the ring.
	Elements, RequestBytes, Shift uint32
	Bytes                         int
}

// maxShared is how many elements an index of 16 bits can name.
const maxShared = 1 << 16

// maxRing is more than the memory of any device's queue, so that sizes are numbers
// on every machine.
const maxRing = 1 << 30

// SizeShared computes the size of a shared receive queue for so many receives at a
// time of so many elements. Where the device allows it the ring has twice the
// elements, so that one is long unused before it is used again: the device may
// come back to an element of which it reported a page fault.
func SizeShared(l Limits, requests, sge uint32) (SharedSize, error) {
	if requests > l.SharedRequests || requests >= maxShared {
		return SharedSize{}, fmt.Errorf("mlx5: a shared receive queue for %d receives, the device has %d", requests, min(l.SharedRequests, maxShared-1))
	}
	size := pow2(max(sharedHeader+pointerBytes*uint64(sge), 32))
	if size > uint64(l.RecvBytes) {
		return SharedSize{}, fmt.Errorf("mlx5: shared receives of %d elements take %d bytes, the device has %d: ask for fewer", sge, size, l.RecvBytes)
	}
	elements := pow2(uint64(requests) + 1)
	s := SharedSize{Requests: uint32(elements - 1), MaxSGE: uint32(size-sharedHeader) / pointerBytes, RequestBytes: uint32(size), Shift: uint32(bits.TrailingZeros64(size))}
	if more := 2*uint64(requests) + 1; more <= uint64(l.SharedRequests) && more <= maxShared {
		elements = pow2(more)
	}
	if elements*size > maxRing {
		return SharedSize{}, fmt.Errorf("mlx5: a shared receive queue of %d bytes: ask for fewer requests or elements", elements*size)
	}
	s.Elements = uint32(elements)
	s.Bytes = int(elements * size)
	return s, nil
}

// maxPositions is how many requests, or blocks of requests, a queue can have that
// are told apart, and a full queue from an empty one, by counts of 16 bits.
const maxPositions = 1 << 15

// pow2 is the least power of two that is not less than n, and 1 for 0.
func pow2(n uint64) uint64 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len64(n-1)
}

// alignUp is the least multiple of a, a power of two, that is not less than n.
func alignUp(n, a uint64) uint64 { return (n + a - 1) &^ (a - 1) }
