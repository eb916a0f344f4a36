package uverbs

import (
	"fmt"
	"os"
	"slices"

	"github.com/goverbs/goverbs/abi"
)

// kind orders the objects of a device the way they have to be closed: what
// stands on others comes first.
type kind int

const (
	kindMW kind = iota // before the queue pair that it was bound through
	kindQP
	kindSRQ
	kindAH
	kindCQ
	kindChannel
	kindClock
	kindMR
	kindPD
	numKinds
)

var kindNames = [numKinds]string{kindMW: "MW", kindQP: "QP", kindSRQ: "SRQ", kindAH: "AH", kindCQ: "CQ", kindChannel: "completion channel", kindClock: "clock", kindMR: "MR", kindPD: "PD"}

// object is what every verbs object has: a kernel handle, the objects that it
// stands on, and a count of those that stand on it. All fields are guarded by
// the device's mu, except dev and handle, which never change.
type object struct {
	dev    *Device
	handle uint32
	kind   kind
	id     uint64 // the user handle: names the object in events, never reused
	// letGo, if not nil, gives back what the kernel has for the object: the device is
	// gone. No Close is under way, nor begins. It is no method of closer, so that
	// programs without such objects are spared it.
	letGo  func()
	closed bool
	gone   chan struct{} // closed when Close has done its work; made by it
	users  [numKinds]int // by kind, the objects that stand on this one
	bases  []*object     // the objects that this one stands on
}

// closer is an object as the device closes it.
type closer interface {
	base() *object
	Close() error
}

func (o *object) base() *object { return o }

// making begins to make an object that stands on others. Until done is called,
// the Close of each of those, and of the device, waits: the kernel refuses to
// destroy what a call under way uses, and gives handles out again.
func (d *Device) making(k kind, bases ...*object) (done func(), err error) {
	d.makers.RLock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.standing(k, bases); err != nil {
		d.makers.RUnlock()
		return nil, err
	}
	return d.makers.RUnlock, nil
}

// standing says why an object cannot be made: the device, or what it would
// stand on, is closed. d.mu is held.
func (d *Device) standing(k kind, bases []*object) error {
	if d.closing || d.lost.Load() {
		why := os.ErrClosed
		if !d.closing {
			why = ErrDeviceGone
		}
		return d.denied("make "+kindNames[k], why)
	}
	for _, b := range bases {
		if b.closed {
			return fmt.Errorf("goverbs: %s: make %s: its %s was closed: %w", d.info.Name, kindNames[k], kindNames[b.kind], os.ErrClosed)
		}
	}
	return nil
}

// hold enters an object into its device and holds what it stands on. It fails
// when one of those, or the device, is closed.
func (d *Device) hold(c closer, bases ...*object) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := c.base()
	if err := d.standing(o.kind, bases); err != nil {
		return err
	}
	// A queue pair may stand on one CQ with both sides.
	o.bases = slices.Compact(bases)
	for _, b := range o.bases {
		b.users[o.kind]++
	}
	d.enter(c)
	return nil
}

// nextID is a user handle for a new object.
func (d *Device) nextID() uint64 { return d.ids.Add(1) }

// retire marks an object closed, unless others stand on it. The caller then
// destroys it and calls release.
func (o *object) retire() error {
	d := o.dev
	if o.kind != kindQP { // nothing is made on a queue pair, and NewQP closes one that failed
		d.makers.Lock()
		defer d.makers.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leaving {
		d.mu.Unlock()
		<-d.left
		d.mu.Lock()
	}
	if o.closed {
		return d.denied("close "+kindNames[o.kind], os.ErrClosed)
	}
	for k, n := range o.users {
		if n > 0 {
			return fmt.Errorf("goverbs: %s: close %s: %w by %s; close those first, or close the device", d.info.Name, kindNames[o.kind], ErrInUse, plural(n, kindNames[k]))
		}
	}
	o.closed, o.gone = true, make(chan struct{})
	return nil
}

// revive takes retire back: the kernel refused to destroy the object.
func (o *object) revive() {
	o.dev.mu.Lock()
	defer o.dev.mu.Unlock()
	close(o.gone)
	o.closed, o.gone = false, nil
}

// release lets go of what a closed object stood on.
func (o *object) release() {
	d := o.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range o.bases {
		b.users[o.kind]--
	}
	o.bases = nil
	delete(d.objects, o.id)
	close(o.gone)
}

// awaitGone waits until the Close that is under way has done its work.
func (o *object) awaitGone() {
	o.dev.mu.Lock()
	gone := o.gone
	o.dev.mu.Unlock()
	if gone != nil {
		<-gone
	}
}

// isClosed says whether Close was called.
func (o *object) isClosed() bool {
	o.dev.mu.Lock()
	defer o.dev.mu.Unlock()
	return o.closed
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// destroy runs a destroy method: one handle, and for some objects a response
// with counts of events. A device that is gone has destroyed its objects
// already.
func (d *Device) destroy(op string, object, method uint16, handle uint32, response []byte) error {
	r := newRequest(d.driver, object, method)
	if response != nil {
		// The response has attribute 1 in every destroy method that has one.
		r.out(abi.UVERBS_ATTR_DESTROY_QP_RESP, response)
	}
	r.handle(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, handle)
	err := d.call(op, r)
	if isDeviceGone(err) {
		return nil
	}
	return err
}
