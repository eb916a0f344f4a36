package mlx5

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/cq"
)

// consumer is how far a completion queue was read. Indices run freely here.
type consumer struct {
	ring    cqRing
	record  *[2]uint32 // what the device is told: the consumer index and the last arm
	state   *cq.State
	overrun bool // the device does not look at the consumer index

	next  uint32 // the next entry to read
	given uint32 // next as the last batch left it; atomic
	skew  uint32 // how many entries were no completions but ends of rings
}

// owned says whether the entry at index i is software's: the device wrote it, in
// this lap of the ring. The opcode that no completion has is what a ring is filled
// with: without it, the entries of a fresh ring would be software's in every other
// lap.
func (c *consumer) owned(i uint32) bool {
	v := c.ring.entry(i).owner()
	return (v^c.lap(i))&ownerInMemory == 0 && !invalid(v)
}

// lap is the owner bit, where it is in memory, of entries of software's in the lap
// that index i is in. The number of a shift is masked so that the compiler does not
// look for one past 31.
func (c *consumer) lap(i uint32) uint32 { return i >> (c.ring.log & 31) & 1 * ownerInMemory }

// scan returns how many of the n entries from index i on are software's, up to the
// first that is not. They follow one another in memory.
func (c *consumer) scan(i, n uint32) uint32 {
	if n == 0 {
		return 0
	}
	if c.ring.stride == 64 {
		return n - scan[[64]byte](c.ring.entry(i), n, c.lap(i), 64)
	}
	return n - scan[[0]byte](c.ring.entry(i), n, c.lap(i), c.ring.stride)
}

// scan looks at left entries from e on and returns how many are left, from the
// first on that is not software's. There is one at least. The owner bit of the lap
// is where it is in memory.
func scan[E entrySize](e *cqe, left, lap uint32, stride uintptr) uint32 {
	// Four at a time, with one branch, as long as all are successes of this lap.
	for left >= 4 {
		b := nextEntry[E](e, stride)
		c := nextEntry[E](b, stride)
		d := nextEntry[E](c, stride)
		if ((e.owner()^lap)|(b.owner()^lap)|(c.owner()^lap)|(d.owner()^lap))&(ownerInMemory|abnormal) != 0 {
			break
		}
		if left -= 4; left == 0 {
			return 0
		}
		e = nextEntry[E](d, stride)
	}
	for {
		if v := e.owner() ^ lap; v&ownerInMemory != 0 || invalid(v) {
			return left
		}
		if left--; left == 0 {
			return 0
		}
		e = nextEntry[E](e, stride)
	}
}

// end returns the first index from i on whose entry is not software's, or that a
// lap later.
func (c *consumer) end(i uint32) uint32 {
	n := c.ring.straight(i)
	if k := c.scan(i, n); k < n {
		return i + k
	}
	return i + n + c.scan(i+n, c.Capacity()-n)
}

// give returns the entries before index next to the device, unless the queue was
// closed: then the memory may be another's by now.
func (c *consumer) give(next uint32) {
	c.next = next
	if c.state.Load()&cq.Closed != 0 {
		return
	}
	if !c.overrun {
		// All that was read of the entries was read before: the device may
		// write to them from here on.
		cq.StoreRelease32(&c.record[0], toBE32(next&low24))
	}
	cq.StoreRelease32(&c.given, next)
}

// Consumed is the number of entries that Poll has read so far, modulo 2^32.
func (c *consumer) Consumed() uint32 { return c.next - c.skew }

func (c *consumer) loadGiven() uint32 { return atomic.LoadUint32(&c.given) }

// Capacity is how many completions the ring holds.
func (c *consumer) Capacity() uint32 { return c.ring.mask + 1 }

// Empty says whether all that the device has written was read and given back at
// one moment during the call. Any goroutine may call it.
func (c *consumer) Empty() bool {
	given := c.loadGiven()
	// Had the poller moved in between, the entry could be of a later lap.
	return !c.owned(given) && c.loadGiven() == given
}

// Holds says whether the device has written at least n entries that Poll has not given
// back. It looks at one: the device writes them one after another. Any goroutine may
// call it; see [cq.CompletionRing].
func (c *consumer) Holds(n uint32) bool {
	return n == 0 || n <= c.Capacity() && c.owned(c.loadGiven()+n-1)
}

// Produced is the number of entries that the device has written so far, counted
// as Consumed is. It looks at all those not yet read. Any goroutine may call it.
func (c *consumer) Produced() uint32 {
	for {
		given := c.loadGiven()
		end := c.end(given)
		if c.loadGiven() == given {
			return end - c.skew
		}
	}
}
