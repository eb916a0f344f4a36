package uverbs

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// EventDeviceGone is the last event of a device: it was removed, or failed for good.
// Then the channel of Device.Events is closed. The number is the library's own; those
// of the kernel are small. A failure may have brought an EventDeviceFatal before.
//
// It comes once, whoever finds out: an event of the device, an error of its event
// files, a uevent of the kernel, or, where those do not arrive, as in user namespaces,
// a look at /sys once a second.
//
// The library then gives everything back to the kernel by itself, without being asked
// to and without Close: queue pairs, queues, regions, descriptors and mappings. Drivers
// that cannot take a device away from its users, as soft-RoCE's, wait for that:
// "rdma link del" returns when the last program has. Memory of Alloc stays.
//
// What was posted comes to its end as ever, through Poll: first as the device said
// before, and the rest flushed, with [cq.FlagSynthetic]. (Receives of an SRQ end on the
// CQ of one of its queue pairs, with cq.NoQPN; without queue pairs nobody hears of
// them.) Then Poll and Wait return an error that wraps ErrDeviceGone, and so do Flush
// and all other calls that would need the device. Close of objects, and of the device,
// is still possible, does no harm and returns nil.
const EventDeviceGone EventType = 1 << 31

// loss is what a device knows of its end.
type loss struct {
	opened  atomic.Bool   // and async is there
	lost    atomic.Bool   // the goroutine that reads the events lets go of everything
	leaving bool          // it does, and Close did not begin before; guarded by the device's mu
	left    chan struct{} // closed when it has
	watch   func()        // what sees it run by itself, or nil; see kernel.Watch
	unwatch func()
}

// longAgo is a deadline that has passed.
func longAgo() time.Time { return time.Unix(1, 0) }

// lose says that the device is gone: but for the goroutine of the events, which knows
// what to do.
func (d *Device) lose() {
	if d.opened.Load() { // else the watch will say it again
		d.lost.Store(true)
		d.async.file.SetReadDeadline(longAgo())
	}
}

// end is what the goroutine of the events does when it reads no more.
func (a *asyncEvents) end() {
	lost := a.dev.lost.Load()
	a.endEvents(lost)
	if lost {
		a.dev.letGo()
	}
}

// letGo gives back all that the kernel has for a device that is gone. The objects stay
// until the program closes them. If Close was called before, that does all.
func (d *Device) letGo() {
	// What is being made is entered, or fails. The lock may be held during calls to the
	// kernel: to sleep lets time go on meanwhile in a bubble of testing/synctest.
	for !d.makers.TryLock() {
		time.Sleep(storeDelay)
	}
	d.mu.Lock()
	d.leaving = !d.closing
	d.mu.Unlock()
	d.makers.Unlock()
	if d.leaving {
		for k := range numKinds {
			for _, c := range d.ofKind(k) {
				o := c.base()
				o.awaitGone() // no other Close begins, see retire
				if o.letGo != nil {
					o.letGo()
				}
			}
		}
		d.async.file.Close()
		if d.provides() {
			d.provider.end()
		}
		d.file.Close() // and with it goes what was not mentioned
		d.unwatch()
	}
	close(d.left)
}

// hasLeft says whether letGo has done its work.
func (d *Device) hasLeft() bool {
	select {
	case <-d.left:
		return true
	default:
		return false
	}
}

func (qp *QP) letGoRings() {
	qp.ending.Store(true)
	qp.dev.mu.Lock()
	f := qp.whenLost
	qp.dev.mu.Unlock()
	if f != nil {
		f()
	}
	qp.modify.Lock()
	qp.ending.Store(true) // again: see open
	qp.modify.Unlock()    // a Flush whose doorbell failed wants it
	qp.awaitFlushes()     // what they posted is among what ends
	qp.modify.Lock()
	qp.leaveGroups()
	qp.destroy()
	qp.half.keep()
	qp.modify.Unlock()
	qp.orphan(false)
}

func (qp *QP) setWhenLost(f func() error) {
	qp.dev.mu.Lock()
	qp.whenLost = f
	qp.dev.mu.Unlock()
}

// orphan leaves the ends of what is posted to the pollers. carried says that the device
// has carried out all sends.
func (qp *QP) orphan(carried bool) {
	qp.sendCQ.mailbox.adopt(qp.sendCQ, &qp.closing, qp.sq.requests, carried)
	qp.recvCQ.mailbox.adopt(qp.recvCQ, &qp.closing, qp.rq.requests, false)
}

// letGoRing comes when the queue pairs are gone.
func (s *SRQ) letGoRing() {
	s.closing.Store(true)
	for time.Sleep(storeDelay); atomic.LoadUint32(&s.rq.flushing) != 0; {
		time.Sleep(storeDelay)
	}
	s.calls.Lock()
	s.destroy()
	s.half.keep()
	s.calls.Unlock()
	s.dev.mu.Lock()
	queues := slices.Collect(maps.Keys(s.claims))
	s.dev.mu.Unlock()
	// A receive that is not in one ring may be in another one: who comes to the end
	// of the last makes up the ends.
	read := make([]atomic.Bool, len(queues))
	for i, q := range queues {
		next := uint32(0)
		q.mailbox.take(q, &s.dropped, orphan{shared: func(wcs []WC) (n int, done bool) {
			read[i].Store(true)
			for k, o := range queues {
				if !read[k].Load() && o.state.Load()&cq.Closed == 0 {
					return 0, true
				}
			}
			if s.discarded.Load() {
				return 0, true
			}
			n, next, done = s.shared.Abandon(wcs, next)
			return n, done
		}})
	}
}

// letGoRing comes when nothing is left that would complete here.
func (q *CQ) letGoRing() {
	q.bell.Lock()
	q.destroy()
	q.half.keep()
	q.bell.Unlock()
	q.mailbox.kill(q, q.closedError())
	if q.own {
		q.channel.file.Close()
	}
}

// heard is for errors of calls that the poller makes. That the device is gone it hears
// only after all else, when the queue is dead. Until then it may go on, and sleep: it will
// be woken.
func (q *CQ) heard(err error) error {
	if err == nil || !isDeviceGone(err) || q.state.Load()&(cq.Dead|cq.Closed) != 0 {
		return err
	}
	q.dev.lose()
	return nil
}
