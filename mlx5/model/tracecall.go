package model

import (
	"errors"
	"slices"

	"github.com/goverbs/goverbs/abi/request"
)

// kindAsync is the kind of files of asynchronous events, which [Device.Objects] does not
// count.
const kindAsync = "async"

// numberOf is the number by which the device, or the program's requests, know an object.
func numberOf(o object) uint32 {
	switch o := o.(type) {
	case *qp:
		return o.qpn
	case *cq:
		return o.cqn
	case *srq:
		return o.srqn
	case *mkey:
		return o.key
	case *mw:
		return o.key.key
	}
	return 0
}

// refer notes an object of the request for who traces.
func (c *call) refer(h uint32, o object, made bool) {
	if c.f.m.observe != nil {
		c.refs = append(c.refs, ObjectRef{Kind: kinds[o.rank()], Handle: h, Number: numberOf(o), Made: made})
	}
}

// referQueue notes an event queue that the request made.
func (c *call) referQueue(e *EventQueue) {
	if c.f.m.observe == nil {
		return
	}
	kind := kindAsync
	if e.completion {
		kind = "channel"
	}
	c.refs = append(c.refs, ObjectRef{Kind: kind, Handle: uint32(e.fd), Made: true})
}

// tell tells of an ioctl and its answer. There is somebody to be told.
func (f *File) tell(mem request.Memory, addr uint64, refs []ObjectRef, err error) {
	e := IoctlEvent{Origin: f.origin(), Request: request.Title(mem, addr), Objects: refs, Errno: request.ErrnoOf(err)}
	if err != nil {
		e.Objects = slices.DeleteFunc(refs, func(o ObjectRef) bool { return o.Made })
		var known *request.Error
		switch {
		case errors.As(err, &known):
			e.Reason = known.Reason
		case err != error(e.Errno):
			e.Reason = err.Error()
		}
	}
	f.m.observe(e)
}
