package rxe

import (
	"fmt"
	"math"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// RQ is the receive queue of a soft-RoCE queue pair, or a shared receive queue:
// their rings are the same. It is a [cq.RecvRing]: one goroutine at a time uses
// it. There is no doorbell; the driver looks when a message arrives.
type RQ struct {
	producer
	maxSGE int
}

var _ cq.RecvRing = (*RQ)(nil)

// NewRQ makes a receive queue of the ring that the driver mapped for it, for
// receives of at most maxSGE elements. An error says what in the ring's header
// cannot be.
//
// It goes on where the ring's producer index stands, which is not 0 on a queue
// pair that was reset.
func NewRQ(mem []byte, maxSGE int) (*RQ, error) {
	if maxSGE < 0 || maxSGE > maxElements {
		return nil, fmt.Errorf("rxe: a receive queue for %d elements: they are from 0 to %d", maxSGE, maxElements)
	}
	r, err := newRing(mem, "receive", abi.SizeofRxeRecvWQE+maxSGE*abi.SizeofRxeSGE)
	if err != nil {
		return nil, err
	}
	return &RQ{producer: newProducer(r), maxSGE: maxSGE}, nil
}

// Put writes a receive to the next slot: all of it, so that nothing is left of
// the one that was there a lap before. The caller has checked that there is
// room and that the queue takes so many elements; more than NewRQ was told
// panic.
func (q *RQ) Put(wrid uint64, sges []cq.SGE) {
	if len(sges) > q.maxSGE {
		panic("rxe: Put: more elements than the receive queue was made for")
	}
	w := q.ring.recv(q.next)
	*w = abi.RxeRecvWQE{WRID: wrid}
	putSGEs(q.ring.sges(q.next, abi.SizeofRxeRecvWQE, len(sges)), sges)
	length := uint64(0)
	for i := range sges {
		length += uint64(sges[i].Length)
	}
	// No message is longer than 2^31, so a buffer of more than 32 bits can
	// say less than it has.
	said := uint32(min(length, math.MaxUint32))
	w.DMA.Length, w.DMA.Resid = said, said
	w.DMA.NumSGE = uint32(len(sges))
	q.advance()
}

// Publish hands all that was Put to the driver.
func (q *RQ) Publish() { q.publish() }

// Rollback takes the last n receives back. Published ones are the driver's:
// they stay, since a message may be on its way into them.
func (q *RQ) Rollback(n uint32) { q.rollback(min(n, q.staged)) }

// TakeOver makes q, which is new, go on where old stopped: the driver has moved what
// was published there to q's ring, and what was Put there since is put here. There
// is room for it. Nothing uses old afterwards.
func (q *RQ) TakeOver(old *RQ) {
	for i := old.next - old.staged; i != old.next; i++ {
		*q.ring.recv(q.next) = *old.ring.recv(i)
		n := min(q.maxSGE, old.maxSGE)
		copy(q.ring.sges(q.next, abi.SizeofRxeRecvWQE, n), old.ring.sges(i, abi.SizeofRxeRecvWQE, n))
		q.advance()
	}
}

// Capacity is how many receives the ring holds.
func (q *RQ) Capacity() int { return q.capacity() }

// Space is how many receives can be Put now, as the driver says. It is from 0
// to Capacity whatever the driver says.
func (q *RQ) Space() int { return q.space() }

// Empty says whether the driver is done with all requests that were published.
// Any goroutine may call it.
func (q *RQ) Empty() bool { return q.empty() }
