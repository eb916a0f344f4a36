package mlx5

import (
	"errors"
	"math/bits"

	"github.com/goverbs/goverbs/cq"
)

// CQ is the completion queue of a ConnectX. It is a [cq.CompletionRing]: one
// goroutine at a time calls its methods, Empty, Produced, ReturnShared and
// EventTaken excepted.
type CQ struct {
	consumer
	decode decoder
	arm    *arm
}

var _ cq.CompletionRing = (*CQ)(nil)

const maxCQEntries = 1 << 24

// CQConfig is what a completion queue is made of.
type CQConfig struct {
	// Buffer is the memory of the entries: [CQEntries] of them. The kernel
	// wants it to begin at a page. It is ordinary write-back memory of the
	// process, outside of the Go heap, and has to stay readable and writable as
	// long as the CQ is used. It may be replaced by other pages at any time, if
	// State says Closed before.
	Buffer []byte
	// Record is the doorbell record: 8 bytes at a multiple of 8, in memory of
	// the same kind.
	Record []byte
	// UAR is the page whose register arms the queue. Nil if it is never armed.
	UAR []byte
	// Tell, if not nil, is told of what is stored to the register, and where in
	// the page it is: see Doorbell.
	Tell func(off int, value uint64)
	// EntrySize is 64 or 128 bytes.
	EntrySize int
	// Endpoints finds queue pairs by their user index: CQE version 1.
	Endpoints *cq.Endpoints
	// Numbers finds them by QPN, where the device has CQE version 0. One of
	// the two is nil.
	Numbers *cq.Members
	// State is the queue's.
	State *cq.State
	// Timestamps: completions have one, in ticks of the device's clock or,
	// if the kernel was asked for that, as [RealTime] reads it.
	Timestamps bool
	// Ethernet: the ports of the device are RoCE ports.
	Ethernet bool
	// IgnoreOverrun: the kernel was told that the device shall not compare its
	// own index with the consumer's. Then completions that are not polled in
	// time are overwritten, and the program sees to it that none is.
	IgnoreOverrun bool
	// Scatter, if not nil, stores data that the device left in the completion
	// of the request at a position of its queue to that request's buffers. It
	// returns [cq.StatusLocalLength] if they are too small. It must not keep
	// data. Queue pairs made without that feature need none.
	Scatter func(ep *cq.Endpoint, side cq.Side, pos uint16, data []byte) cq.Status
	// SignatureError, if not nil, is told of protection errors of signature
	// keys, inside Poll. They end no request. [ParseSignatureErrorCQE] takes the
	// entry apart, which must not be kept.
	SignatureError func(entry *[64]byte)
}

// CQEntries is the number of entries of a queue for depth completions, as the
// kernel rounds it: one at least stays free.
func CQEntries(depth int) int {
	return 1 << bits.Len(uint(max(depth, 1)))
}

// NewCQ makes a completion queue of memory, which it fills: before the kernel is
// told of it.
func NewCQ(c CQConfig) (*CQ, error) {
	q := new(CQ)
	cons, d := &q.consumer, &q.decode
	var err error
	if c.State == nil || (c.Endpoints == nil) == (c.Numbers == nil) {
		return nil, errors.New("mlx5: a completion queue needs a State, and either Endpoints or Numbers")
	}
	if cons.ring, err = newCQRing(c.Buffer, c.EntrySize); err != nil {
		return nil, err
	}
	if cons.record, err = newRecord(c.Record); err != nil {
		return nil, err
	}
	if q.arm, err = newArm(c.UAR, c.Tell); err != nil {
		return nil, err
	}
	cons.state, cons.overrun = c.State, c.IgnoreOverrun
	d.endpoints, d.numbers, d.state = c.Endpoints, c.Numbers, c.State
	d.ethernet, d.wide, d.scatter, d.signature = c.Ethernet, c.EntrySize == 128, c.Scatter, c.SignatureError
	if c.Timestamps {
		d.stampMask = ^uint64(0)
	}
	return q, nil
}

// Poll decodes at most len(wcs) completions into wcs and returns how many, and
// whether it has read all that were there. Completions that cannot belong to a
// posted request are dropped and counted in the State, as are those of closed
// QPs; quiet requests that succeeded are dropped in silence, so n may be less than
// what was read. What wcs holds from n on is not defined.
//
// The entries of the batch go back to the device in one store at the end, unless
// the State says by then that the queue is closed. A Poll reads one lap of the
// ring at most.
func (q *CQ) Poll(wcs []cq.WC) (n int, drained bool) {
	next := q.next
	if !q.owned(next) {
		return 0, true
	}
	lap := next + q.Capacity()
	for n < len(wcs) && next != lap {
		want := min(uint32(len(wcs)-n), lap-next, q.ring.straight(next))
		// Called from here: one call more is a tenth of a poll of one.
		switch {
		case q.decode.endpoints == nil:
			n, next = q.numbered(next, want, wcs, n)
		case q.ring.stride == 64 && q.decode.stampMask == 0:
			n, next = bodies[[64]byte, plain](q, next, want, wcs, n)
		default: // one function for all others: each more is 7 kB of every program
			n, next = bodies[[0]byte, stamped](q, next, want, wcs, n)
		}
		if drained = !q.owned(next); drained {
			break
		}
	}
	if next != q.next {
		q.give(next)
	}
	return n, drained
}
