package cq

import "sync/atomic"

// Requests remembers what was posted to one send or receive queue until its
// completion comes, so that a completion can be told from a stale or invented
// one, and so that ID and Side hold on failed completions too.
//
// Requests are numbered from 0 on, modulo 2^32. Posted requests are those from
// head to tail; only the poster moves the tail and only the poller moves the
// head.
type Requests struct {
	slots []slot
	mask  uint32
	depth uint32
	side  Side
	qpn   uint32
	state *State // of the CQ on which these requests complete

	// What one side writes is on a cache line that the other leaves alone:
	// the poller reads the fields above for every completion, the poster
	// writes those below for every request.
	_          [64]byte
	staged     uint32 // next number to stage; tail once committed
	unsignaled uint32 // how many staged in a row will not complete by themselves
	_          [56]byte
	tail       uint32
	_          [60]byte
	head       uint32
	gaps       uint32 // how many from head to tail have ended; poller's side
	_          [56]byte
}

type slot struct {
	id    uint64
	bytes uint32
	op    Opcode
	state slotState
	pos   uint16 // in the device's queue; see Place
}

type slotState uint8

const (
	slotFree    slotState = iota // ended, or never used
	slotVisible                  // its completion goes to the program
	slotQuiet                    // posted unsignalled: it shows only if it fails
)

// NewRequests makes the table of a queue that takes depth requests at a time,
// posted to the given side of QP qpn and completing on the CQ that state
// belongs to.
func NewRequests(depth uint32, side Side, qpn uint32, state *State) *Requests {
	n := uint32(1)
	for n < depth {
		n <<= 1
	}
	return &Requests{slots: make([]slot, n), mask: n - 1, depth: depth, side: side, qpn: qpn, state: state}
}

// Depth is how many requests the queue takes at a time.
func (r *Requests) Depth() int { return int(r.depth) }

// Room is how many more requests can be staged now. Poster's side.
func (r *Requests) Room() int {
	return int(r.depth - (r.staged - atomic.LoadUint32(&r.head)))
}

// Stage enters a request and returns its number, and whether the device has to
// report its end. The latter is so for a quiet request when the queue would
// else fill up with requests that nobody hears of. The caller has seen Room.
// Poster's side.
func (r *Requests) Stage(id uint64, op Opcode, bytes uint32, quiet bool) (seq uint32, signal bool) {
	seq = r.staged
	s := &r.slots[seq&r.mask]
	s.id, s.bytes, s.op = id, bytes, op
	s.state, signal = slotVisible, true
	if quiet {
		s.state = slotQuiet
		r.unsignaled++
		signal = r.unsignaled >= (r.depth+1)/2
	}
	if signal {
		r.unsignaled = 0
	}
	r.staged = seq + 1
	return seq, signal
}

// Commit makes the staged requests posted ones. It comes before the device can
// see them. Poster's side.
func (r *Requests) Commit() { StoreRelease32(&r.tail, r.staged) }

// Staged is how many requests are staged and not committed. Poster's side.
func (r *Requests) Staged() uint32 { return r.staged - r.tail }

// Rollback takes back the last n requests, committed or not. The caller knows
// that the device has not looked at them. Poster's side.
func (r *Requests) Rollback(n uint32) {
	for ; n > 0; n-- {
		r.staged--
		r.slots[r.staged&r.mask].state = slotFree
	}
	// The requests before these may all have been quiet: signalling one too
	// many is harmless.
	r.unsignaled = r.depth
	if int32(r.tail-r.staged) > 0 {
		StoreRelease32(&r.tail, r.staged)
	}
}

// Oldest says whether request seq is the oldest one outstanding, and none after
// it has ended, as is so for nearly all completions. If that request succeeded,
// EndOldest does what Complete does; both are small enough to be inlined into a
// loop over completions. Poller's side.
func (r *Requests) Oldest(seq uint32) bool {
	// One expression, so that it is one branch where it is inlined. The
	// shift yields 1 for tail == seq: then nothing is outstanding.
	tail := atomic.LoadUint32(&r.tail)
	return (seq^r.head)|(tail-seq-1)>>31|r.gaps == 0
}

// EndOldest ends request seq, for which Oldest just was true, with success. Its
// result and what it does to w are as with Complete. Poller's side.
func (r *Requests) EndOldest(seq uint32, w *WC) (show bool) {
	s := &r.slots[seq&r.mask]
	show = s.state == slotVisible
	// A composite literal would be built on the stack and copied from there
	// in wide pieces, which stalls on the narrow stores it was built with.
	*w = WC{}
	w.ID, w.QPN, w.Bytes = s.id, r.qpn, s.bytes
	w.Opcode, w.Side = s.op, r.side
	s.state = slotFree
	StoreRelease32(&r.head, seq+1)
	return show
}

// Complete ends request seq with the given status. ok is false when no such
// request is outstanding: the completion is stale or invented. show is false
// when the program asked not to hear of it. On true, id, side, QPN, opcode and
// length of the request are in w. Poller's side.
func (r *Requests) Complete(seq uint32, status Status, w *WC) (show, ok bool) {
	head := r.head
	if seq-head >= atomic.LoadUint32(&r.tail)-head {
		return false, false
	}
	s := &r.slots[seq&r.mask]
	if s.state == slotFree {
		return false, false
	}
	show = s.state == slotVisible || status != StatusSuccess
	*w = WC{} // not a literal; see EndOldest
	w.ID, w.QPN, w.Status, w.Side = s.id, r.qpn, status, r.side
	if status == StatusSuccess {
		w.Opcode, w.Bytes = s.op, s.bytes
	}
	s.state = slotFree
	r.gaps++
	if r.side == SendSide {
		// Send queues complete in order: the quiet ones before this one
		// have succeeded.
		for i := head; i != seq; i++ {
			if p := &r.slots[i&r.mask]; p.state == slotQuiet {
				p.state = slotFree
				r.gaps++
			}
		}
	}
	r.advance(head)
	return show, true
}

// Posted says whether request seq is outstanding: posted, and not ended. Poller's
// side.
func (r *Requests) Posted(seq uint32) bool {
	return seq-r.head < atomic.LoadUint32(&r.tail)-r.head && r.slots[seq&r.mask].state != slotFree
}

// advance moves the head over ended requests.
func (r *Requests) advance(head uint32) {
	tail := atomic.LoadUint32(&r.tail)
	for head != tail && r.slots[head&r.mask].state == slotFree {
		head++
		r.gaps--
	}
	StoreRelease32(&r.head, head)
}

// Idle says whether every posted request has ended. Any goroutine may call it.
func (r *Requests) Idle() bool { return r.Vacant() == int(r.depth) }

// Vacant is how many more requests could be posted if none were staged. Any
// goroutine may call it.
func (r *Requests) Vacant() int {
	// The head comes first: it only grows, and never past the tail, so what
	// a late tail shows is at most too little room.
	head := atomic.LoadUint32(&r.head)
	return int(r.depth - (atomic.LoadUint32(&r.tail) - head))
}

// Outstanding is how many posted requests have not ended. Poller's side.
func (r *Requests) Outstanding() uint32 { return atomic.LoadUint32(&r.tail) - r.head }

// Tail is the number of the next request to be posted. Any goroutine may call it.
func (r *Requests) Tail() uint32 { return atomic.LoadUint32(&r.tail) }

// Abandon ends at most len(wcs) of the outstanding requests before number until,
// oldest first, as flushed and synthetic: the device will not end them. Quiet ones
// end without a completion if carried: the device has carried out all that it did
// not report otherwise. It returns how many it wrote and whether none is left.
// Poller's side.
func (r *Requests) Abandon(wcs []WC, until uint32, carried bool) (n int, done bool) {
	head, tail := r.head, atomic.LoadUint32(&r.tail)
	for ; head != tail && int32(until-head) > 0; head++ {
		s := &r.slots[head&r.mask]
		switch {
		case s.state == slotFree:
			r.gaps--
		case s.state == slotQuiet && carried:
			s.state = slotFree
		case n == len(wcs):
			StoreRelease32(&r.head, head)
			return n, false
		default:
			wcs[n] = WC{ID: s.id, QPN: r.qpn, Status: StatusFlushed, Side: r.side, Flags: FlagSynthetic}
			s.state = slotFree
			n++
		}
	}
	r.advance(head)
	return n, true
}
