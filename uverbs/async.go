package uverbs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// EventType is what happened to a device, with the numbers of enum
// ib_event_type (include/rdma/ib_verbs.h).
type EventType uint32

// The events.
const (
	EventCQError EventType = iota
	EventQPFatal
	EventQPRequestError
	EventQPAccessError
	EventCommEstablished
	EventSendQueueDrained
	EventPathMigrated
	EventPathMigrationError
	EventDeviceFatal
	EventPortActive
	EventPortError
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQError
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

var eventNames = [...]string{
	"CQ error", "QP fatal error", "QP request error", "QP access error", "communication established",
	"send queue drained", "path migrated", "path migration error", "device fatal error", "port active",
	"port error", "LID change", "P_Key change", "SM change", "SRQ error", "SRQ limit reached",
	"last WQE reached", "client reregister", "GID change", "WQ fatal error",
}

// String names the event.
func (t EventType) String() string {
	if int64(t) < int64(len(eventNames)) {
		return eventNames[t]
	}
	if t == EventDeviceGone {
		return "device gone"
	}
	return fmt.Sprintf("EventType(%d)", uint32(t))
}

// Event is something that happened to a device, a port or an object.
type Event struct {
	Type EventType
	// Port is set for events of a port.
	Port int
	// QP, CQ or SRQ is set for events of one, unless it was closed by then.
	QP  *QP
	CQ  *CQ
	SRQ *SRQ
}

// String describes the event.
func (e Event) String() string {
	switch {
	case e.QP != nil:
		return fmt.Sprintf("%v on QP %d", e.Type, e.QP.qpn)
	case e.CQ != nil:
		return fmt.Sprintf("%v on a CQ of depth %d", e.Type, e.CQ.Depth())
	case e.SRQ != nil:
		return fmt.Sprintf("%v on an SRQ of depth %d", e.Type, e.SRQ.Depth())
	case e.Port != 0:
		return fmt.Sprintf("%v on port %d", e.Type, e.Port)
	}
	return e.Type.String()
}

// eventBacklog is how many events wait for a reader before new ones are
// dropped, and counted.
const eventBacklog = 256

// asyncEvents reads the device's asynchronous events in the one goroutine that
// an open device has.
type asyncEvents struct {
	dev     *Device
	file    kernel.EventFile
	dropped atomic.Uint64
	done    sync.WaitGroup

	mu    sync.Mutex
	early []Event    // what there is for the reader before he asks for the channel
	ch    chan Event // made when he does: few do, and it is a third of what Open allocates
	ended bool       // nothing more comes
}

// startAsync begins to read events.
func (d *Device) startAsync() error {
	const op = "open asynchronous events"
	r := newRequest(d.driver, abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC)
	r.create(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
	if err := d.call(op, r); err != nil {
		return err
	}
	f, err := d.adopt(op, int(int64(r.result(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE))))
	if err != nil {
		return err
	}
	d.async = &asyncEvents{dev: d, file: f}
	d.async.done.Go(d.async.run)
	return nil
}

// Events are the asynchronous events of the device. The channel is closed when
// the device is, or, after EventDeviceGone, when that is gone. A reader that falls
// far behind loses the newest events, which DroppedEvents counts, but not the last.
func (d *Device) Events() <-chan Event {
	a := d.async
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ch == nil {
		a.ch = make(chan Event, eventBacklog+1) // the last has its place
		for _, e := range a.early {
			a.ch <- e
		}
		a.early = nil
		if a.ended {
			close(a.ch)
		}
	}
	return a.ch
}

// tell passes an event on, if there is room.
func (a *asyncEvents) tell(e Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case len(a.early)+len(a.ch) >= eventBacklog:
		a.dropped.Add(1)
	case a.ch == nil:
		a.early = append(a.early, e)
	default:
		a.ch <- e
	}
}

// endEvents says that nothing more comes: if the device is gone, but for that.
func (a *asyncEvents) endEvents(gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := Event{Type: EventDeviceGone}
	a.ended = true
	switch {
	case a.ch == nil && gone:
		a.early = append(a.early, last)
	case a.ch != nil:
		if gone {
			a.ch <- last
		}
		close(a.ch)
	}
}

// DroppedEvents counts the events that nobody had room for.
func (d *Device) DroppedEvents() uint64 { return d.async.dropped.Load() }

func (a *asyncEvents) run() {
	defer a.end()
	if f := a.dev.watch; f != nil {
		// From here: who opens a device has enough to do.
		go f()
	}
	record := make([]byte, abi.SizeofUverbsAsyncEventDesc)
	for {
		var n int
		var err error
		if a.dev.lost.Load() { // what came before is there
			n, err = a.file.Read(record)
		} else {
			n, err = a.file.ReadWait(record)
		}
		switch {
		case err == nil && n == len(record):
			a.handle(a.decode(record))
		case a.dev.lost.Load():
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		case err == nil:
			// Half a record says nothing, and nothing sensible follows.
			a.lost(fmt.Errorf("an event record of %d bytes, want %d", n, len(record)))
			return
		case errors.Is(err, os.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return // it is close that sets a deadline, or lose
		default:
			a.lost(err)
			return
		}
	}
}

// decode turns a record into an event. Its element is a user handle or a port
// number, as the type says.
func (a *asyncEvents) decode(record []byte) Event {
	element := native.Uint64(record)
	e := Event{Type: EventType(native.Uint32(record[8:]))}
	switch e.Type {
	case EventDeviceFatal:
	case EventPortActive, EventPortError, EventLIDChange, EventPKeyChange, EventSMChange, EventClientReregister, EventGIDChange:
		if element <= 255 {
			e.Port = int(element)
		}
	default:
		switch o := a.dev.object(element).(type) {
		case *QP:
			e.QP = o
		case *CQ:
			e.CQ = o
		case *SRQ:
			e.SRQ = o
		}
	}
	return e
}

// handle does what the library itself has to do on an event, and passes it on.
func (a *asyncEvents) handle(e Event) {
	switch {
	case e.Type == EventCQError && e.CQ != nil:
		e.CQ.mailbox.kill(e.CQ, fmt.Errorf("goverbs: %s: poll CQ of depth %d: %w: completions are lost; close it and its queue pairs, and make them deeper", a.dev.info.Name, e.CQ.Depth(), ErrOverrun))
	case e.QP != nil && e.Type <= EventQPAccessError:
		e.QP.told(e.Type)
	case e.Type == EventDeviceFatal:
		a.dev.lost.Store(true)
	}
	a.tell(e)
}

// lost ends the device: the kernel took the file of its events away, or it speaks
// another language than ours. Without events a failure would go unseen.
func (a *asyncEvents) lost(err error) {
	if a.dev.opts.Logger != nil {
		a.dev.opts.Logger.Error("goverbs: asynchronous events ended", "device", a.dev.info.Name, "error", err)
	}
	a.dev.lost.Store(true)
}

// close ends the goroutine and waits for it.
func (a *asyncEvents) close() {
	// A deadline ends a parked read on every kind of file; Close alone would
	// do so only where the runtime polls.
	a.file.SetReadDeadline(longAgo())
	a.file.Close()
	a.done.Wait()
}
