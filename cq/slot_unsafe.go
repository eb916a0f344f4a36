package cq

import (
	"sync/atomic"
	"unsafe"
)

// slot is the slot of request seq. The mask is one less than the number of slots,
// which the constructor sees to: the bounds check of a slice takes as long as the
// rest of this.
func (r *Requests) slot(seq uint32) *Slot {
	return (*Slot)(unsafe.Add(unsafe.Pointer(r.first), uintptr(seq&r.mask)*unsafe.Sizeof(Slot{})))
}

// next is the slot of the request that is staged next, without a look at what the
// poller writes.
func (r *Requests) next() *Slot {
	return (*Slot)(unsafe.Add(unsafe.Pointer(r.begin), uintptr(r.staged&r.places)*unsafe.Sizeof(Slot{})))
}

// Front returns the oldest outstanding request. It does what slot does, and does not
// call it: a call in an inlined call leaves a NOP behind.
func (r *Requests) Front(head uint32) *Slot {
	return (*Slot)(unsafe.Add(unsafe.Pointer(r.first), uintptr(head&r.mask)*unsafe.Sizeof(Slot{})))
}

// beginning is what slots and completions have in common; an array, which is copied
// in one piece where the machine can.
type beginning [2]uint64

// setTag sets all of the tag, in one store: of bytes that are put together the compiler
// stores the parts.
func (s *Slot) setTag(v uint32) { *(*uint32)(unsafe.Pointer(&s.tag)) = little32(v) }

// Sent makes w the completion of the request, one of the send side, which succeeded
// at stamp of the device's clock.
func (s *Slot) Sent(w *WC, key, stamp uint64) {
	// All of w is written, in words of eight bytes and more: narrow stores
	// would take longer than all else that is done for a completion. The
	// compiler merges what is stored from one number, and zeros; the order of
	// the fields is made for that. The first piece is id, length, no flags, and
	// opcode; the position lands where side and service level are.
	*(*beginning)(unsafe.Pointer(w)) = *(*beginning)(unsafe.Pointer(s))
	w.Side, w.SL = SendSide, 0
	w.Timestamp = stamp
	w.data, w.QPN = uint32(key), uint32(key>>32)
	w.Status, w.VendorErr = 0, 0
	w.SrcQPN, w.SLID, w.unused = 0, 0, 0
}

// EndpointView is what Endpoints.Get looks into, for a poller that looks up many.
// Use it for one batch.
type EndpointView struct {
	send, recv unsafe.Pointer // of a power of two of atomic.Pointer[Requests]
	last       uint64         // one less than how many
}

// none is what a View finds in a table without an endpoint. An atomic.Pointer is as
// large as a pointer.
var none = [1]*Requests{nothing}

// View returns the view of now. What is entered later may not be in it: take it
// after the completions were seen to be there.
func (t *Endpoints) View() EndpointView {
	s := t.table.Load()
	if s == nil {
		return EndpointView{unsafe.Pointer(&none), unsafe.Pointer(&none), 0}
	}
	return EndpointView{unsafe.Pointer(unsafe.SliceData(s.send)), unsafe.Pointer(unsafe.SliceData(s.recv)), uint64(len(s.send) - 1)}
}

// Past says whether user index i is past the end of the table. Indices are of the size
// of an address here, so that one that was masked is not masked again.
func (v EndpointView) Past(i uint64) bool { return i > v.last }

// Send and Recv return the requests of user index i, which is not Past: those of no
// queue, which belong to no CQ, if there are none.

func (v EndpointView) Send(i uint64) *Requests {
	return (*Requests)(atomic.LoadPointer((*unsafe.Pointer)(unsafe.Add(v.send, uintptr(i)*unsafe.Sizeof(v.send)))))
}

func (v EndpointView) Recv(i uint64) *Requests {
	return (*Requests)(atomic.LoadPointer((*unsafe.Pointer)(unsafe.Add(v.recv, uintptr(i)*unsafe.Sizeof(v.recv)))))
}
