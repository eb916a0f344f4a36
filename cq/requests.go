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
	// What the poller looks at for every completion is on one cache line,
	// together with what it writes for every one: the poster wants to know the
	// head whenever it wants to know the rest.
	first *Slot // of the slots; see slot
	mask  uint32
	head  uint32
	seen  uint32 // the tail, as Fill saw it last, or the head
	gaps  uint32 // how many from head to tail have ended
	key   uint64 // see Key
	kind  uint64 // see Kind
	state *State // of the CQ on which these requests complete
	qpn   uint32
	depth uint32
	side  Side
	_     [7]byte

	// What the poster writes is on lines of its own: the first for every
	// request, the second for every batch. A line between keeps apart what
	// machines load in pairs. Where a queue pair ends another goroutine is the
	// poster, but the poster that was may still ask for room.
	_      [64]byte
	staged uint32 // next number to stage; tail once committed
	run    uint32 // how many staged in a row will not complete by themselves
	quiet  bool   // the device does not report the end of the last one that was committed
	_      [7]byte
	begin  *Slot // first and places are first and mask once more: the poller does not write here
	places uint32
	_      [36]byte
	tail   uint32
	_      [60]byte
}

// Slot is what the table keeps of one request. It begins as a WC does, and what
// Succeed copies of it means the same there.
type Slot struct {
	id    uint64
	bytes uint32
	// tag is the state, the opcode, and the position in the device's queue in
	// two bytes, low one first; see Place.
	tag [4]byte
}

// The states of a slot. That of nearly all requests is 0: see Slot.Expected. In the
// others, no completion must be what is expected, whatever the device says of the kind
// and the format of the entry: these are those of entries that are not software's.
const (
	slotVisible = 0    // its completion goes to the program
	slotQuiet   = 0xf0 // posted unsignalled: it shows only if it fails
	slotFree    = 0xf4 // ended
	slotSilent  = 0xf8 // the library's own: it never shows
	slotVoid    = 0xfc // was staged and taken back: what stood there before is lost
)

func (s *Slot) state() byte { return s.tag[0] }

// passes says whether the request has ended, with nothing to show, once one behind it in a
// send queue has.
func (s *Slot) passes() bool { return s.state() == slotQuiet || s.state() == slotSilent }

func (s *Slot) setState(v byte) { s.tag[0] = v }

// NewRequests makes the table of a queue that takes depth requests at a time,
// posted to the given side of QP qpn and completing on the CQ that state
// belongs to.
func NewRequests(depth uint32, side Side, qpn uint32, state *State) *Requests {
	n := uint32(1)
	for n < depth {
		n <<= 1
	}
	slots := make([]Slot, n)
	return &Requests{
		first: &slots[0], mask: n - 1, begin: &slots[0], places: n - 1, depth: depth, side: side, qpn: qpn, state: state, key: uint64(qpn) << 32, kind: uint64(side)<<48 | uint64(OpRecv)<<40,
	}
}

// Depth is how many requests the queue takes at a time.
func (r *Requests) Depth() int { return int(r.depth) }

// Room is how many more requests can be staged now. Poster's side.
func (r *Requests) Room() int {
	return int(r.depth - (atomic.LoadUint32(&r.staged) - atomic.LoadUint32(&r.head)))
}

// Stage enters a request and returns its number, and whether the device has to
// report its end. The latter is so for a quiet request when the queue would
// else fill up with requests that nobody hears of. The caller has seen Room.
// Poster's side.
func (r *Requests) Stage(id uint64, op Opcode, bytes uint32, quiet bool) (seq uint32, signal bool) {
	seq = r.staged
	s := r.slot(seq)
	s.id, s.bytes, s.tag = id, bytes, [4]byte{slotVisible, byte(op)}
	if quiet {
		s.setState(slotQuiet)
	}
	r.run, signal = r.Run(quiet)
	StoreRelease32(&r.staged, seq+1)
	return seq, signal
}

// Next is the number of the next request to be staged, and Limit the number of the
// first one that there is no room for now. Next is the poster's, Limit too: by the time
// it is known there may be more room.
func (r *Requests) Next() uint32  { return atomic.LoadUint32(&r.staged) }
func (r *Requests) Limit() uint32 { return atomic.LoadUint32(&r.head) + r.depth }

// Run is how many requests in a row will not complete by themselves once one more is
// staged, and whether the device has to report the end of that one.
func (r *Requests) Run(quiet bool) (run uint32, signal bool) {
	if run = r.run + 1; !quiet || run >= (r.depth+1)/2 {
		return 0, true
	}
	return run, false
}

// Enter is Stage and Place in one, small enough to be inlined. The tag has the position
// in its upper 16 bits, the opcode in the 8 below, and is TagQuiet or nothing in the
// lowest; run is what Run said.
func (r *Requests) Enter(id uint64, bytes, tag, run uint32) {
	s := r.next()
	s.id, s.bytes = id, bytes
	s.setTag(tag)
	r.run = run
	StoreRelease32(&r.staged, r.staged+1)
}

// TagQuiet is in the tag of a request of whose success the program will not hear.
const TagQuiet uint32 = slotQuiet

// StageSilent enters a request of the library's own, of which the program never
// hears, and returns its number. The device reports its end, so that those of the
// quiet ones before it are known. The caller has seen Room. Poster's side.
func (r *Requests) StageSilent() (seq uint32) {
	seq, _ = r.Stage(0, OpSend, 0, false)
	r.slot(seq).setState(slotSilent)
	return seq
}

// Shows says whether the program hears of the end of request seq, however it ends. It is
// not known of requests that the device may have ended. Poster's side.
func (r *Requests) Shows(seq uint32) bool { return r.slot(seq).state() == slotVisible }

// Passed says whether request seq and all before it have ended. Poller's side.
func (r *Requests) Passed(seq uint32) bool { return int32(r.head-seq) > 0 }

// Quiet says whether the last request that was committed is one whose end the device
// does not report. Nothing is staged. Poster's side.
func (r *Requests) Quiet() bool {
	return r.quiet && r.tail != atomic.LoadUint32(&r.head)
}

// Commit makes the staged requests posted ones. It comes before the device can
// see them. Poster's side.
func (r *Requests) Commit() {
	r.quiet = r.run != 0
	StoreRelease32(&r.tail, r.staged)
}

// Staged is how many requests are staged and not committed. Poster's side.
func (r *Requests) Staged() uint32 { return atomic.LoadUint32(&r.staged) - atomic.LoadUint32(&r.tail) }

// Rollback takes back the last n requests, committed or not. The caller knows
// that the device has not looked at them. Poster's side.
func (r *Requests) Rollback(n uint32) {
	for ; n > 0; n-- {
		StoreRelease32(&r.staged, r.staged-1)
		r.slot(r.staged).setState(slotVoid)
	}
	if int32(r.tail-r.staged) > 0 {
		r.quiet = true
		StoreRelease32(&r.tail, r.staged)
	}
	// The requests before these may all have been quiet: signalling one too
	// many is harmless.
	if r.run = r.depth; !r.quiet && r.staged == r.tail {
		r.run = 0
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
// result and what it does to w are as with Complete. Poller's side; it is not for
// one that goes by Front.
func (r *Requests) EndOldest(seq uint32, w *WC) (show bool) {
	s := r.slot(seq)
	show = s.state() == slotVisible
	// A composite literal would be built on the stack and copied from there
	// in wide pieces, which stalls on the narrow stores it was built with.
	*w = WC{}
	w.ID, w.QPN, w.Bytes = s.id, r.qpn, s.bytes
	w.Opcode, w.Side = s.Op(), r.side
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
	s := r.slot(seq)
	if s.state() == slotFree {
		return false, false
	}
	show = s.state() == slotVisible || status != StatusSuccess && s.state() == slotQuiet
	*w = WC{} // not a literal; see EndOldest
	w.ID, w.QPN, w.Status, w.Side = s.id, r.qpn, status, r.side
	if status == StatusSuccess {
		w.Opcode, w.Bytes = s.Op(), s.bytes
	}
	if r.side == SendSide {
		// Send queues complete in order: the quiet ones before this one
		// have succeeded. Nearly always there are no others.
		if r.gaps == 0 && r.quietTo(head, seq) {
			r.behead(seq + 1)
			return show, true
		}
		for i := head; i != seq; i++ {
			if r.slot(i).passes() {
				r.slot(i).setState(slotFree)
				r.gaps++
			}
		}
	}
	s.setState(slotFree)
	r.gaps++
	r.advance(head)
	return show, true
}

// quietTo says whether all requests from head to before seq pass in silence.
func (r *Requests) quietTo(head, seq uint32) bool {
	for head != seq && r.slot(head).passes() {
		head++
	}
	return head == seq
}

// Posted says whether request seq is outstanding: posted, and not ended. Poller's
// side.
func (r *Requests) Posted(seq uint32) bool {
	return seq-r.head < atomic.LoadUint32(&r.tail)-r.head && r.slot(seq).state() != slotFree
}

// advance moves the head over ended requests.
func (r *Requests) advance(head uint32) {
	tail := atomic.LoadUint32(&r.tail)
	for head != tail && r.slot(head).state() == slotFree {
		head++
		r.gaps--
	}
	r.behead(head)
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
		s := r.slot(head)
		switch {
		case s.state() == slotFree:
			r.gaps--
		case s.state() == slotSilent, s.state() == slotQuiet && carried:
			s.setState(slotFree)
		case n == len(wcs):
			r.behead(head)
			return n, false
		default:
			wcs[n] = WC{ID: s.id, QPN: r.qpn, Status: StatusFlushed, Side: r.side, Flags: FlagSynthetic}
			s.setState(slotFree)
			n++
		}
	}
	r.advance(head)
	return n, true
}
