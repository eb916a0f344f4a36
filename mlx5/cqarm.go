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

	// The last arm, poller's side.
	armed bool
	at    uint32 // events then
	word  uint32 // its command
}

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
func (q *CQ) Arm(solicitedOnly bool) { q.arm.ring(&q.consumer, solicitedOnly) }

// EventTaken counts an event of the queue that the program has taken from its
// channel. It comes before the next Arm: the device takes an arm with the number
// of one that it has answered for a repetition, and stays silent. Any goroutine
// may call it.
func (q *CQ) EventTaken() { q.arm.events.Add(1) }

func (a *arm) ring(c *consumer, solicitedOnly bool) {
	if a.register == nil {
		panic("mlx5: Arm: the completion queue was made without a UAR")
	}
	events := a.events.Load()
	word := uint32(0)
	if solicitedOnly {
		word = armSolicitedOnly
	}
	if a.armed && a.at == events {
		// No event came since: this only repeats the last arm. One that asks
		// for less must not take back what that asked for.
		word &= a.word
	}
	a.armed, a.at, a.word = true, events, word
	word |= events&3<<armSequenceShift | c.next&low24
	// The consumer index is in its record since the last Poll. The device
	// reads the arm word there when the register tells it to.
	cq.StoreRelease32(&c.record[1], toBE32(word))
	mmio.StartWC() // the register may be mapped either way
	mmio.StoreDoorbell64(a.register, toBE64(uint64(word)<<32|uint64(a.number)))
	mmio.FlushWC()
	if a.tell != nil {
		a.tell(uarArm, uint64(word)<<32|uint64(a.number))
	}
}
