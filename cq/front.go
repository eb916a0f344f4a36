package cq

import "sync/atomic"

// A poller that works through many completions finds that nearly all of them are
// the success of the oldest request of their queue:
//
//	head := r.Head()
//	if !r.Dry(head) || r.Fill(head) {
//		if s, key := r.Front(head), r.Key(); (key^s.Expected()^told)&mask == 0 {
//			s.Sent(w, key, ...)
//			r.Pop(head)
//		}
//	}
//
// All of it is small enough to be inlined into the loop. What is not of that kind
// is for Find and Complete. All of it is the poller's side.

// Head is the number of the oldest request that is outstanding, if there is one.
func (r *Requests) Head() uint32 { return r.head }

// Dry says that there is no Front, as far as the poller knows: nothing is
// outstanding, or requests after the oldest have ended, which leave more to do than
// Pop does. Fill says whether there is one after all.
//
// What Rollback takes back after it was committed may still be there. Pollers of
// queues that do that go by Oldest.
func (r *Requests) Dry(head uint32) bool { return head == r.seen }

// Fill is for a queue that is Dry.
func (r *Requests) Fill(head uint32) bool {
	if r.gaps == 0 {
		// What is in the slots is the poster's until it is committed: this
		// sees it.
		r.seen = atomic.LoadUint32(&r.tail)
	}
	return head != r.seen
}

// Expected is, together with Key, what a completion says of a request that
// succeeds, if the program asked to hear of that, as all do of receives: Key has the
// QPN in its upper 32 bits, Expected has the position in the 16 bits below, and zero
// in the lowest 8 bits. What is in the other 8 means nothing.
func (s *Slot) Expected() uint64 {
	return uint64(uint32(s.tag[0]) | uint32(s.tag[1])<<8 | uint32(s.tag[2])<<16 | uint32(s.tag[3])<<24)
}

// Key is the QPN of the queue, in the upper 32 bits, and below, for receives of
// datagrams, KeyDatagram.
func (r *Requests) Key() uint64 { return r.key }

// Kind is what Received takes above the length, of a plain message. It is kept, not
// made: of a number that the compiler knows parts of it stores the parts.
func (r *Requests) Kind() uint64 { return r.kind }

// KeyDatagram marks the Key of a receive queue whose completions say where the
// message came from: see Endpoint.Datagram. It is in the lowest 8 bits, so that
// completions are not what is expected, unless a poller expects that.
const KeyDatagram = 4

// Pop takes the request out that is in Front, whose completion is made.
func (r *Requests) Pop(head uint32) { StoreRelease32(&r.head, head+1) }

// Received is Sent for a receive. Below the key is immediate data, or zero, and
// message is the length, 32 bits, the Flags, 8 bits, the Opcode, 8 bits, and the
// Side.
func (s *Slot) Received(w *WC, key, stamp, message uint64) {
	w.ID = s.id
	w.Bytes, w.Flags, w.Opcode, w.Side, w.SL = uint32(message), Flags(message>>32), Opcode(message>>40), Side(message>>48), uint8(message>>56)
	w.Timestamp = stamp
	w.data, w.QPN = uint32(key), uint32(key>>32)
	w.Status, w.VendorErr = 0, 0
	w.SrcQPN, w.SLID, w.unused = 0, 0, 0
}

// Position is where in its work queue the request stands: see Place.
func (s *Slot) Position() uint16 { return uint16(s.tag[2]) | uint16(s.tag[3])<<8 }

// Bytes is the length that the request was posted with.
func (s *Slot) Bytes() uint32 { return s.bytes }

// Op is what the request does.
func (s *Slot) Op() Opcode { return Opcode(s.tag[1]) }

// behead is where the slow ways move the head to.
func (r *Requests) behead(head uint32) {
	r.seen = head
	StoreRelease32(&r.head, head)
}
