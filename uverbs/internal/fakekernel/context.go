package fakekernel

import (
	"slices"
	"syscall"

	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// object is a verbs object.
type object interface{ kind() string }

// context is a verbs context. As in Linux it lives until its file is closed
// and none of its rings is mapped.
type context struct {
	k       *Kernel
	dev     *device
	open    bool
	mapped  int
	objects map[uint32]object

	// pending are rings that wait to be mapped, by token.
	pending map[int64]*ring
	// channels are its completion channels, asyncs its asynchronous event
	// files; the first of those takes the events of objects without one.
	channels, asyncs []*events
}

func (f *file) newContext() *context {
	c := &context{
		k: f.k, dev: f.dev, open: true, objects: make(map[uint32]object), pending: make(map[int64]*ring),
	}
	f.dev.contexts = append(f.dev.contexts, c)
	return c
}

// add enters an object under the smallest free handle. Handles of all types
// share one space, and 0 is one of them.
func (c *context) add(o object) uint32 {
	var h uint32
	for c.objects[h] != nil {
		h++
	}
	c.objects[h] = o
	return h
}

// lookup finds an object of a type. A wrong type is as bad as no object.
func lookup[T object](c *context, handle uint32) (o T, err error) {
	o, ok := c.objects[handle].(T)
	if !ok {
		return o, syscall.ENOENT
	}
	return o, nil
}

// async raises an asynchronous event. e is the event file of the object, nil
// for the context's.
func (c *context) async(element uint64, e *events, typ uint32) {
	c.asyncOf(element, e, typ, nil)
}

func (c *context) asyncOf(element uint64, e *events, typ uint32, reported *uint32) {
	c.asyncFile(e).add(asyncRecord(element, typ, reported))
}

// asyncFile is where events of an object with event file e go; nil is nowhere.
func (c *context) asyncFile(e *events) *events {
	if e == nil && len(c.asyncs) > 0 {
		return c.asyncs[0]
	}
	return e
}

// newRing makes a ring that waits to be mapped.
func (c *context) newRing(what string, slots, stride int) *ring {
	r := newRing(what, slots, stride)
	r.ctx = c
	c.k.token += int64(len(r.shared))
	r.token = c.k.token
	c.pending[r.token] = r
	return r
}

// mapRing maps a ring by its token, which is good for one time.
func (c *context) mapRing(offset int64, n int) (*kernel.Mapping, error) {
	r := c.pending[offset]
	if r == nil || n > len(r.shared) {
		return nil, syscall.EINVAL
	}
	delete(c.pending, offset)
	c.mapped++
	c.k.rings[r] = true
	return kernel.NewMapping(r.shared[:n], r.detach, r.unmap), nil
}

// release ends the context when nothing holds it any more.
func (c *context) release() {
	if c.open || c.mapped > 0 {
		return
	}
	for _, kind := range []string{"MW", "QP", "SRQ", "AH", "CQ", "MR", "PD"} {
		for h, o := range c.objects {
			if o.kind() == kind {
				c.destroy(h, o)
			}
		}
	}
	for _, e := range c.channels {
		e.breakOff(syscall.EIO)
	}
	c.dev.contexts = slices.DeleteFunc(c.dev.contexts, func(x *context) bool { return x == c })
	c.k.freed(c.dev)
}

// destroy ends an object that nothing stands on.
func (c *context) destroy(h uint32, o object) {
	switch o := o.(type) {
	case *qp:
		o.end()
	case *cq:
		o.end()
	case *mr:
		o.end()
	case *mw:
		o.end()
	case *ah:
		o.end()
	case *srq:
		o.end()
	}
	delete(c.objects, h)
}
