package uverbs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Device is an open RDMA device: one verbs context. Its methods may be called
// from any goroutine.
type Device struct {
	info   DeviceInfo
	opts   Options
	kernel kernel.Kernel
	file   kernel.File
	driver uint32
	trace  *tracer

	provider provider // nil: the library has none for the driver

	// netdev is what info may lack: few ask for it, and it would be one of the three
	// questions that Open has for netlink.
	netdev struct {
		dial  func() (netlink, error) // nil: info does not lack it
		asked sync.Once
		name  string
	}

	vectors     int    // completion vectors
	coreSupport uint64 // what the kernel's core says it supports
	attr        DeviceAttr

	endpoints cq.Endpoints // the QPs by user index
	noWrite   atomic.Bool  // the kernel refuses write() as a doorbell; see doorbell.go
	ids       atomic.Uint64
	async     *asyncEvents
	loss

	byQPN struct { // the open queue pairs
		sync.RWMutex
		m map[uint32]*QP
	}

	makers  sync.RWMutex // read-locked while an object is made; comes before mu
	mu      sync.Mutex
	objects map[uint64]closer
	order   []uint64 // the keys of objects as they were made, and of some that are gone
	closing bool
	closed  chan struct{} // closed when Close has done its work
}

// Name is the device's name, such as "rxe0".
func (d *Device) Name() string { return d.info.Name }

// Info is what discovery knew of the device when it was opened; but for Netdev,
// which the kernel may be asked for when Info is called first.
func (d *Device) Info() DeviceInfo {
	info := d.info
	info.Netdev = d.netdevName()
	return info
}

// netdevName is the network device of the first port that has one.
func (d *Device) netdevName() string {
	n := &d.netdev
	if n.dial == nil {
		return d.info.Netdev
	}
	n.asked.Do(func() {
		if c, err := n.dial(); err == nil {
			n.name = netdevOf(c, uint32(d.info.Index))
			c.Close()
		}
	})
	return n.name
}

// CompletionVectors is how many completion vectors the device has; a CQ's
// vector is less.
func (d *Device) CompletionVectors() int { return d.vectors }

// getContext makes the file a verbs context. It must be the first call, and the
// only one of its kind on a file.
func (d *Device) getContext() error {
	vectors, core := make([]byte, 4), make([]byte, 8)
	r := newRequest(d.driver, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT)
	r.out(abi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, vectors)
	r.out(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, core)
	if d.provides() {
		if err := d.provider.context(r); err != nil {
			return &Error{Op: "get context", Device: d.info.Name, Err: err}
		}
	}
	if err := d.call("get context", r); err != nil {
		return err
	}
	d.vectors = int(native.Uint32(vectors))
	d.coreSupport = native.Uint64(core)
	return nil
}

// Close closes the device and all objects made from it, QPs first. Registered
// memory stays mapped: it is yours. A poller that is inside a call gets
// os.ErrClosed, and so does a second Close, which does no harm. Of a device that
// is gone there may be nothing left to close: that is no error.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closing {
		d.mu.Unlock()
		<-d.closed
		return d.denied("close", os.ErrClosed)
	}
	d.closing = true
	leaving := d.leaving
	d.mu.Unlock()
	if leaving {
		<-d.left
	}
	d.makers.Lock()   // what is being made is entered, or fails
	d.makers.Unlock() //nolint:staticcheck // waiting is the purpose
	defer close(d.closed)

	var errs []error
	for k := range numKinds {
		for _, c := range d.ofKind(k) {
			err := c.Close()
			if errors.Is(err, os.ErrClosed) {
				// Somebody else is closing it, and reports; what it
				// stands on can be closed only afterwards.
				c.base().awaitGone()
			} else if err != nil {
				errs = append(errs, err)
			}
		}
	}
	// What the kernel refused to destroy goes with the file; but that goes only when
	// none of its rings is mapped any more.
	for _, c := range d.ofKind(kindSRQ) {
		c.(*SRQ).drop()
	}
	if d.async != nil {
		d.async.close()
	}
	if d.provides() {
		// What the kernel did not destroy keeps what it stands on: one error tells.
		if err := d.provider.end(); err != nil && len(errs) == 0 {
			errs = append(errs, err)
		}
	}
	d.unwatch()
	if err := d.file.Close(); err != nil && !leaving {
		errs = append(errs, d.denied("close", err))
	}
	d.forgetRegions()
	return errors.Join(errs...)
}

// ofKind lists the objects of one kind, oldest first.
func (d *Device) ofKind(k kind) []closer {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []closer
	for _, id := range d.order {
		if c := d.objects[id]; c != nil && c.base().kind == k {
			all = append(all, c)
		}
	}
	return all
}

// enter adds an object. The device's mu is held.
func (d *Device) enter(c closer) {
	id := c.base().id
	d.objects[id] = c
	if len(d.order) > 2*len(d.objects)+16 {
		live := d.order[:0]
		for _, id := range d.order {
			if d.objects[id] != nil {
				live = append(live, id)
			}
		}
		d.order = live
	}
	d.order = append(d.order, id)
}

// object finds an object by its user handle, as events name it.
func (d *Device) object(id uint64) closer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.objects[id]
}

// denied says why something cannot be done, or not any more.
func (d *Device) denied(op string, why error) error {
	return fmt.Errorf("goverbs: %s: %s: %w", d.info.Name, op, why)
}

func isDeviceGone(err error) bool { return errors.Is(err, ErrDeviceGone) }
