package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

// FirstFailure is the completion with which the queue pair failed: the first, of
// either side, that Poll has returned with another status than StatusFlushed since the
// queue pair was made, or left RESET. ok is false while there is none, which is so
// also where all that failed was flushed: Cause says more then. It stays after
// Shutdown, and is forgotten with Restart and Recover. Any goroutine may call it; it
// waits for a change of state that is under way.
func (qp *QP) FirstFailure() (w WC, ok bool) {
	f, ok := qp.firstFailure()
	return f.WC, ok
}

// Cause is why the queue pair failed: an error that wraps the [cq.CompletionError] of
// FirstFailure; or, where no request has failed by itself, an [*EventError] of what the
// device has told, or ErrDeviceGone, wrapped. It is nil where nothing is known. Of
// flushed requests this is the cause: errors.Is(qp.Cause(), uverbs.StatusRetryExceeded).
// Any goroutine may call it.
func (qp *QP) Cause() error {
	if f, ok := qp.firstFailure(); ok {
		return fmt.Errorf("goverbs: %s: %v QP %d failed: %w", qp.dev.info.Name, qp.typ, qp.qpn, f.WC.Err())
	}
	if t := EventType(qp.event.Load()); t != 0 {
		return fmt.Errorf("goverbs: %s: %v QP %d failed: %w", qp.dev.info.Name, qp.typ, qp.qpn, &EventError{Type: t})
	}
	if qp.dev.lost.Load() {
		return fmt.Errorf("goverbs: %s: %v QP %d failed: %w", qp.dev.info.Name, qp.typ, qp.qpn, ErrDeviceGone)
	}
	return nil
}

// EventError is the failure of a queue pair that no request of its own failed of: the
// peer asked for what it must not, or the device gave up.
type EventError struct {
	// Type is EventQPFatal, EventQPRequestError or EventQPAccessError.
	Type EventType
}

// Error says what the event means.
func (e *EventError) Error() string {
	text := e.Type.String() + ": "
	switch e.Type {
	case EventQPRequestError:
		return text + "the peer sent a request that the transport does not allow"
	case EventQPAccessError:
		return text + "a request of the peer asked for memory that it may not use that way"
	}
	return text + "the device could not go on with its queues"
}

// told is told by the device that the queue pair has failed. The word may be late, and
// be of a queue pair that was reset since.
func (qp *QP) told(t EventType) {
	if s, err := qp.QueryState(); err != nil || s == StateErr {
		qp.state.CompareAndSwap(uint32(StateRTS), uint32(StateErr))
		qp.event.CompareAndSwap(0, uint32(t))
	}
}

// firstFailure is FirstFailure with all that is known.
func (qp *QP) firstFailure() (cq.Failure, bool) {
	qp.modify.Lock() // it is forgotten by a change of state
	defer qp.modify.Unlock()
	return qp.failures.First()
}
