package cq

import "sync/atomic"

// Some devices hand back no number of 64 bits with a completion, but 16 bits that
// say where in its work queue the request stood. The ring that places a request
// enters its position in the table here; the poller finds the request by it.

// Place enters where in the work queue request seq stands: a count of whatever the
// device counts its queue in, modulo 2^16. It comes after Stage and before Commit,
// for every request of a queue whose completions are found by position. Positions
// grow with the requests' numbers, by one at least, and by 2^16 at most over all
// that are outstanding. Poster's side.
func (r *Requests) Place(seq uint32, pos uint16) {
	s := r.slot(seq)
	s.tag[2], s.tag[3] = byte(pos), byte(pos>>8)
}

// Find returns the number of the request at a position. ok is false when no
// outstanding request stands there: the completion is stale or invented. Poller's
// side.
func (r *Requests) Find(pos uint16) (seq uint32, ok bool) {
	head := r.head
	n := atomic.LoadUint32(&r.tail) - head
	if n == 0 {
		return 0, false
	}
	// From the oldest on, positions only grow, and at least as fast as the
	// numbers. So the request is no further away than its position, and that
	// far if all before it are short.
	first := r.slot(head).Position()
	d := pos - first
	if uint32(d) < n && r.slot(head+uint32(d)).Position() == pos {
		return head + uint32(d), true
	}
	low, high := uint32(0), min(uint32(d), n)
	for low < high {
		if m := (low + high) / 2; r.slot(head+m).Position()-first < d {
			low = m + 1
		} else {
			high = m
		}
	}
	return head + low, low < n && r.slot(head+low).Position() == pos
}

// Skip ends the quiet requests before the one at a position, which has succeeded, so
// that they have too, and says whether that one is in Front now. It does nothing if
// others than quiet ones are before it, nor while requests after the oldest have
// ended. Send queues only. Poller's side.
func (r *Requests) Skip(pos uint16) bool {
	seq, ok := r.Find(pos)
	if !ok || r.gaps != 0 {
		return false
	}
	for i := r.head; i != seq; i++ {
		if r.slot(i).state() != slotQuiet {
			return false
		}
	}
	r.seen = atomic.LoadUint32(&r.tail)
	StoreRelease32(&r.head, seq)
	return true
}

// Positions makes Place and At work for the positions below n: those of the
// elements of the device's queue, which are more than the requests where it wants
// some to spare. It comes before all other calls.
func (s *SharedRequests) Positions(n int) { s.places = make([]uint32, n) }

// Place enters that request seq stands at a position of the queue, below that of
// Positions. It comes after Stage and before Commit. Poster's side.
func (s *SharedRequests) Place(seq uint32, pos uint16) {
	StoreRelease32(&s.places[pos], seq|postedBit)
}

// At returns the number of the request that was last placed at a position. ok is
// false when none was. Whether it is still outstanding, End says. Any poller.
func (s *SharedRequests) At(pos uint16) (seq uint32, ok bool) {
	if int(pos) >= len(s.places) {
		return 0, false
	}
	p := atomic.LoadUint32(&s.places[pos])
	return p &^ postedBit, p != 0
}
