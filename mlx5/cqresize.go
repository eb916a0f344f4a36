package mlx5

import (
	"errors"
	"fmt"
)

// ErrResize: the kernel has resized a completion queue and the device's old ring
// does not end as it should, so that completions may be lost.
var ErrResize = errors.New("mlx5: completions were lost when a completion queue was resized")

// Resize makes a completion queue of buffer, which has room for the new number of
// entries, and goes on there: command tells the kernel of it. It returns the queue
// that takes the place of q, with what q held; q must not be used any more, except
// for EventTaken. If command fails q stays what it is and the new queue is nil.
// [ErrResize] comes together with a new queue, since the device writes to that
// already.
//
// Poller's side. Those who call Empty, Produced and ReturnShared beside it must not
// do so during the call.
func (q *CQ) Resize(buffer []byte, command func() error) (*CQ, error) {
	ring, err := newCQRing(buffer, int(q.ring.stride))
	if err != nil {
		return nil, err
	}
	if err := command(); err != nil {
		return nil, err
	}
	// The last entry that the device wrote to the old ring says so, and takes
	// an index: all that comes before it moves on by one.
	i, end := q.next, q.end(q.next)
	room := q.next + ring.mask + 1
	found := false
	for ; i != end && i != room; i++ {
		e := q.ring.entry(i)
		if e.opcodeAndMore>>4 == cqeResize {
			found = true
			break
		}
		ring.take(i+1, &q.ring, i)
	}
	n := &CQ{consumer: q.consumer, decode: q.decode, arm: q.arm}
	n.ring = ring
	n.skew++
	n.give(q.next + 1)
	n.arm.from++ // so that the end of the ring is not taken for a completion
	if !found {
		return n, fmt.Errorf("%w: %d completions in the old ring of %d entries, and no sign of its end", ErrResize, i-q.next, q.Capacity())
	}
	return n, nil
}
