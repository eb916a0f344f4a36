package mlx5

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5/internal/mmio"
)

// uarArm is where in a UAR the register stands that arms completion queues.
const uarArm = 0x20

// The arm word: two bits of sequence number, what is asked for, the consumer
// index.
const (
	armSequenceShift = 28
	armSolicitedOnly = 1 << 24
)

// arm is what outlives the memory of a completion queue: how it is armed.
type arm struct {
	register *uint64 // nil: never
	tell     func(off int, value uint64)
	number   uint32 // of the queue
	events   atomic.Uint32

	moderated atomic.Bool

	// The last arm, poller's side: what was asked for, the entry that was next, and
	// whether it was not there yet.
	armed bool
	asked uint32
	from  uint32
	empty bool
	// The device has answered that many arms, at least and at most.
	least, most uint32
}

// armSpread is how many numbers an arm has: with all of them one fits.
const armSpread = 4

func newArm(uar []byte, tell func(off int, value uint64)) (*arm, error) {
	if uar == nil {
		return new(arm), nil
	}
	p, err := newRegister(uar, uarArm)
	return &arm{register: p, tell: tell}, err
}

// SetNumber tells the queue its number, which the kernel's reply has. It comes
// before the first Arm.
func (q *CQ) SetNumber(cqn uint32) { q.arm.number = cqn & low24 }

// Arm asks for one event when the next completion arrives, or, with
// solicitedOnly, the next receive of a solicited message or failed request. It
// panics if the queue has no UAR.
//
// Completions that are there already may raise none: poll after arming.
func (q *CQ) Arm(solicitedOnly bool) { q.arm.ring(&q.consumer, q.owned(q.next), solicitedOnly) }

// EventTaken counts an event of the queue that the program has taken from its
// channel. It comes before the next Arm: the device takes an arm with the number
// of one that it has answered for a repetition, and stays silent. Any goroutine
// may call it.
//
// Where an arm finds the queue empty and asks for any completion, the next one to come
// tells as well that the device has answered. So events that are late, lost or there
// twice do no harm then: who arms again is told of what follows.
func (q *CQ) EventTaken() { q.arm.events.Add(1) }

// Moderated says that the device may be slow to answer arms from now on, so that a
// completion does not tell that it has. Any goroutine may call it, before the device
// is told.
func (q *CQ) Moderated() { q.arm.moderated.Store(true) }

// ring arms the queue. waiting says that a completion is there that was not polled.
func (a *arm) ring(c *consumer, waiting, solicitedOnly bool) {
	if a.register == nil {
		panic("mlx5: Arm: the completion queue was made without a UAR")
	}
	word := uint32(0)
	if solicitedOnly {
		word = armSolicitedOnly
	}
	if a.armed && !a.answered(c.next != a.from || waiting) {
		// This only repeats the last arm. One that asks for less must not take back
		// what that asked for.
		word &= a.asked
	}
	a.armed, a.asked, a.from, a.empty = true, word, c.next, !waiting
	// The consumer index is in its record since the last Poll. The device
	// reads the arm word there when the register tells it to.
	word |= c.next & low24
	likely := a.likely()
	for n := a.most; n != a.least-1; n-- { // none but the likely one, as long as it is known
		if n != likely {
			a.store(c, word|n&(armSpread-1)<<armSequenceShift)
		}
	}
	a.store(c, word|likely&(armSpread-1)<<armSequenceShift)
}

// likely is the number of answers that the events tell of, if it can be. Its word comes
// last: that is what stays in the record, and all that a device sees of stores which
// were joined on their way.
func (a *arm) likely() uint32 {
	// Numbers count modulo armSpread, and least goes on without an answer in the end.
	n := a.least + (a.events.Load()-a.least)&(armSpread-1)
	if n-a.least > a.most-a.least {
		return a.least
	}
	return n
}

// answered counts the device's answers: there is one to an arm, when a completion has
// come. It says whether the last arm was answered, as far as that is known.
func (a *arm) answered(completed bool) bool {
	if !completed {
		return false // an event, if there is one, is of an arm before
	}
	a.most++
	// Otherwise the completion may be one that does not count, or not yet. Then an event
	// tells, if it is not of an answer that was counted.
	certain := a.empty && a.asked == 0 && !a.moderated.Load()
	if certain || int32(a.events.Load()-a.least) > 0 {
		a.least++
		return true
	}
	if a.most-a.least == armSpread {
		a.least++
	}
	return false
}

func (a *arm) store(c *consumer, word uint32) {
	cq.StoreRelease32(&c.record[1], toBE32(word))
	// The register may be mapped either way.
	mmio.StoreWC(a.register, toBE64(uint64(word)<<32|uint64(a.number)))
	if a.tell != nil {
		a.tell(uarArm, uint64(word)<<32|uint64(a.number))
	}
}
