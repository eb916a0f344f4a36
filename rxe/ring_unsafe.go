package rxe

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// ring is one queue that a process shares with the soft-RoCE driver: struct
// rxe_queue_buf of rdma/rdma_user_rxe.h, and after it a power of two of slots.
// Its geometry is read from the header once, checked against the memory and
// kept here; nothing in the shared memory can lead an access out of the ring
// afterwards, also when the whole mapping is replaced by zero pages.
type ring struct {
	producer *uint32        // index of the slot that is filled next
	consumer *uint32        // index of the slot that is taken next
	slots    unsafe.Pointer // slot 0
	mask     uint32         // number of slots less one
	size     uintptr        // bytes of a slot
}

// newRing checks the header of the ring in mem, whose slots hold a record of
// size bytes. kind names the ring in errors.
func newRing(mem []byte, kind string, size int) (ring, error) {
	if len(mem) < abi.OffRxeQueueBufData {
		return ring{}, fmt.Errorf("rxe: the memory of the %s ring is %d bytes, its header alone takes %d: map as many bytes as the driver said",
			kind, len(mem), abi.OffRxeQueueBufData)
	}
	base := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(base)%8 != 0 {
		return ring{}, fmt.Errorf("rxe: the memory of the %s ring starts %d bytes past a multiple of 8: map it at a page",
			kind, uintptr(base)%8)
	}
	h := (*abi.RxeQueueBuf)(base)
	shift := atomic.LoadUint32(&h.Log2ElemSize)
	mask := atomic.LoadUint32(&h.IndexMask)
	// The bound keeps the sizes below far from overflow.
	if shift > 30 {
		return ring{}, fmt.Errorf("rxe: the driver's %s ring has elements of 2^%d bytes: this is not a ring of soft-RoCE", kind, shift)
	}
	if 1<<shift < size {
		return ring{}, fmt.Errorf("rxe: the driver's %s ring has elements of %d bytes, what they have to hold takes %d", kind, 1<<shift, size)
	}
	slots := uint64(mask) + 1
	if mask == 0 || slots&uint64(mask) != 0 {
		return ring{}, fmt.Errorf("rxe: the driver's %s ring has index mask %#x: it is not a power of two less one and at least 1", kind, mask)
	}
	if room := uint64(len(mem) - abi.OffRxeQueueBufData); slots<<shift > room {
		return ring{}, fmt.Errorf("rxe: the driver's %s ring has %d elements of %d bytes, but %d bytes of memory after the header",
			kind, slots, 1<<shift, room)
	}
	return ring{
		producer: &h.ProducerIndex,
		consumer: &h.ConsumerIndex,
		slots:    unsafe.Add(base, abi.OffRxeQueueBufData),
		mask:     mask,
		size:     1 << shift,
	}, nil
}

// slot returns the slot of the free-running index i.
func (r *ring) slot(i uint32) unsafe.Pointer {
	return unsafe.Add(r.slots, uintptr(i&r.mask)*r.size)
}

// completion returns slot i of a completion ring. Some kernels have bigger
// elements; what follows struct ib_uverbs_wc in them is their own.
func (r *ring) completion(i uint32) *abi.UverbsWC { return (*abi.UverbsWC)(r.slot(i)) }

// send returns the fixed part of slot i of a send ring.
func (r *ring) send(i uint32) *abi.RxeSendWQE { return (*abi.RxeSendWQE)(r.slot(i)) }

// recv returns the fixed part of slot i of a receive ring.
func (r *ring) recv(i uint32) *abi.RxeRecvWQE { return (*abi.RxeRecvWQE)(r.slot(i)) }

// sges returns room for n scatter/gather elements after the fixed part, which
// has off bytes, of slot i. The caller has checked n.
func (r *ring) sges(i uint32, off uintptr, n int) []abi.RxeSGE {
	return unsafe.Slice((*abi.RxeSGE)(unsafe.Add(r.slot(i), off)), n)
}

// sge returns the first scatter/gather element after the fixed part of a slot of a send
// ring. There is room for one in all of them; see [SQ.Put].
func (r *ring) sge(w *abi.RxeSendWQE) *abi.RxeSGE {
	return (*abi.RxeSGE)(unsafe.Add(unsafe.Pointer(w), abi.SizeofRxeSendWQE))
}

// inline returns room for n bytes of inline data in slot i of a send ring. The
// caller has checked n.
func (r *ring) inline(i uint32, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(r.slot(i), abi.SizeofRxeSendWQE)), n)
}

// peek copies a part of slot i, from off on. The caller has checked that it lies in the
// slot. Driver and poster may be writing to it, which is the caller's business, not the
// race detector's.
//
//go:norace
func (r *ring) peek(to []byte, i uint32, off uintptr) {
	from := unsafe.Slice((*byte)(unsafe.Add(r.slot(i), off)), len(to))
	for k := range to { // copy would tell the detector
		to[k] = from[k]
	}
}

// loadProducer returns the producer index. What the driver wrote before it is
// visible afterwards. Kernels mask it; a hostile one may not.
func (r *ring) loadProducer() uint32 { return atomic.LoadUint32(r.producer) & r.mask }

// loadConsumer returns the consumer index. What the driver read before it was
// read from the slots as they were.
func (r *ring) loadConsumer() uint32 { return atomic.LoadUint32(r.consumer) & r.mask }

// storeProducer publishes slots. The index has to be masked in memory: since
// 6.1.20 and 6.3 kernels compare what stands there with their own masked one.
func (r *ring) storeProducer(i uint32) { cq.StoreRelease32(r.producer, i&r.mask) }

// storeConsumer gives slots back, masked for the same reason.
func (r *ring) storeConsumer(i uint32) { cq.StoreRelease32(r.consumer, i&r.mask) }
