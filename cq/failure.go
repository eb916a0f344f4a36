package cq

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Failures remembers, for a queue pair, the first of its requests that failed by
// itself: with another status than [StatusFlushed], which says only that something
// failed before. The two sides of a queue pair may have pollers of their own: what is
// first is what was polled first. The zero value is of a queue pair none of whose
// requests has failed. Requests that succeed have nothing to do with it, and only
// numbers are kept: the poller of a request that fails has others to look after.
type Failures struct {
	state  uint32 // free, then taken by a poller, and known when all else is written
	seq    uint32
	wc     WC // with what the request was in Opcode and Bytes
	at     time.Time
	shared bool

	since time.Time // when the queue pair began, and with what numbers
	begun [2]uint32 // by Side
}

const (
	failureFree = iota
	failureTaken
	failureKnown
)

// Begin forgets what failed before: the queue pair, whose tables these are, is about to
// be connected, and all requests that were posted have ended. Nobody calls First.
func (f *Failures) Begin(send, recv *Requests) {
	for atomic.LoadUint32(&f.state) == failureTaken {
		runtime.Gosched() // a poller has ended the request, and is about to note it
	}
	f.begun[SendSide], f.begun[RecvSide] = send.Tail(), recv.Tail()
	f.since = time.Now()
	atomic.StoreUint32(&f.state, failureFree)
}

// Failure is a request that failed by itself.
type Failure struct {
	WC    WC // as Poll returned it
	Op    Opcode
	Bytes uint32    // that it was posted with; not known if Shared
	Seq   uint32    // its number in its queue, or in the shared one
	At    time.Time // when it was polled
	// Shared says that it is a receive of a shared queue.
	Shared bool
}

// First returns the first failure since Begin. Any goroutine may call it, but not
// beside Begin.
func (f *Failures) First() (first Failure, ok bool) {
	if atomic.LoadUint32(&f.state) != failureKnown {
		return first, false
	}
	first = Failure{WC: f.wc, Op: f.wc.Opcode, Bytes: f.wc.Bytes, Seq: f.seq, At: f.at, Shared: f.shared}
	first.WC.Opcode, first.WC.Bytes = 0, 0
	return first, true
}

// Since is when Begin was called last, and the number of the first request of the side
// after it. It is not for use beside that.
func (f *Failures) Since(side Side) (at time.Time, begun uint32) { return f.since, f.begun[side] }

// Fail ends request seq of r, one of the two sides of e, with a status that is not
// success, as Complete does, and remembers it if it is the first. vendor becomes
// WC.VendorErr. Of a receive from a shared queue, which has ended already and is in w,
// seq its number there, r is nil, and the caller notes it, with State.Failed. Poller's side.
//
//go:noinline
func (e *Endpoint) Fail(r *Requests, seq uint32, status Status, vendor uint32, w *WC) (show, ok bool) {
	f := e.Failures
	// Before the request has ended: then the queue pair may begin anew.
	first := f != nil && status != StatusFlushed && (r == nil || r.Posted(seq)) && atomic.CompareAndSwapUint32(&f.state, failureFree, failureTaken)
	s := Slot{tag: [4]byte{1: byte(OpRecv)}}
	if r != nil {
		s = *r.slot(seq)
		show, ok = r.Complete(seq, status, w)
		if show {
			r.state.Failed(status)
		}
	}
	w.VendorErr = vendor
	if first {
		done := uint32(failureFree)
		if show || r == nil {
			f.wc, f.seq, f.at, f.shared = *w, seq, time.Now(), r == nil
			f.wc.Bytes, f.wc.Opcode = s.bytes, s.Op()
			done = failureKnown
		}
		atomic.StoreUint32(&f.state, done)
	}
	return show, ok
}
