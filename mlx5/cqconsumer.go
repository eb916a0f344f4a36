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
}

// owned says whether the entry at index i is software's: the device wrote it, in
// this lap of the ring. The opcode that no completion has is what a ring is filled
// with: without it, the entries of a fresh ring would be software's in every other
// lap.
func (c *consumer) owned(i uint32) bool {
	v := c.ring.entry(i).last()
	return (v^i>>c.ring.log)&ownerBit == 0 && v&0xf0 != cqeInvalid<<4
}

// scan returns the first index from i on, and before end, whose entry is not
// software's, or end.
func (c *consumer) scan(i, end uint32) uint32 {
	r := c.ring
	for ; i != end; i++ {
		v := r.entry(i).last()
		if (v^i>>r.log)&ownerBit != 0 || v&0xf0 == cqeInvalid<<4 {
			break
		}
	}
	return i
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
func (c *consumer) Consumed() uint32 { return c.next }

// Capacity is how many completions the ring holds.
func (c *consumer) Capacity() uint32 { return c.ring.mask + 1 }

// Empty says whether all that the device has written was read and given back at
// one moment during the call. Any goroutine may call it.
func (c *consumer) Empty() bool {
	given := atomic.LoadUint32(&c.given)
	// Had the poller moved in between, the entry could be of a later lap.
	return !c.owned(given) && atomic.LoadUint32(&c.given) == given
}

// Produced is the number of entries that the device has written so far, counted
// as Consumed is. It looks at all those not yet read. Any goroutine may call it.
func (c *consumer) Produced() uint32 {
	for {
		given := atomic.LoadUint32(&c.given)
		end := c.scan(given, given+c.Capacity())
		if atomic.LoadUint32(&c.given) == given {
			return end
		}
	}
}
