package model

import (
	"encoding/binary"
	"os"

	"github.com/goverbs/goverbs/abi/request"
)

// Event types of enum ib_event_type that the device raises.
const (
	eventCQErr       = 0
	eventQPFatal     = 1
	eventQPReqErr    = 2
	eventQPAccessErr = 3
	eventCommEst     = 4
	eventSQDrained   = 5
	eventDeviceFatal = 8
	eventPortActive  = 9
	eventPortErr     = 10
	eventSRQErr      = 14
	eventSRQLimit    = 15
	eventLastWQE     = 16
	eventGIDChange   = 18
)

// EventQueue is a completion channel or an asynchronous event file: what is a file
// descriptor of the kernel's there. Its methods may be called from any goroutine.
type EventQueue struct {
	f          *File
	fd         int32
	completion bool
	records    []record
	broken     bool
	closed     bool
	ready      chan struct{}
	notify     func()
}

// record is an event that was not read yet.
type record struct {
	bytes [16]byte
	size  int
	// reported counts reads for the object that the event is of, nil if it
	// is of none.
	reported *uint32
}

// fields are the element of a record and, of an asynchronous one, the type.
func (r *record) fields() (element uint64, event uint32) {
	return binary.NativeEndian.Uint64(r.bytes[:]), binary.NativeEndian.Uint32(r.bytes[8:])
}

func (f *File) newQueue(completion bool) (*EventQueue, error) {
	e := &EventQueue{f: f, completion: completion, ready: make(chan struct{}, 1)}
	fd, err := f.newFD(e)
	if err != nil {
		return nil, err
	}
	e.fd = fd
	f.queues[fd] = e
	return e, nil
}

// FD is the number by which requests name the queue.
func (e *EventQueue) FD() int32 { return e.fd }

// Ready is a channel that has a value when there may be something to read, or the
// queue is broken or closed. One reader takes the value, and reads until
// EAGAIN before it waits again.
func (e *EventQueue) Ready() <-chan struct{} { return e.ready }

// Notify has f called whenever a value is put to Ready. f runs inside the
// device's work: it must not block and must not call the model.
func (e *EventQueue) Notify(f func()) {
	e.f.m.enter()
	defer e.f.m.leave()
	e.notify = f
	if len(e.records) > 0 || e.broken {
		e.wake()
	}
}

// Read reads one record without waiting: eight bytes, the user handle of a
// completion queue, or sixteen, struct ib_uverbs_async_event_desc, in the
// machine's byte order. It fails with EAGAIN when there is none, EIO
// when the device is gone, EINVAL when p is too short, os.ErrClosed after Close.
func (e *EventQueue) Read(p []byte) (int, error) {
	e.f.m.enter()
	defer e.f.m.leave()
	switch {
	case e.closed:
		return 0, os.ErrClosed
	case len(e.records) == 0 && e.broken:
		return 0, request.EIO
	case len(e.records) == 0:
		return 0, request.EAGAIN
	}
	r := &e.records[0]
	if len(p) < r.size {
		return 0, request.EINVAL
	}
	n := copy(p, r.bytes[:r.size])
	if r.reported != nil {
		*r.reported++
	}
	// Move down, so that the slice keeps its memory.
	e.records = e.records[:copy(e.records, e.records[1:])]
	return n, nil
}

// Close closes the queue. Events for it are dropped from then on.
func (e *EventQueue) Close() error {
	e.f.m.enter()
	defer e.f.m.leave()
	if e.closed {
		return os.ErrClosed
	}
	e.close()
	return nil
}

func (e *EventQueue) close() {
	e.closed = true
	e.records = nil
	delete(e.f.queues, e.fd)
	e.wake()
	e.notify = nil // and what it leads to can go
}

func (e *EventQueue) wake() {
	select {
	case e.ready <- struct{}{}:
	default:
	}
	if e.notify != nil {
		e.notify()
	}
}

func (e *EventQueue) breakOff() {
	e.broken = true
	e.wake()
}

func (e *EventQueue) add(r record) {
	if e == nil || e.closed {
		return
	}
	e.records = append(e.records, r)
	if e.f.m.observe != nil {
		e.tell(&r)
	}
	e.wake()
}

// forget drops what was not read of an object that is destroyed.
func (e *EventQueue) forget(reported *uint32) {
	if e == nil {
		return
	}
	keep := e.records[:0]
	for _, r := range e.records {
		if r.reported != reported {
			keep = append(keep, r)
		}
	}
	e.records = keep
}

// asyncQueue is where events of an object with queue e go: its own, or the
// file's first.
func (f *File) asyncQueue(e *EventQueue) *EventQueue {
	if e == nil {
		return f.asyncs
	}
	return e
}

// async raises an asynchronous event. e is the object's queue, nil for the
// file's; reported counts how many the program has read.
func (f *File) async(e *EventQueue, element uint64, event uint32, reported *uint32) {
	if f.dev.gone {
		return
	}
	r := record{size: 16, reported: reported}
	binary.NativeEndian.PutUint64(r.bytes[:], element)
	binary.NativeEndian.PutUint32(r.bytes[8:], event)
	f.m.deliver(f.asyncQueue(e), r, AtAsync, event)
}
