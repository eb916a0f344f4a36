package fakekernel

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Event types of enum ib_event_type that the fake kernel raises.
const (
	eventCQErr       = 0
	eventDeviceFatal = 8
	eventPortActive  = 9
	eventPortErr     = 10
	eventSRQLimit    = 15
)

type eventKind int

const (
	completionChannel eventKind = iota
	asyncFile
)

func (k eventKind) String() string {
	if k == completionChannel {
		return "a completion channel"
	}
	return "an asynchronous event file"
}

// events is an event descriptor: a queue of records, one for each read. All
// fields are guarded by the kernel's lock.
type events struct {
	k      *Kernel
	dev    *device // holds it
	kind   eventKind
	signal signal
	queue  []record
	broken error // what an empty queue says, if not EAGAIN
	taken  bool  // by File.Events
	closed bool

	changed  sync.Cond
	deadline time.Time
	timer    *time.Timer
}

// A record is an event that was not read yet.
type record struct {
	bytes [16]byte
	size  int
	// reported counts the read of the record; nil if the record is of no
	// object.
	reported *uint32
}

func (k *Kernel) newEvents(d *device, kind eventKind) (*events, error) {
	s, err := newSignal(k)
	if err != nil {
		return nil, err
	}
	e := &events{k: k, dev: d, kind: kind, signal: s}
	e.changed.L = &k.mu
	k.fds[s.fd] = e
	return e, nil
}

// add queues a record. Records for a closed file go nowhere.
func (e *events) add(r record) {
	if e == nil || e.closed {
		return
	}
	e.queue = append(e.queue, r)
	e.signal.raise()
	e.changed.Broadcast()
}

// forget drops the unread records of an object that is destroyed.
func (e *events) forget(reported *uint32) {
	if e == nil {
		return
	}
	keep := e.queue[:0]
	for _, r := range e.queue {
		if r.reported != reported {
			keep = append(keep, r)
		}
	}
	e.queue = keep
	e.settle()
}

// settle makes the descriptor unreadable when there is nothing to read.
func (e *events) settle() {
	if len(e.queue) == 0 && e.broken == nil && !e.closed {
		e.signal.clear()
	}
}

// breakOff makes err the end of the queue.
func (e *events) breakOff(err error) {
	if e.closed {
		return
	}
	e.broken = err
	e.signal.raise()
	e.changed.Broadcast()
}

func completionRecord(userHandle uint64, reported *uint32) record {
	r := record{size: 8, reported: reported}
	binary.NativeEndian.PutUint64(r.bytes[:], userHandle)
	return r
}

func asyncRecord(element uint64, typ uint32, reported *uint32) record {
	r := record{size: 16, reported: reported}
	binary.NativeEndian.PutUint64(r.bytes[:], element)
	binary.NativeEndian.PutUint32(r.bytes[8:], typ)
	return r
}

// Read implements [kernel.EventFile].
func (e *events) Read(p []byte) (int, error) {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	return e.read(p)
}

func (e *events) read(p []byte) (int, error) {
	switch {
	case e.closed:
		return 0, os.ErrClosed
	case len(e.queue) == 0 && e.broken != nil:
		return 0, e.broken
	case len(e.queue) == 0:
		return 0, syscall.EAGAIN
	}
	r := e.queue[0]
	if len(p) < r.size {
		return 0, syscall.EINVAL
	}
	copy(p, r.bytes[:r.size])
	e.queue = e.queue[1:]
	if r.reported != nil {
		*r.reported++
	}
	e.settle()
	return r.size, nil
}

// ReadWait implements [kernel.EventFile].
func (e *events) ReadWait(p []byte) (int, error) {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	for {
		// As the runtime's poller, which looks at the deadline first.
		if !e.closed && !e.deadline.IsZero() && !time.Now().Before(e.deadline) {
			return 0, os.ErrDeadlineExceeded
		}
		n, err := e.read(p)
		if err != syscall.EAGAIN {
			return n, err
		}
		e.changed.Wait()
	}
}

// SetReadDeadline implements [kernel.EventFile].
func (e *events) SetReadDeadline(t time.Time) error {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	if e.closed {
		return os.ErrClosed
	}
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
	e.deadline = t
	if !t.IsZero() {
		e.timer = time.AfterFunc(time.Until(t), e.wake)
	}
	e.changed.Broadcast()
	return nil
}

func (e *events) wake() {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	e.changed.Broadcast()
}

// FD implements [kernel.EventFile].
func (e *events) FD() int { return e.signal.fd }

// PollFD implements [kernel.EventFile].
func (e *events) PollFD() int { return e.signal.fd }

// Notify implements [kernel.EventFile]: the descriptor can be polled.
func (e *events) Notify(func()) {}

// Close implements [kernel.EventFile].
func (e *events) Close() error {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	return e.close()
}

func (e *events) close() error {
	if e.closed {
		return os.ErrClosed
	}
	e.closed = true
	e.queue = nil
	if e.timer != nil {
		e.timer.Stop()
	}
	delete(e.k.fds, e.signal.fd)
	e.signal.close()
	e.changed.Broadcast()
	e.k.freed(e.dev)
	return nil
}

var _ kernel.EventFile = (*events)(nil)
