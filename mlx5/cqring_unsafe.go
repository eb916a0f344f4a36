package mlx5

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/cq"
)

// cqRing is the memory of a completion queue: a power of two of entries. Its
// geometry is kept here, so that nothing in the memory, which the device writes,
// can lead an access out of it.
type cqRing struct {
	first  unsafe.Pointer // the CQE proper of entry 0: its last 64 bytes
	mask   uint32         // number of entries less one
	log    uint32         // of the number of entries
	stride uintptr        // bytes of an entry
}

// newCQRing makes a ring of buf and fills it with entries of the device's.
func newCQRing(buf []byte, stride int) (cqRing, error) {
	if stride != 64 && stride != 128 {
		return cqRing{}, fmt.Errorf("mlx5: CQEs of %d bytes: they have 64 or 128", stride)
	}
	n := len(buf) / stride
	if n < 2 || n > maxCQEntries || n&(n-1) != 0 || len(buf)%stride != 0 {
		return cqRing{}, fmt.Errorf("mlx5: %d bytes for a completion queue: it takes a power of two, from 2 to 2^24, of %d-byte entries", len(buf), stride)
	}
	base := unsafe.Pointer(unsafe.SliceData(buf))
	if uintptr(base)%64 != 0 {
		return cqRing{}, fmt.Errorf("mlx5: the memory of the completion queue starts %d bytes past a multiple of 64: allocate whole pages", uintptr(base)%64)
	}
	clear(buf)
	for i := stride - 1; i < len(buf); i += stride {
		buf[i] = emptyOpcodeAndMore
	}
	return cqRing{
		first:  unsafe.Add(base, stride-64),
		mask:   uint32(n - 1),
		log:    uint32(bits.TrailingZeros(uint(n))),
		stride: uintptr(stride),
	}, nil
}

// newRecord makes the two words of a doorbell record of mem and clears them.
func newRecord(mem []byte) (*[2]uint32, error) {
	if len(mem) != 8 {
		return nil, fmt.Errorf("mlx5: a doorbell record of %d bytes: it has 8", len(mem))
	}
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(p)%8 != 0 {
		return nil, fmt.Errorf("mlx5: the doorbell record starts %d bytes past a multiple of 8", uintptr(p)%8)
	}
	clear(mem)
	return (*[2]uint32)(p), nil
}

// newRegister finds the register at offset off of a UAR.
func newRegister(uar []byte, off int) (*uint64, error) {
	if len(uar) < off+8 {
		return nil, fmt.Errorf("mlx5: a UAR of %d bytes: its register at offset %#x takes more", len(uar), off)
	}
	p := unsafe.Pointer(unsafe.SliceData(uar[off:]))
	if uintptr(p)%8 != 0 {
		return nil, fmt.Errorf("mlx5: the UAR starts %d bytes past a multiple of 8: map it at a page", uintptr(p)%8)
	}
	return (*uint64)(p), nil
}

// entry is the CQE of the free-running index i.
func (r *cqRing) entry(i uint32) *cqe {
	return (*cqe)(unsafe.Add(r.first, uintptr(i&r.mask)*r.stride))
}

// straight is how many entries from index i on follow one another in memory.
func (r *cqRing) straight(i uint32) uint32 { return r.mask + 1 - i&r.mask }

// entrySize is the distance of two entries, for functions that have it as a type
// parameter: that of most queues, or whatever the ring says.
type entrySize interface{ [64]byte | [0]byte }

// nextEntry is the CQE that follows e in memory, in a ring of a stride. It is not for
// the last of the ring.
func nextEntry[E entrySize](e *cqe, stride uintptr) *cqe {
	if n := unsafe.Sizeof(*new(E)); n != 0 {
		stride = n
	}
	return (*cqe)(unsafe.Add(unsafe.Pointer(e), stride))
}

// nextWC is the completion that follows w in a slice. It is not for the last one.
func nextWC(w *cq.WC) *cq.WC { return (*cq.WC)(unsafe.Add(unsafe.Pointer(w), unsafe.Sizeof(*w))) }

// before is what stands before the CQE proper in an entry of 128 bytes. Those of
// 64 have no such thing; then it is nil.
func (r *cqRing) before(i uint32) *[64]byte {
	if r.stride == 64 {
		return nil
	}
	return (*[64]byte)(unsafe.Add(r.first, int(i&r.mask)*int(r.stride)-64))
}

// raw are the bytes of the entry of index i, all of them.
func (r *cqRing) raw(i uint32) []byte {
	e := unsafe.Pointer(r.entry(i))
	return unsafe.Slice((*byte)(unsafe.Add(e, 64-int(r.stride))), r.stride)
}

// move copies the entry of index from to that of index to, which keeps its owner
// bit.
func (r *cqRing) move(to, from uint32) { r.write(to, r, from, r.entry(to).owner()) }

// take copies an entry of another ring to that of index to, which becomes
// software's.
func (r *cqRing) take(to uint32, other *cqRing, from uint32) {
	r.write(to, other, from, to>>r.log&1*ownerInMemory)
}

// write copies an entry, but for the owner bit. The last word goes last, in one
// piece: others may look at it.
func (r *cqRing) write(to uint32, other *cqRing, from, owner uint32) {
	last := other.entry(from).owner()&^ownerInMemory | owner&ownerInMemory
	copy(r.raw(to)[:r.stride-4], other.raw(from))
	cq.StoreRelease32((*uint32)(unsafe.Pointer(&r.entry(to).counter)), last)
}

// clear makes the entry of index i the device's, whatever lap it is.
func (r *cqRing) clear(i uint32) {
	cq.StoreRelease32((*uint32)(unsafe.Pointer(&r.entry(i).counter)), toBE32(emptyOpcodeAndMore))
}

// last are the last four bytes of a CQE as one big-endian number: the request's
// counter, the signature, and the byte with opcode and owner. All that the device
// wrote before is visible afterwards, up to [mmio.ReadBarrier].
func (e *cqe) last() uint32 { return fromBE32(e.owner()) }

// owner is last in the order of memory.
func (e *cqe) owner() uint32 { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&e.counter))) }

// tail are the last eight bytes of a CQE as one big-endian number: the opcode of a
// request, the QPN, and what last has. It is for entries that are software's
// already.
func (e *cqe) tail() uint64 { return toBE64(*(*uint64)(unsafe.Pointer(&e.opcodeQPN))) }

// index is the user index with the byte above it, in the order of memory.
func (e *cqe) index() uint32 { return *(*uint32)(unsafe.Pointer(&e.userIndex)) }

// bytes are the bytes of a CQE.
func (e *cqe) bytes() *[64]byte { return (*[64]byte)(unsafe.Pointer(e)) }
