package cq

import (
	"slices"
	"sync/atomic"
)

// SharedRequests remembers what was posted to a shared receive queue until its
// completions come. It is to such a queue what [Requests] is to a QP's own, with
// two differences: requests end in any order, and on any CQ of the queue pairs
// that take their receives from the queue, so several pollers work on it at a
// time.
//
// A request stands in a slot. Its number is the slot in sharedBits bits and, above
// it, how often the slot was used, 31 bits in all. A slot goes from the poster to
// the pollers when its request is committed. The one poller that swaps its word
// back to zero owns it then, and hands it back in a list, of which the poster takes
// all at a time.
//
// Slots never move and numbers never change their form, whatever becomes of the
// depth: pollers may be at work on requests that are older than it.
type SharedRequests struct {
	blocks atomic.Pointer[[]*sharedBlock] // of slots
	depth  atomic.Uint32                  // the poster writes it
	places []uint32                       // by position, the number of the request there and postedBit; see Place

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
	spare  []uint32 // slots that no request may stand in while the depth is what it is
	made   uint32   // how many slots there are
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

// sharedBlock is so many slots that are made together.
type sharedBlock [64]sharedSlot

const (
	// postedBit is in the word of a slot whose request is posted. Numbers have
	// the bits below it.
	postedBit = 1 << 31

	sharedBits = 20
	// MaxSharedDepth is how many requests a shared receive queue can take at a
	// time.
	MaxSharedDepth = 1 << sharedBits
)

// NewSharedRequests makes the table of a shared receive queue that takes depth requests
// at a time, MaxSharedDepth at most.
func NewSharedRequests(depth uint32) *SharedRequests {
	s := &SharedRequests{}
	s.blocks.Store(new([]*sharedBlock))
	s.grow(depth)
	return s
}

// slot is a slot that was made.
func (s *SharedRequests) slot(i uint32) *sharedSlot {
	const n = uint32(len(sharedBlock{}))
	return &(*s.blocks.Load())[i/n][i%n]
}

// grow makes the depth a greater one. Poster's side.
func (s *SharedRequests) grow(depth uint32) {
	n := depth - s.depth.Load()
	// Neither list may grow where requests are posted and ended.
	s.free, s.staged = slices.Grow(s.free, int(depth)-len(s.free)), slices.Grow(s.staged, int(depth)-len(s.staged))
	back := min(n, uint32(len(s.spare)))
	s.free = append(s.free, s.spare[uint32(len(s.spare))-back:]...)
	s.spare = s.spare[:uint32(len(s.spare))-back]
	blocks := slices.Clone(*s.blocks.Load())
	for n -= back; uint32(len(blocks)*len(sharedBlock{})) < s.made+n; {
		blocks = append(blocks, new(sharedBlock))
	}
	s.blocks.Store(&blocks)
	first := s.made
	s.made += n
	for i := s.made; i > first; i-- { // the first is the next to be used
		s.slot(i - 1).seq = i - 1
		s.free = append(s.free, i-1)
	}
	s.depth.Store(depth)
}

// Resize changes how many requests the queue takes at a time. Those that are staged
// or posted stay what they are. It does nothing and returns false when they are more
// than depth. Poster's side.
func (s *SharedRequests) Resize(depth uint32) bool {
	was := s.depth.Load()
	switch room := uint32(s.Room()); {
	case depth < was-room:
		return false
	case depth > was:
		s.grow(depth)
	default:
		keep := room - (was - depth)
		s.spare = append(s.spare, s.free[keep:]...)
		s.free = s.free[:keep]
		s.depth.Store(depth)
	}
	return true
}

// Depth is how many requests the queue takes at a time. Any goroutine may call it.
func (s *SharedRequests) Depth() int { return int(s.depth.Load()) }

// Room is how many more requests can be staged now. Poster's side.
func (s *SharedRequests) Room() int {
	if s.ended.Load() != 0 {
		for i := s.ended.Swap(0); i != 0; i = s.slot(i - 1).next {
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
	p := s.slot(i)
	p.id, p.bytes = id, bytes
	return p.seq, true
}

// Commit makes the staged requests posted ones. It comes before the device can
// see them. Poster's side.
func (s *SharedRequests) Commit() {
	for _, i := range s.staged {
		p := s.slot(i)
		seq := p.seq
		p.seq = (seq + 1<<sharedBits) &^ postedBit
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
	i := seq & (1<<sharedBits - 1)
	const n = uint32(len(sharedBlock{}))
	blocks := *s.blocks.Load()
	if seq&postedBit != 0 || i/n >= uint32(len(blocks)) {
		return nil
	}
	return &blocks[i/n][i%n]
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
		if s.ended.CompareAndSwap(first, seq&(1<<sharedBits-1)+1) {
			return true
		}
	}
}

// Abandon ends at most len(wcs) of the posted requests, from slot next on, as flushed
// and synthetic, and of no queue pair: the device will not end them. It returns how many
// it wrote, where to go on, and whether none is left. Nobody posts any more. Any poller.
func (s *SharedRequests) Abandon(wcs []WC, next uint32) (n int, after uint32, done bool) {
	for made := uint32(len(*s.blocks.Load()) * len(sharedBlock{})); next < made; next++ {
		word := s.slot(next).word.Load()
		if word&postedBit == 0 {
			continue
		}
		if n == len(wcs) {
			return n, next, false
		}
		if s.End(NoQPN, word&^postedBit, StatusFlushed, &wcs[n]) {
			wcs[n].Flags |= FlagSynthetic
			n++
		}
	}
	return n, next, true
}
