package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// Point is where a fault happens.
type Point int

// The points.
const (
	// AtRequest is an attempt of a queue pair to carry a send request; one that
	// is repeated counts again.
	AtRequest Point = iota
	// AtCompletion is a completion that is about to be written.
	AtCompletion
	// AtEvent is a completion event, AtAsync an asynchronous one.
	AtEvent
	AtAsync
	// AtIoctl is a call of the kernel.
	AtIoctl
	// AtTime is when After has passed since the fault was injected.
	AtTime
)

// Fault is something that goes wrong. The zero values of the fields that narrow it
// down match everything.
type Fault struct {
	At Point
	// Device is the device's name; for AtTime it must be there.
	Device string
	// Number is the QPN at AtRequest, the CQN at AtCompletion and AtEvent, the event
	// type plus one at AtAsync. At the other points there is none.
	Number uint32
	// Opcode is that of a send request, as enum of linux/mlx5/qp.h, if HasOpcode: one of those
	// that the model carries.
	Opcode    uint8
	HasOpcode bool
	// Method is a name of package abi's schema, of a method ([abi.Methods]) or of a write
	// command ([abi.LookupCommand]), such as UVERBS_METHOD_QP_CREATE or
	// IB_USER_VERBS_CMD_REG_MR. Only AtIoctl has one.
	Method string
	// After is the time for AtTime, and 0 at all other points.
	After time.Duration

	// Nth is which of those that match is the first to suffer, counted from 1 and
	// from the injection; 0 is 1.
	Nth int
	// Times is how many suffer, one after the other: 0 is 1, Forever all.
	Times int
	// Do is what happens.
	Do Action
}

// Forever as Fault.Times has no end.
const Forever = -1

// Action is what a fault does: a value of one of the types of this package that say
// so, not a pointer to one.
type Action interface{ action() }

// Actions on requests.
type (
	// Drop loses the request, or its acknowledgement: it is sent again after the
	// time-out, or on UC and UD forgotten.
	Drop struct{}
	// Delay holds the request up for a time, and all behind it on its queue pair. At an
	// event it is late.
	Delay struct{ For time.Duration }
	// Behind lets requests of other queue pairs go first, so many of them, but waits no
	// longer than AtMost; 0 is 10 ms.
	Behind struct {
		Requests int
		AtMost   time.Duration
	}
	// NotReady answers that the peer has no receive, with an RNR timer code.
	NotReady struct{ Timer uint8 }
	// Fail ends the request with a syndrome and a vendor syndrome. The peer has
	// not seen it.
	Fail struct{ Syndrome, Vendor uint8 }
)

// Actions on completions.
type (
	// Hold keeps the completion back, and all of the queue that follow, for a
	// time, or with 0 until [Model.Release]; but not longer than until its queue pair
	// goes to RESET.
	Hold struct{ For time.Duration }
	// Overrun has the queue overrun in place of the completion, which is lost.
	Overrun struct{}
)

// Actions on events. Delay is one too. At a completion they are what no device does that is
// sound, for tests of programs that test devices.
type (
	// Duplicate tells of the event twice, or writes the completion twice.
	Duplicate struct{}
	// Lose does not tell of the event, or does not write the completion.
	Lose struct{}
)

// Actions on calls of the kernel.
type (
	// Slow lets the call sleep before it does anything.
	Slow struct{ For time.Duration }
	// Refuse fails the call before it does anything.
	Refuse struct{ Errno request.Errno }
)

// Actions on devices.
type (
	// Port plugs the cable of a port in or out.
	Port struct {
		Number int
		Up     bool
	}
	// ChangeGID changes an entry of a GID table.
	ChangeGID struct {
		Port, Index int
		GID         GID
	}
	// Fatal is [Device.Fail].
	Fatal struct{}
)

func (Drop) action()      {}
func (Delay) action()     {}
func (Behind) action()    {}
func (NotReady) action()  {}
func (Fail) action()      {}
func (Hold) action()      {}
func (Overrun) action()   {}
func (Duplicate) action() {}
func (Lose) action()      {}
func (Slow) action()      {}
func (Refuse) action()    {}
func (Port) action()      {}
func (ChangeGID) action() {}
func (Fatal) action()     {}

// faults are those that are injected.
type faults struct {
	list []*injected
	// waiting are queue pairs that let others go first; also some that do not any more.
	waiting []*qp
	// missed are the faults that could not happen when their time came.
	missed []error
}

type injected struct {
	Fault
	seen  int
	timer *time.Timer
}

// Inject injects a fault. Faults that were injected earlier come first; the first
// that matches and whose turn it is acts, all that match count. A fault that could
// never happen is refused.
func (m *Model) Inject(f Fault) error {
	m.enter()
	defer m.leave()
	if err := m.check(&f); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	m.inject(f)
	return nil
}

// inject injects a fault that was checked.
func (m *Model) inject(f Fault) {
	i := &injected{Fault: f}
	m.faults.list = append(m.faults.list, i)
	if f.At == AtTime {
		d := m.Device(f.Device)
		i.timer = m.after(f.After, func() {
			if i.timer != nil {
				i.timer = nil
				m.faults.forget(i)
				d.suffer(f.Do)
			}
		})
	}
}

// ClearFaults takes back all faults that were injected. Completions that are held stay
// so: see [Model.Release].
func (m *Model) ClearFaults() {
	m.enter()
	defer m.leave()
	for _, i := range m.faults.list {
		if i.timer != nil {
			i.timer.Stop()
			i.timer = nil
		}
	}
	m.faults.list = nil
}

// suffer lets something happen to a device.
func (d *Device) suffer(a Action) {
	var err error
	switch a := a.(type) {
	case Port:
		err = d.setPort(a.Number, a.Up)
	case ChangeGID:
		err = d.setGID(a.Port, a.Index, a.GID)
	case Fatal:
		d.fail()
	}
	if err != nil {
		d.m.faults.missed = append(d.m.faults.missed, fmt.Errorf("model: a fault could not happen: %w", err))
	}
}

// MissedFaults are the faults that were injected for a time at which they could not happen:
// a GID that another port had by then. They are a mistake of the test, not of the
// program, so they are no [Model.Violations].
func (m *Model) MissedFaults() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.faults.missed)
}

// turn counts an occurrence and says whether it is the fault's turn, and whether that
// was its last one. Times are compared as a difference, for the sum may not fit an int.
func (i *injected) turn() (acts, last bool) {
	i.seen++
	nth := i.seen - max(i.Nth, 1)
	return nth >= 0, nth >= 0 && i.Times != Forever && nth+1 >= max(i.Times, 1)
}

// find counts an occurrence that matches, and returns the action of the first fault
// whose turn it is, nil if none. Faults that are used up are dropped: there may be many,
// and every request would look at them.
func (f *faults) find(match func(*Fault) bool) Action {
	var a Action
	f.list = slices.DeleteFunc(f.list, func(i *injected) bool {
		if !match(&i.Fault) {
			return false
		}
		acts, last := i.turn()
		if acts && a == nil {
			a = i.Do
		}
		return last
	})
	return a
}

// forget drops a fault.
func (f *faults) forget(i *injected) {
	f.list = slices.DeleteFunc(f.list, func(o *injected) bool { return o == i })
}

// at says whether a fault is for a point, a device and a number.
func (f *Fault) at(p Point, d *Device, number uint32) bool {
	return f.At == p && (f.Device == "" || f.Device == d.cfg.Name) && (f.Number == 0 || f.Number == number)
}

// request is what happens to an attempt.
func (f *faults) request(q *qp, w *wqe) (verdict, bool) {
	switch a := f.find(func(x *Fault) bool { return x.at(AtRequest, q.d, q.qpn) && (!x.HasOpcode || x.Opcode == w.opcode) }).(type) {
	case Drop:
		if q.typ != typeRC {
			return verdict{}, true
		}
		return verdict{outcome: lost}, true
	case Delay:
		q.faultedHead = true
		q.wait(a.For)
		return verdict{outcome: waits}, true
	case Behind:
		q.faultedHead = true
		if a.AtMost == 0 {
			a.AtMost = 10 * time.Millisecond
		}
		q.wait(a.AtMost)
		q.behind = a.Requests
		if !slices.Contains(f.waiting, q) {
			f.waiting = append(f.waiting, q)
		}
		return verdict{outcome: waits}, true
	case NotReady:
		return verdict{outcome: notReady, timer: a.Timer}, true
	case Fail:
		return fails(a.Syndrome, a.Vendor), true
	}
	return verdict{}, false
}

// passed is called when a request of a queue pair is carried: others may wait for that.
func (m *Model) passed(q *qp) {
	if len(m.faults.waiting) == 0 {
		return
	}
	m.faults.waiting = slices.DeleteFunc(m.faults.waiting, func(o *qp) bool {
		if o != q && o.behind > 0 {
			if o.behind--; o.behind == 0 {
				o.stopTimer()
				o.list()
			}
		}
		return o.behind == 0
	})
}

// cqeFate is what happens to a completion.
type cqeFate int

const (
	cqeWritten cqeFate = iota
	cqeHeld
	cqeOverrun
	cqeLost
	cqeDoubled
)

func (f *faults) completion(q *cq, c *completion) cqeFate {
	a := f.find(func(x *Fault) bool { return x.at(AtCompletion, q.d, q.cqn) })
	switch a.(type) {
	case Overrun:
		return cqeOverrun
	case Lose:
		return cqeLost
	}
	if h, ok := a.(Hold); ok {
		q.holding = true
		if h.For > 0 {
			q.d.m.after(h.For, q.release)
		}
	}
	if q.holding {
		q.hold(c)
		return cqeHeld
	}
	if _, ok := a.(Duplicate); ok {
		return cqeDoubled
	}
	return cqeWritten
}

// release writes what was held.
func (q *cq) release() {
	q.holding = false
	held := q.held
	q.held = nil
	if q.d.gone {
		return // who is gone writes no more
	}
	for i := range held {
		q.write(&held[i])
	}
}

// settle writes what was held of a queue pair that goes to RESET: the command that
// takes it there does not end before all its completions are written.
func (q *cq) settle(qpn uint32) {
	held := q.held
	q.held = nil
	for i := range held {
		if held[i].qpn == qpn {
			q.write(&held[i])
		} else {
			q.held = append(q.held, held[i])
		}
	}
}

// Release writes the completions that faults hold back.
func (m *Model) Release() {
	m.enter()
	defer m.leave()
	for _, d := range m.devices {
		for _, q := range d.queues() {
			q.release()
		}
	}
}

// deliver puts a record into an event queue, or does with it what a fault wants.
func (m *Model) deliver(e *EventQueue, r record, p Point, number uint32) {
	if e == nil {
		return
	}
	if len(m.faults.list) == 0 {
		e.add(r)
		return
	}
	if p == AtAsync {
		number++
	}
	switch a := m.faults.find(func(x *Fault) bool { return x.at(p, e.f.dev, number) }).(type) {
	case Lose:
	case Duplicate:
		e.add(r)
		e.add(r)
	case Delay:
		m.after(a.For, func() { e.add(r) })
	default:
		e.add(r)
	}
}

// ioctl is what happens to a call of the kernel.
func (f *faults) ioctl(file *File, mem request.Memory, addr uint64) (slow time.Duration, errno request.Errno) {
	if len(f.list) == 0 {
		return 0, 0
	}
	name := methodName(mem, addr)
	switch a := f.find(func(x *Fault) bool { return x.at(AtIoctl, file.dev, 0) && (x.Method == "" || x.Method == name) }).(type) {
	case Slow:
		return a.For, 0
	case Refuse:
		return 0, a.Errno
	}
	return 0, 0
}

// methodName is the name of what a request asks for, as far as it can be read.
func methodName(mem request.Memory, addr uint64) string {
	r, err := request.Read(mem, addr, &request.Config{Driver: uint32(abi.RDMA_DRIVER_MLX5), PageSize: pageSize})
	if err != nil {
		return ""
	}
	if number, ok := r.Const(abi.UVERBS_ATTR_WRITE_CMD); r.IsWrite() && ok {
		if c, ok := abi.LookupCommand(uint32(number)); ok {
			return c.Name
		}
	}
	return r.Desc.Name
}
