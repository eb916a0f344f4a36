package uverbs

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// resize is a change of depth that waits for the poller.
type resize struct {
	do   func() error // what the poller does; programs that resize nothing are spared the code
	done chan error
}

// Resize changes how many completions the queue holds, to at least depth.
// Completions that are in it are kept. The poller does it within its next Poll,
// and Resize waits for that, after it has woken a parked Wait: the goroutine that
// polls calls ResizeOwned instead.
// When ctx ends before the poller came by, nothing has changed.
//
// It fails with ErrCQFull when the queue pairs that complete on the queue need
// more. On soft-RoCE it needs a kernel whose rings can be exchanged without harm:
// Linux 6.0.3, or one before 5.14.
func (q *CQ) Resize(ctx context.Context, depth int) error {
	done, err := q.claimDepth(depth)
	if err != nil {
		return err
	}
	defer done()
	r := resize{do: func() error { return q.resize(depth) }, done: make(chan error, 1)}
	m := &q.mailbox
	m.mu.Lock()
	if q.state.Load()&cq.Closed != 0 {
		m.mu.Unlock()
		return q.closedError()
	}
	if m.dead != nil { // its poller may have left
		defer m.mu.Unlock()
		return m.dead
	}
	m.resizes = append(m.resizes, r)
	q.state.Set(cq.Mail)
	m.mu.Unlock()
	q.wakeWaiter()
	select {
	case err = <-r.done:
	case <-ctx.Done():
		m.mu.Lock()
		waiting := len(m.resizes)
		m.resizes = slices.DeleteFunc(m.resizes, func(o resize) bool { return o.done == r.done })
		waiting -= len(m.resizes)
		m.mu.Unlock()
		if waiting > 0 {
			return fmt.Errorf("goverbs: %s: resize CQ: %w", q.dev.info.Name, context.Cause(ctx))
		}
		err = <-r.done // the poller was faster
	}
	q.tellLoss(err)
	return err
}

// ResizeOwned is Resize for the goroutine that polls the queue.
func (q *CQ) ResizeOwned(depth int) error {
	done, err := q.claimDepth(depth)
	if err != nil {
		return err
	}
	defer done()
	err = q.resizeAsPoller(depth)
	q.tellLoss(err)
	return err
}

func (q *CQ) resizeAsPoller(depth int) error {
	if q.state.Load()&cq.Shared != 0 {
		q.polling.Lock()
		defer q.polling.Unlock()
	}
	q.mailbox.mu.Lock()
	defer q.mailbox.mu.Unlock()
	return q.resize(depth)
}

// tellLoss wakes who waits on a queue that may have lost its ring. One that several
// goroutines poll may have a waiter which is not the one that resized.
func (q *CQ) tellLoss(err error) {
	if err != nil {
		q.wakeWaiter()
	}
}

// claimDepth checks that a depth is possible, and lets no queue pair claim more
// than it until done is called.
func (q *CQ) claimDepth(depth int) (done func(), err error) {
	d := q.dev
	if depth < 1 || depth > d.attr.MaxCQE {
		return nil, invalid("resize CQ: depth %d: %s allows 1 to %d", depth, d.info.Name, d.attr.MaxCQE)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.closed {
		return nil, fmt.Errorf("goverbs: %s: resize CQ: %w", d.info.Name, os.ErrClosed)
	}
	if depth < q.committed && depth < q.room { // more than before is welcome, if it is not enough
		return nil, fmt.Errorf("goverbs: %s: resize CQ to %d: %w: its queue pairs may have %d completions outstanding", d.info.Name, depth, ErrCQFull, q.committed)
	}
	if err := d.exchangesRings("resize CQ"); err != nil {
		return nil, err
	}
	q.asked = append(q.asked, depth)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		i := slices.Index(q.asked, depth)
		q.asked = slices.Delete(q.asked, i, i+1)
	}, nil
}

// resize does it. The caller is the poller and holds the mailbox.
func (q *CQ) resize(depth int) error {
	const op = "resize CQ"
	d := q.dev
	q.bell.Lock() // against Close
	defer q.bell.Unlock()
	if q.state.Load()&cq.Closed != 0 {
		return q.closedError()
	}
	if q.mailbox.dead != nil {
		return q.mailbox.dead
	}
	ring, room, lost, err := q.half.resize(op, depth)
	if lost {
		return q.lost(err)
	}
	if err != nil {
		return err
	}
	if ring == q.ring {
		return nil // it holds as many already
	}
	if room, err = q.holds(op, ring, room, depth); err != nil {
		return q.lost(err)
	}
	q.ring = ring
	// Laps are counted from the new ring's beginning.
	for i := range q.mailbox.tombs {
		q.mailbox.tombs[i].lap = 0
	}
	for i := range q.mailbox.orphans {
		q.mailbox.orphans[i].lap = 0
	}
	d.mu.Lock()
	q.room = room
	d.mu.Unlock()
	if q.meter != nil {
		q.meter.resized()
	}
	return nil
}

// lost marks the queue as one that has no ring any more.
func (q *CQ) lost(err error) error {
	q.mailbox.die(q, fmt.Errorf("goverbs: %s: poll CQ: %w: its new ring could not be mapped: %w", q.dev.info.Name, ErrOverrun, err))
	return err
}

// exchangesRings says why the ring of a queue cannot be replaced on this kernel. In
// the versions between these two soft-RoCE does not stop copying a ring that is not
// empty (resize_finish in drivers/infiniband/sw/rxe/rxe_queue.c), with a lock held:
// the machine hangs. Distributions that have mended theirs are refused too: their
// version does not tell.
func (d *Device) exchangesRings(op string) error {
	v := kernelVersion(d.kernel.Release())
	if abi.RdmaDriverID(d.driver) != abi.RDMA_DRIVER_RXE || v.less(version{5, 14, 0}) || !v.less(version{6, 0, 3}) {
		return nil
	}
	return fmt.Errorf("goverbs: %s: %s: %w: soft-RoCE of Linux 5.14 up to 6.0.2 hangs the machine on it, this is %s: it needs 6.0.3", d.info.Name, op, ErrNotSupported, d.kernel.Release())
}

// version is a kernel's: major, minor and patch.
type version [3]int

func (v version) less(w version) bool { return slices.Compare(v[:], w[:]) < 0 }

// kernelVersion reads the numbers at the beginning of a release, such as
// "6.1.0-57-amd64". What is not there counts as 0.
func kernelVersion(release string) (v version) {
	for i := range v {
		n := 0
		for n < len(release) && n < 5 && '0' <= release[n] && release[n] <= '9' {
			v[i] = v[i]*10 + int(release[n]-'0')
			n++
		}
		if n == 0 || n == len(release) || release[n] != '.' {
			break
		}
		release = release[n+1:]
	}
	return v
}

// Moderate lets the device wait with an event until count completions are there
// or period is over since the first, in steps of a microsecond up to 65.535 ms.
// It returns ErrNotSupported where the driver cannot: soft-RoCE cannot.
func (q *CQ) Moderate(count int, period time.Duration) error {
	const op = "moderate CQ"
	us := period.Microseconds()
	if count < 0 || count > 1<<16-1 || us < 0 || us > 1<<16-1 {
		return invalid("%s: %d completions or %v: 0 to 65535, 0 to 65.535ms", op, count, period)
	}
	const moderation = 1 // enum ib_cq_attr_mask: IB_CQ_MODERATE
	in := &abi.UverbsExModifyCQ{CQHandle: q.handle, AttrMask: moderation, Attr: abi.UverbsCQModeration{CQCount: uint16(count), CQPeriod: uint16(us)}}
	q.bell.Lock()
	defer q.bell.Unlock()
	if q.state.Load()&cq.Closed != 0 {
		return q.closedError()
	}
	q.half.moderated()
	return q.dev.call(op, newCommand(q.dev.driver, extended(abi.IB_USER_VERBS_EX_CMD_MODIFY_CQ), in.Bytes(), nil))
}
