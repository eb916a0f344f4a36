package cq

import "sync/atomic"

// SharedRequests remembers what was posted to a shared receive queue until its
// completions come. It is to such a queue what [Requests] is to a QP's own, with
// two differences: requests end in any order, and on any CQ of the queue pairs
// that take their receives from the queue, so several pollers work on it at a
// time.
//
// A request stands in a slot. Its number is the slot and, above it, how often the
// slot was used, in 31 bits. A slot goes from the poster to the pollers when its
// request is committed. The one poller that swaps its word back to zero owns it
// then, and hands it back in a list, of which the poster takes all at a time.
type SharedRequests struct {
	slots  []sharedSlot
	bits   uint // of the slot in a number
	depth  uint32
	places []uint32 // by position, the number of the request there and postedBit; see Place

	// Members are the queue pairs that take their receives from the queue.
	Members
	// Repost, if not nil, puts the request at a position in line again, which
	// the device gave back as it was: it could not use its memory yet. Set it
	// before the first request is posted. Any goroutine calls it.
	Repost func(pos uint16)

	// What the poster and the pollers write is on cache lines of their own.
	_      [64]byte
	free   []uint32 // slots that can be staged
	staged []uint32 // slots that are staged and not committed
	_      [64]byte
	ended  atomic.Uint32 // the list of slots that pollers gave back: the first, plus one
	_      [60]byte
}

type sharedSlot struct {
	id    uint64
	bytes uint32
	seq   uint32        // the number of the next request in the slot; the poster's
	next  uint32        // the slot after this one in the list of ended ones, plus one
	word  atomic.Uint32 // the number of the request that is posted, and postedBit; or 0
}

// postedBit is in the word of a slot whose request is posted. Numbers have the
// bits below it.
const postedBit = 1 << 31

// NewSharedRequests makes the table of a shared receive queue that takes depth requests
// at a time.
func NewSharedRequests(depth uint32) *SharedRequests {
	s := &SharedRequests{depth: depth, slots: make([]sharedSlot, depth), free: make([]uint32, 0, depth), staged: make([]uint32, 0, depth)}
	for uint64(1)<<s.bits < uint64(depth) {
		s.bits++
	}
	for i := depth; i > 0; i-- {
		s.slots[i-1].seq = i - 1
		s.free = append(s.free, i-1)
	}
	return s
}

// Depth is how many requests the queue takes at a time.
func (s *SharedRequests) Depth() int { return int(s.depth) }

// Room is how many more requests can be staged now. Poster's side.
func (s *SharedRequests) Room() int {
	if s.ended.Load() != 0 {
		for i := s.ended.Swap(0); i != 0; i = s.slots[i-1].next {
			s.free = append(s.free, i-1)
		}
	}
	return len(s.free)
}

// Stage enters a receive and returns its number. signal is always true: every
// receive completes; op and quiet are there for the likeness to Requests. The
// caller has seen Room. Poster's side.
func (s *SharedRequests) Stage(id uint64, op Opcode, bytes uint32, quiet bool) (seq uint32, signal bool) {
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.staged = append(s.staged, i)
	p := &s.slots[i]
	p.id, p.bytes = id, bytes
	return p.seq, true
}

// Commit makes the staged requests posted ones. It comes before the device can
// see them. Poster's side.
func (s *SharedRequests) Commit() {
	for _, i := range s.staged {
		p := &s.slots[i]
		seq := p.seq
		p.seq = (seq + 1<<s.bits) &^ postedBit
		p.word.Store(seq | postedBit)
	}
	s.staged = s.staged[:0]
}

// Staged is how many requests are staged and not committed. Poster's side.
func (s *SharedRequests) Staged() uint32 { return uint32(len(s.staged)) }

// Rollback takes back the last n requests, which were not committed. Poster's
// side.
func (s *SharedRequests) Rollback(n uint32) {
	keep := len(s.staged) - int(n)
	for i := len(s.staged) - 1; i >= keep; i-- {
		s.free = append(s.free, s.staged[i])
	}
	s.staged = s.staged[:keep]
}

// Complete ends request seq with the given status, as completion number at of
// the CQ of state says that queue pair qpn has. ok is false when no such request
// is posted, or no such queue pair takes its receives from here: the completion
// is stale or invented. Otherwise ep is the queue pair, which is nil when it was
// closed: then the program is not to hear of it. Else id, side, QPN, opcode and
// length of the request are in w.
//
// The poller of that CQ calls it; pollers of other CQs may be in it too.
func (s *SharedRequests) Complete(qpn uint32, state *State, at, seq uint32, status Status, w *WC) (ep *Endpoint, ok bool) {
	m := s.Member(qpn, state, at)
	if m == nil || !s.End(qpn, seq, status, w) {
		return nil, false
	}
	if m.closed.Load() {
		return nil, true
	}
	return m.ep, true
}

// posted is the slot that request seq would stand in, or nil if there is none.
func (s *SharedRequests) posted(seq uint32) *sharedSlot {
	i := seq & (1<<s.bits - 1)
	if seq&postedBit != 0 || i >= uint32(len(s.slots)) {
		return nil
	}
	return &s.slots[i]
}

// Posted says whether request seq is outstanding. Any poller.
func (s *SharedRequests) Posted(seq uint32) bool {
	p := s.posted(seq)
	return p != nil && p.word.Load() == seq|postedBit
}

// End ends request seq with the given status, for a poller that knows the queue
// pair that had it, qpn, by other means than Complete. ok is false when no such
// request is posted. Else id, side, QPN, opcode and length of the request are in
// w.
func (s *SharedRequests) End(qpn, seq uint32, status Status, w *WC) (ok bool) {
	p := s.posted(seq)
	if p == nil || !p.word.CompareAndSwap(seq|postedBit, 0) {
		return false
	}
	*w = WC{}
	w.ID, w.QPN, w.Status, w.Side = p.id, qpn, status, RecvSide
	if status == StatusSuccess {
		w.Opcode, w.Bytes = OpRecv, p.bytes
	}
	for {
		first := s.ended.Load()
		p.next = first
		if s.ended.CompareAndSwap(first, seq&(1<<s.bits-1)+1) {
			return true
		}
	}
}
