package uverbs

import (
	"fmt"
	"math"

	"github.com/goverbs/goverbs/cq"
)

// atomicSize is the size in bytes of what atomic operations work on.
const atomicSize = 8

// CompareSwap replaces the eight bytes at a place in the peer's memory by swap
// if they are compare, and writes what they were into a span of eight bytes. The
// place is a multiple of 8; the region and the peer's queue pair allow
// RemoteAtomic.
//
// All numbers, also the one in into, have the byte order of their machine. The
// operation is atomic among those of the peer's device; whether the peer's
// processors see it as atomic too, DeviceAttr.Atomic says there.
func (q *SendQueue) CompareSwap(id uint64, into Span, at RemoteAddr, compare, swap uint64, flags ...SendFlags) {
	q.begin(cq.OpCompareSwap, flags)
	q.wr.Compare, q.wr.Operand = compare, swap
	q.atomic(into, at)
	q.stage(id)
}

// FetchAdd adds to the eight bytes at a place in the peer's memory, and writes
// what they were before into a span of eight bytes. A sum that is too large
// wraps around, so adding ^uint64(0) subtracts 1. All else is as with
// CompareSwap.
func (q *SendQueue) FetchAdd(id uint64, into Span, at RemoteAddr, add uint64, flags ...SendFlags) {
	q.begin(cq.OpFetchAdd, flags)
	q.wr.Operand = add
	q.atomic(into, at)
	q.stage(id)
}

// AtomicWrite writes eight bytes, in the machine's byte order, to a place in the
// peer's memory that is a multiple of 8: the peer sees all or none of them, and
// after whatever was written before. It takes a device with CapAtomicWrite.
func (q *SendQueue) AtomicWrite(id uint64, to RemoteAddr, value uint64, flags ...SendFlags) {
	q.begin(cq.OpAtomicWrite, flags)
	q.wr.Operand = value
	q.wr.Length = atomicSize
	q.remote(to)
	q.aligned()
	q.stage(id)
}

// RemoteFlush makes n bytes of the peer's memory that were written before reach
// everybody who may read them (FlushGlobal), or storage that survives a loss of
// power (FlushPersistent), or both, before it completes. The region and the
// peer's queue pair allow the same by their access rights. It takes a device
// with CapFlushGlobal or CapFlushPersistent.
func (q *SendQueue) RemoteFlush(id uint64, at RemoteAddr, n int, where Access, flags ...SendFlags) {
	q.begin(cq.OpFlush, flags)
	if n < 0 || uint64(n) > math.MaxInt32 {
		q.fail(fmt.Errorf("flush of %d bytes: allowed are 0 to %d, or RemoteFlushRegion: %w", n, math.MaxInt32, ErrBounds))
		n = 0
	}
	q.wr.Length = uint32(n)
	q.remote(at)
	q.flushTo(where)
	q.stage(id)
}

// RemoteFlushRegion is RemoteFlush for the whole region, whatever its size.
func (q *SendQueue) RemoteFlushRegion(id uint64, region Remote, where Access, flags ...SendFlags) {
	q.begin(cq.OpFlush, flags)
	q.wr.FlushWhole = true
	q.remote(region.At(0))
	q.flushTo(where)
	q.stage(id)
}

// atomic is where an operation on eight bytes happens, and where the old ones go.
func (q *SendQueue) atomic(into Span, at RemoteAddr) {
	if into.n != atomicSize {
		q.fail(fmt.Errorf("%v into a span of %d bytes: it takes %d: %w", q.wr.Op, into.n, atomicSize, ErrInvalid))
	}
	q.into(into)
	q.remote(at)
	q.aligned()
}

// aligned checks the remote address of an operation on eight bytes. Soft-RoCE
// would answer with an error completion, and end both queue pairs.
func (q *SendQueue) aligned() {
	if q.wr.RemoteAddr%atomicSize != 0 {
		q.fail(fmt.Errorf("%v at the remote address %#x: it has to be a multiple of %d: %w", q.wr.Op, q.wr.RemoteAddr, atomicSize, ErrInvalid))
	}
}

// flushTo says what a flush reaches.
func (q *SendQueue) flushTo(where Access) {
	if where == 0 || where&^(FlushGlobal|FlushPersistent) != 0 {
		q.fail(fmt.Errorf("flush to %v: allowed are FlushGlobal, FlushPersistent or both: %w", where, ErrInvalid))
		return
	}
	if err := q.qp.dev.checkAccess("flush", where); err != nil {
		q.fail(err)
		return
	}
	// enum ib_placement_type has the two bits in the same order.
	q.wr.FlushType = uint8(where / FlushGlobal)
}
