package uverbs

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// CQ is a completion queue.
//
// One goroutine at a time polls it: Poll, Arm, TakeEvent and the Wait of
// package poll are that goroutine's. Poll takes no lock, so two pollers at a
// time corrupt the queue, unless it is Shared. Close may come from any goroutine, also beside Poll.
type CQ struct {
	object
	ring  cq.CompletionRing
	half  cqHalf
	state cq.State
	room  int   // completions that the ring holds; guarded by dev.mu
	asked []int // depths that are being changed to; guarded by dev.mu

	channel *Channel // nil without events
	own     bool     // channel was made for this queue alone
	pending int      // events read for this queue by others; guarded by channel.mu
	bell    gate     // Arm against Close

	waiterMu sync.Mutex
	wake     func()
	num      uint64 // see number; guarded by waiterMu

	mailbox mailbox
	polling sync.Mutex // held by Poll of a shared queue

	committed int // completions that QPs may have outstanding; guarded by dev.mu

	meter meter      // what counts, or nil: then no bit of state asks for it
	tally *pollTally // the meter's
}

// NewCQ makes a completion queue that holds at least depth completions.
//
// The device's limit is DeviceAttr.MaxCQE. Queue pairs count against the depth
// when they are made, so that an overrun cannot happen by accident.
func (d *Device) NewCQ(depth int, opts *CQOptions) (*CQ, error) {
	const op = "create CQ"
	if opts == nil {
		opts = new(CQOptions)
	}
	if !d.provides() {
		return nil, d.noProvider(op)
	}
	if depth < 1 || depth > d.attr.MaxCQE {
		return nil, invalid("%s: depth %d: %s allows 1 to %d", op, depth, d.info.Name, d.attr.MaxCQE)
	}
	if opts.Vector < 0 || opts.Vector >= d.vectors {
		return nil, invalid("%s: completion vector %d: %s has %d, numbered from 0", op, opts.Vector, d.info.Name, d.vectors)
	}
	q := &CQ{object: object{dev: d, kind: kindCQ, id: d.nextID()}, channel: opts.Channel, bell: newGate()}
	q.letGo = q.letGoRing
	if opts.Shared {
		q.state.Set(cq.Shared)
	}
	if opts.Channel != nil && opts.Channel.dev != d {
		return nil, invalid("%s on %s: the completion channel belongs to another device", op, d.info.Name)
	}
	var bases []*object
	if opts.Channel != nil {
		bases = append(bases, &opts.Channel.object)
	}
	done, err := d.making(kindCQ, bases...)
	if err != nil {
		return nil, err
	}
	defer done()
	if opts.Stats != nil {
		err = opts.Stats.count(q, op)
	}
	if opts.Grow != nil && err == nil {
		err = opts.Grow.grow(q, op, opts.Compression != nil)
	}
	if err != nil {
		return nil, err
	}
	if opts.Events && q.channel == nil {
		if q.channel, err = d.newChannel(); err != nil {
			return nil, err
		}
		q.own = true
	}
	if err := q.create(op, depth, opts); err != nil {
		q.leaveChannel()
		return nil, err
	}
	if q.meter != nil {
		q.meter.resized()
	}
	if q.channel != nil {
		q.channel.join(q)
	}
	if err := d.hold(q, bases...); err != nil {
		q.free()
		return nil, err
	}
	return q, nil
}

// create makes the kernel's object and maps its ring.
func (q *CQ) create(op string, depth int, opts *CQOptions) error {
	d := q.dev
	q.half = d.provider.newCQ(q)
	cqe := make([]byte, 4)
	r := newRequest(d.driver, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE)
	r.create(abi.UVERBS_ATTR_CREATE_CQ_HANDLE)
	r.in64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, q.id)
	r.in32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, uint32(opts.Vector))
	r.out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, cqe)
	if q.channel != nil {
		r.fd(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, q.channel.file.FD())
	}
	if d.async != nil {
		r.fd(abi.UVERBS_ATTR_CREATE_CQ_EVENT_FD, d.async.file.FD())
		r.optional()
	}
	var err error
	if opts.Compression != nil && opts.Compression.half != nil {
		q.half, err = opts.Compression.half(q, opts.flags(), opts.EntrySize)
	}
	if err == nil {
		err = q.half.create(r, depth, opts.flags(), opts.EntrySize, opts.Node.next)
	}
	if err == nil {
		err = d.call(op, r)
	}
	if err != nil {
		q.half.detach(true)
		return err
	}
	q.handle = uint32(r.result(abi.UVERBS_ATTR_CREATE_CQ_HANDLE))
	q.room = int(native.Uint32(cqe))
	ring, err := q.half.made(op)
	if err == nil {
		q.room, err = q.holds(op, ring, q.room, depth)
	}
	if err != nil {
		q.half.detach(q.destroy() == nil)
		return err
	}
	q.ring = ring
	return nil
}

// holds is how many completions a ring holds of which the kernel says how many, which
// must not be less than the depth that was asked for. The ring that is there is what
// can be filled, whatever the reply says.
func (q *CQ) holds(op string, ring cq.CompletionRing, said, depth int) (int, error) {
	n := min(said, int(ring.Capacity()))
	if n < depth {
		return 0, &Error{Op: op, Device: q.dev.info.Name, Err: fmt.Errorf("a ring for %d completions where %d were asked", n, depth)}
	}
	return n, nil
}

func (q *CQ) destroy() error {
	return q.dev.destroy("destroy CQ", abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY, q.handle, new(abi.UverbsDestroyCQResp).Bytes())
}

// Device is the device that the queue belongs to.
func (q *CQ) Device() *Device { return q.dev }

// Depth is how many completions the queue holds; at least what NewCQ, or the
// last Resize, was asked for.
func (q *CQ) Depth() int {
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	return q.depth()
}

// depth is how many completions may be claimed: those that the ring holds, and
// will hold. The device's mu is held.
func (q *CQ) depth() int {
	n := q.room
	for _, asked := range q.asked {
		n = min(n, asked)
	}
	return n
}

// Poll takes up to len(wcs) completions without waiting and returns how many.
// It never returns n > 0 together with an error. The errors are os.ErrClosed
// after Close, and ErrOverrun and ErrDeviceGone, which come after the last
// completion and stay.
//
// It does not allocate or enter the kernel, and takes no lock but that of
// CQOptions.Shared.
func (q *CQ) Poll(wcs []WC) (int, error) {
	if q.state.Load()&^(cq.Metered|cq.Look) != 0 {
		return q.pollAll(wcs)
	}
	n, drained := q.ring.Poll(wcs)
	if s := q.state.Load(); s&(cq.Closed|cq.Metered) != 0 {
		switch {
		case s == cq.Metered:
			if q.tally.count(n, drained) {
				q.meter.level(n)
			}
		case s&cq.Closed != 0:
			return 0, q.closedError()
		default:
			q.meter.polled(n, 0, drained)
		}
	}
	runtime.KeepAlive(q)
	return n, nil
}

// pollAll is Poll whatever there is to do.
func (q *CQ) pollAll(wcs []WC) (n int, err error) {
	if q.state.Load()&cq.Due != 0 {
		q.meter.due() // which may do anything, Close included
	}
	s := q.state.Load()
	if s&cq.Shared != 0 {
		q.polling.Lock()
		s = q.state.Load()
	}
	if s&cq.Closed == 0 {
		var drained bool
		n, drained = q.ring.Poll(wcs)
		ends := 0
		if s&(cq.Mail|cq.Dead) != 0 {
			ends, err = q.mailbox.read(q, wcs[n:])
		}
		if s&cq.Metered != 0 {
			q.meter.polled(n, ends, drained)
		}
		n += ends
	}
	if s&cq.Shared != 0 {
		q.polling.Unlock()
	}
	if q.state.Load()&cq.Closed != 0 {
		return 0, q.closedError()
	}
	runtime.KeepAlive(q)
	if n > 0 {
		err = nil
	}
	return n, err
}

// closedError is why the queue has nothing of the kernel's any more.
func (q *CQ) closedError() error {
	why := os.ErrClosed
	if q.state.Load()&cq.Closed == 0 {
		why = ErrDeviceGone
	}
	return q.dev.denied("poll CQ", why)
}

// Arm asks for one event when the next completion arrives, or, with
// solicitedOnly, the next receive of a solicited message or failed request.
// Completions that are in the queue already raise no event: poll after arming.
func (q *CQ) Arm(solicitedOnly bool) error {
	if q.channel == nil {
		return fmt.Errorf("goverbs: %s: arm CQ: %w: make it with CQOptions.Events", q.dev.info.Name, ErrNoEvents)
	}
	if q.state.Load()&cq.Shared != 0 {
		q.polling.Lock() // what is armed is where Poll is
		defer q.polling.Unlock()
	}
	q.bell.Lock()
	defer q.bell.Unlock()
	if q.state.Load()&cq.Closed != 0 {
		return q.closedError()
	}
	if q.meter != nil {
		q.meter.armed()
	}
	return q.heard(q.half.arm(solicitedOnly))
}

// TakeEvent consumes one event of the queue if there is one. It does not wait.
func (q *CQ) TakeEvent() (bool, error) {
	if q.channel == nil {
		return false, fmt.Errorf("goverbs: %s: take CQ event: %w: make it with CQOptions.Events", q.dev.info.Name, ErrNoEvents)
	}
	ok, err := q.channel.take(q)
	if ok && q.meter != nil {
		q.meter.event()
	}
	return ok, err
}

// EventsFirst is for waiters, see cq.EventsFirst. What counts events has to see them
// before their completions, and who shares a channel would find and hand on what was
// left there.
func (q *CQ) EventsFirst() bool { return q.meter != nil || !q.own }

// Attach is for waiters, see cq.Queue. It fails with ErrBusy when the queue has
// a waiter already and with ErrNoEvents when it was made without events.
func (q *CQ) Attach(wake func()) (fd int, detach func(), err error) {
	if q.channel == nil {
		return -1, nil, fmt.Errorf("goverbs: %s: wait on CQ: %w: make it with CQOptions.Events", q.dev.info.Name, ErrNoEvents)
	}
	if err := q.attach(wake); err != nil {
		return -1, nil, err
	}
	// Who cannot be polled for tells by a call.
	q.channel.attach(q)
	return q.channel.file.PollFD(), func() {
		q.channel.detach(q)
		q.waiterMu.Lock()
		q.wake = nil
		q.waiterMu.Unlock()
	}, nil
}

func (q *CQ) attach(wake func()) error {
	q.waiterMu.Lock()
	defer q.waiterMu.Unlock()
	if q.state.Load()&cq.Closed != 0 || q.dev.lost.Load() {
		return q.closedError()
	}
	if q.wake != nil {
		return fmt.Errorf("goverbs: %s: wait on CQ: %w: another waiter has it", q.dev.info.Name, ErrBusy)
	}
	q.wake = wake
	return nil
}

// wakeWaiter makes a parked waiter look again.
func (q *CQ) wakeWaiter() {
	q.waiterMu.Lock()
	defer q.waiterMu.Unlock()
	if q.wake != nil {
		q.wake()
	}
}

// Close destroys the queue. It returns ErrInUse while queue pairs complete on
// it. A poller inside Poll or Wait gets os.ErrClosed; completions that were not
// polled are lost. What a kernel that refuses it leaves is as with QP.Close.
func (q *CQ) Close() error {
	if err := q.retire(); err != nil {
		return err
	}
	defer q.release()
	return q.free()
}

func (q *CQ) free() error {
	q.bell.Lock()
	q.state.Set(cq.Closed)
	q.bell.Unlock()
	err := q.destroy()
	q.wakeWaiter()
	if e := q.mailbox.abandon(q, err == nil); err == nil && e != nil {
		err = &Error{Op: "destroy CQ", Device: q.dev.info.Name, Err: e}
	}
	q.leaveChannel()
	return err
}

// leaveChannel lets go of the completion channel.
func (q *CQ) leaveChannel() {
	switch {
	case q.own:
		q.channel.file.Close()
	case q.channel != nil:
		q.channel.leave(q)
	}
}
