package model

import (
	"errors"
	"fmt"
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
	// type plus one at AtAsync.
	Number uint32
	// Opcode is that of a send request, as enum of linux/mlx5/qp.h, if HasOpcode.
	Opcode    uint8
	HasOpcode bool
	// Method is a name of package abi's schema, of a method or of a write command, such
	// as UVERBS_METHOD_QP_CREATE or IB_USER_VERBS_CMD_REG_MR.
	Method string
	// After is the time for AtTime.
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

// Action is what a fault does: one of the types of this package that say so.
type Action interface{ fits(Point) bool }

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

// Actions on events. Delay is one too.
type (
	// Duplicate tells of the event twice.
	Duplicate struct{}
	// Lose does not tell of it.
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

func (Drop) fits(p Point) bool      { return p == AtRequest }
func (Delay) fits(p Point) bool     { return p == AtRequest || p == AtEvent || p == AtAsync }
func (Behind) fits(p Point) bool    { return p == AtRequest }
func (NotReady) fits(p Point) bool  { return p == AtRequest }
func (Fail) fits(p Point) bool      { return p == AtRequest }
func (Hold) fits(p Point) bool      { return p == AtCompletion }
func (Overrun) fits(p Point) bool   { return p == AtCompletion }
func (Duplicate) fits(p Point) bool { return p == AtEvent || p == AtAsync }
func (Lose) fits(p Point) bool      { return p == AtEvent || p == AtAsync }
func (Slow) fits(p Point) bool      { return p == AtIoctl }
func (Refuse) fits(p Point) bool    { return p == AtIoctl }
func (Port) fits(p Point) bool      { return p == AtTime }
func (ChangeGID) fits(p Point) bool { return p == AtTime }
func (Fatal) fits(p Point) bool     { return p == AtTime }

// faults are those that are injected.
type faults struct {
	list []*injected
}

type injected struct {
	Fault
	seen  int
	timer *time.Timer
}

// Inject injects a fault. Faults that were injected earlier come first; the first
// that matches and whose turn it is acts, all that match count.
func (m *Model) Inject(f Fault) error {
	m.enter()
	defer m.leave()
	if err := m.check(&f); err != nil {
		return err
	}
	i := &injected{Fault: f}
	m.faults.list = append(m.faults.list, i)
	if f.At == AtTime {
		d := m.Device(f.Device)
		i.timer = m.after(f.After, func() {
			if i.timer != nil {
				i.timer = nil
				d.suffer(f.Do)
			}
		})
	}
	return nil
}

func (m *Model) check(f *Fault) error {
	switch {
	case f.Do == nil:
		return errors.New("model: a fault that does nothing: set Do")
	case f.At < AtRequest || f.At > AtTime:
		return fmt.Errorf("model: a fault at point %d: there are AtRequest to AtTime", f.At)
	case !f.Do.fits(f.At):
		return fmt.Errorf("model: %T cannot happen at this point", f.Do)
	case f.Nth < 0 || f.Times < Forever:
		return fmt.Errorf("model: Nth is %d and Times %d: they count from 1, and Forever is the one negative number", f.Nth, f.Times)
	case f.Device != "" && m.Device(f.Device) == nil, f.Device == "" && f.At == AtTime:
		return fmt.Errorf("model: there is no device %q", f.Device)
	case f.Method != "" && f.At != AtIoctl, f.HasOpcode && f.At != AtRequest:
		return errors.New("model: a fault is narrowed down by what there is at its point: Method at AtIoctl, HasOpcode at AtRequest")
	}
	d := m.Device(f.Device)
	switch a := f.Do.(type) {
	case Delay:
		return duration(a.For)
	case Slow:
		return duration(a.For)
	case Behind:
		if a.Requests < 1 || a.AtMost < 0 {
			return fmt.Errorf("model: a request goes behind %d others, and waits %v at most: from 1, and no negative time", a.Requests, a.AtMost)
		}
	case Hold:
		if a.For < 0 {
			return duration(a.For)
		}
	case Refuse:
		if a.Errno == 0 {
			return errors.New("model: a call is refused with an errno")
		}
	case Fail:
		if a.Syndrome == 0 {
			return errors.New("model: a request fails with a syndrome: 0 is success")
		}
	case NotReady:
		if a.Timer > 31 {
			return fmt.Errorf("model: RNR timer code %d: they have 5 bits", a.Timer)
		}
	case Port:
		if d.port(uint64(a.Number)) == nil {
			return fmt.Errorf("model: device %s has no port %d", f.Device, a.Number)
		}
	case ChangeGID:
		if d.port(uint64(a.Port)) == nil || a.Index < 0 || a.Index >= gidTableLength {
			return fmt.Errorf("model: device %s has no GID %d of port %d", f.Device, a.Index, a.Port)
		}
	}
	return nil
}

func duration(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("model: a fault that takes %v: it is more than 0", d)
	}
	return nil
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
		d.m.violation("a fault could not happen: %v", err)
	}
}

// turn counts an occurrence and says whether the fault acts on it.
func (i *injected) turn() bool {
	i.seen++
	first := max(i.Nth, 1)
	return i.seen >= first && (i.Times == Forever || i.seen < first+max(i.Times, 1))
}

// find counts an occurrence that matches, and returns the action of the first fault
// whose turn it is, nil if none.
func (f *faults) find(match func(*Fault) bool) Action {
	var a Action
	for _, i := range f.list {
		if match(&i.Fault) && i.turn() && a == nil {
			a = i.Do
		}
	}
	return a
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
	if len(m.faults.list) == 0 {
		return
	}
	for _, d := range m.devices {
		for _, o := range d.pairs() {
			if o == q || o.behind == 0 {
				continue
			}
			if o.behind--; o.behind == 0 {
				o.stopTimer()
				o.list()
			}
		}
	}
}

// cqeFate is what happens to a completion.
type cqeFate int

const (
	cqeWritten cqeFate = iota
	cqeHeld
	cqeOverrun
)

func (f *faults) completion(q *cq, c *completion) cqeFate {
	a := f.find(func(x *Fault) bool { return x.at(AtCompletion, q.d, q.cqn) })
	if _, ok := a.(Overrun); ok {
		return cqeOverrun
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
