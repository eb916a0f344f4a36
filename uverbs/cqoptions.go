package uverbs

import (
	"fmt"
	"os"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// CQOptions are the choices of NewCQ. The zero value, and nil, mean a queue for
// busy polling.
type CQOptions struct {
	// Events gives the queue a completion channel of its own, on which a
	// waiter can sleep.
	Events bool
	// Channel puts the queue's events on a channel that other queues use
	// too, instead of one of its own.
	Channel *Channel
	// Shared lets several goroutines poll the queue; each Poll then takes a
	// lock.
	Shared bool
	// Vector is the completion vector that serves the queue's events, less
	// than Device.CompletionVectors.
	Vector int
	// Stats makes the queue count what its poller finds: a *StatsOptions. Nil
	// counts nothing, and costs nothing.
	Stats Metering
	// Grow makes the queue deeper when it fills up: GrowTo(n). Nil leaves it as
	// it is.
	Grow GrowthPolicy

	// What follows only some devices have: ConnectX, as far as each says, and
	// soft-RoCE none. NewCQ returns ErrNotSupported for what is not there; nothing
	// is left out in silence.

	// Timestamps puts the device's clock into WC.Timestamp, in ticks that
	// Device.Clock translates. Queue pairs that complete on the queue stamp alike:
	// where the device can stamp in another way only, NewQP returns ErrNotSupported.
	Timestamps bool
	// EntrySize is the size of the ring's entries in bytes: 64, which 0 is too, or
	// 128, for hosts whose cache lines are as long: the device writes 64 of them.
	EntrySize int
	// IgnoreOverrun has the device not look at how far the queue was polled: it
	// reads nothing of the host's before it writes. Then a ring that is full is no
	// error of the queue: completions that were not polled are overwritten, their
	// requests never end, and no call tells. As long as what the queue pairs may have
	// outstanding fits, as it has to without QPOptions.AllowOverrun, that cannot
	// happen; with it, to poll in time is your promise.
	IgnoreOverrun bool
	// Compression lets the device write what completions have in common once for
	// many. See Compress.
	Compression *Compression
	// Node is the NUMA node that the ring is to lie on: all of it does, or NewCQ
	// fails. The zero value is the node of the device, where that is known and has
	// room, or else another one: CQ.Nodes tells which it is. The rings of queue pairs
	// and SRQs, and the words by which the device is told how far it may go, are
	// always on the node of the device if they can be.
	Node NUMANode
}

// flags are those of the options that the kernel's core has, enum
// ib_uverbs_ex_create_cq_flags.
func (o *CQOptions) flags() (f uint32) {
	if o.Timestamps {
		f = cqTimestamps
	}
	if o.IgnoreOverrun {
		f |= cqIgnoreOverrun
	}
	return f
}

const (
	cqTimestamps    = uint32(abi.IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)
	cqIgnoreOverrun = uint32(abi.IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN)
)

// noneOfThat is why soft-RoCE lacks options.
const noneOfThat = "the driver is rxe, soft-RoCE, which has none of that"

// deviceOption names the first of the options that few devices have, if one is set.
func deviceOption(flags uint32, entry, node int) string {
	switch {
	case flags&cqTimestamps != 0:
		return "Timestamps"
	case flags&cqIgnoreOverrun != 0:
		return "IgnoreOverrun"
	case entry != 0:
		return "EntrySize"
	case node != 0:
		return "Node"
	}
	return ""
}

// lacks is the error of an option of a CQ that the device has not.
//
//go:noinline
func (d *Device) lacks(option, why string) error {
	return &Error{Op: "create CQ with " + option, Device: d.info.Name, Err: ErrNotSupported, Hint: why}
}

// Nodes says how many bytes of the queue's ring, in whole pages, lie on which NUMA
// node. It returns ErrNotSupported where the ring is the kernel's, as that of
// soft-RoCE is, and where the system has no NUMA.
func (q *CQ) Nodes() (map[int]int, error) {
	const op = "nodes of CQ"
	q.bell.Lock() // against Close, and a change of the ring
	defer q.bell.Unlock()
	if q.state.Load()&cq.Closed != 0 {
		return nil, fmt.Errorf("goverbs: %s: %s: %w", q.dev.info.Name, op, os.ErrClosed)
	}
	m := q.half.memory()
	if m == nil {
		return nil, fmt.Errorf("goverbs: %s: %s: %w: its ring is the kernel's", q.dev.info.Name, op, ErrNotSupported)
	}
	nodes, err := q.dev.kernel.Nodes(m)
	if err != nil {
		o := MemoryOptions{Node: OnNode(0)} // for what may be wrong with nodes
		return nil, fmt.Errorf("goverbs: %s: %s: %w", q.dev.info.Name, op, o.explain(err))
	}
	return nodes, nil
}
