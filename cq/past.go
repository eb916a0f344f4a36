package cq

import "sync/atomic"

// Past is a request as the table of its queue remembers it: until the poster uses its
// place again, also when it has ended.
type Past struct {
	Seq      uint32 // its number
	ID       uint64
	Op       Opcode
	Bytes    uint32 // that it was posted with
	Position uint16 // see Requests.Place
	// Quiet: the device does not report its end if it succeeds. Silent: it is the
	// library's own. Ended: it has ended; else it is outstanding.
	Quiet, Silent, Ended bool
}

// Recall returns what is remembered of request last, which was posted, and of at most
// n-1 before it that were posted one after another and from number begun on: oldest
// first, and nothing at all if request last itself is forgotten. Any goroutine may call
// it beside poster and poller.
func (r *Requests) Recall(last, begun uint32, n int) []Past {
	head := atomic.LoadUint32(&r.head)
	n = min(n, int(r.mask)+1, int(last-begun)+1)
	if int32(last-begun) < 0 || int32(r.Tail()-last) <= 0 {
		return nil
	}
	slots := make([]Slot, max(n, 0))
	for i := range slots {
		r.peek(&slots[i], last-uint32(len(slots)-1-i))
	}
	// The poster may have gone over the oldest meanwhile, and be at work on the
	// one after those it has staged. On every machine this comes after the copies.
	atomic.AddUint32(new(uint32), 1)
	staged := atomic.LoadUint32(&r.staged)
	var all []Past
	for i := len(slots) - 1; i >= 0; i-- {
		s, seq := &slots[i], last-uint32(len(slots)-1-i)
		if int32(staged-seq) > int32(r.mask) || s.state() == slotVoid {
			break
		}
		all = append(all, Past{
			Seq: seq, ID: s.id, Op: s.Op(), Bytes: s.bytes, Position: s.Position(),
			Quiet: s.state() == slotQuiet, Silent: s.state() == slotSilent, Ended: int32(seq-head) < 0 || s.state() == slotFree,
		})
	}
	for i, k := 0, len(all)-1; i < k; i, k = i+1, k-1 {
		all[i], all[k] = all[k], all[i]
	}
	return all
}

// Latest finds the request with an id that ended last and is remembered still, from
// number begun on. Any goroutine may call it.
func (r *Requests) Latest(id uint64, begun uint32) (p Past, ok bool) {
	all := r.Recall(r.Tail()-1, begun, int(r.mask)+1)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].ID == id && all[i].Ended && !all[i].Silent {
			return all[i], true
		}
	}
	return p, false
}

// peek copies a slot that the poster may be writing to, which the caller finds out
// afterwards: the race detector is not to mind.
//
//go:norace
func (r *Requests) peek(to *Slot, seq uint32) { *to = *r.slot(seq) }

// Where returns the position at which request seq stands, if it is outstanding or none
// was placed there since. Any goroutine may call it.
func (s *SharedRequests) Where(seq uint32) (pos uint16, ok bool) {
	for i := range s.places {
		if atomic.LoadUint32(&s.places[i]) == seq|postedBit {
			return uint16(i), true
		}
	}
	return 0, false
}
