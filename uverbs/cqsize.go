package uverbs

import (
	"math"
	"math/bits"
)

// CQSizing says what a completion queue has to hold, for Device.CQDepth.
type CQSizing struct {
	// QueuePairs is how many complete on the queue, and Outstanding how many
	// requests each may have outstanding there at a time: its send depth and its
	// receive depth, if both sides complete on it. What is received through SRQs
	// counts by the depth of those: take each for one more queue pair.
	QueuePairs, Outstanding int
	// Margin is how much more, in percent: for queue pairs that are closed and made
	// again, whose places come back only when what they left was polled. 0 is 25;
	// negative is none.
	Margin int
}

// defaultMargin is the one of CQSizing, in percent.
const defaultMargin = 25

// CQDepth is the depth for NewCQ of a queue that holds all of it. Rings have a power
// of two of entries, of which one stays free: the depth is the whole ring's, and
// CQ.Depth of the queue says the same. If no queue of the device is that deep the error
// wraps ErrInvalid.
func (d *Device) CQDepth(s CQSizing) (int, error) {
	const op = "CQ depth"
	margin := uint64(max(s.Margin, 0))
	if s.Margin == 0 {
		margin = defaultMargin
	}
	if s.QueuePairs < 1 || s.Outstanding < 1 {
		return 0, invalid("%s: %d queue pairs with %d requests outstanding: 1 and more of both", op, s.QueuePairs, s.Outstanding)
	}
	over, n := bits.Mul64(uint64(s.QueuePairs), uint64(s.Outstanding))
	more, hundredths := bits.Mul64(n, 100+margin)
	want := (hundredths-1)/100 + 1 // rounded up
	if over != 0 || more != 0 {
		want = math.MaxUint64
	}
	if want > uint64(d.attr.MaxCQE) {
		return 0, invalid("%s: %d queue pairs x %d outstanding + %d%% are %d completions: %s allows %d: spread them over %d queues, or allow fewer",
			op, s.QueuePairs, s.Outstanding, margin, want, d.info.Name, d.attr.MaxCQE, (want-1)/uint64(max(d.attr.MaxCQE, 1))+1)
	}
	// Soft-RoCE and ConnectX round in the same way: rxe_queue_init of
	// drivers/infiniband/sw/rxe/rxe_queue.c, create_cq_user of mlx5's cq.c.
	return min(1<<bits.Len64(want)-1, d.attr.MaxCQE), nil
}
