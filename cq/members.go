package cq

import (
	"sync"
	"sync/atomic"
)

// Members finds a queue pair by its number and by when a completion that names it
// was added: the kernel gives a number out again while completions of the queue
// pair that had it before may be in a ring. The zero value is empty. Look-ups take
// no lock.
type Members struct {
	mu      sync.Mutex // serialises changes
	members atomic.Pointer[[]*Member]
}

// A Member is a queue pair that takes its receives from a shared queue, or is
// found by its number.
type Member struct {
	ep     *Endpoint
	state  *State // of the CQ on which it completes
	since  uint32
	closed atomic.Bool
}

// Join makes a queue pair a member. It completes on the CQ that state belongs to,
// on which so many completions were added so far: see [CompletionRing.Produced].
// The queue pair can send and receive only afterwards. One whose two sides
// complete on different CQs joins once for each. Any goroutine.
func (t *Members) Join(ep *Endpoint, state *State, produced uint32) *Member {
	m := &Member{ep: ep, state: state, since: produced}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.load()
	// Sorted by QPN, and of one QPN the newest last.
	at := len(old)
	for at > 0 && old[at-1].ep.QPN > ep.QPN {
		at--
	}
	members := make([]*Member, 0, len(old)+1)
	members = append(append(append(members, old[:at]...), m), old[at:]...)
	t.members.Store(&members)
	return m
}

func (t *Members) load() []*Member {
	if p := t.members.Load(); p != nil {
		return *p
	}
	return nil
}

// Close marks a member as the tombstone of a queue pair that is gone: requests
// that still complete on it end unheard of. Any goroutine.
func (m *Member) Close() { m.closed.Store(true) }

// Closed says whether Close was called. Any goroutine.
func (m *Member) Closed() bool { return m.closed.Load() }

// Endpoint is the queue pair that the member is.
func (m *Member) Endpoint() *Endpoint { return m.ep }

// Remove takes out a closed member. No completion that names it may be left in
// its CQ. Any goroutine.
func (t *Members) Remove(m *Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.load()
	members := make([]*Member, 0, len(old))
	for _, o := range old {
		if o != m {
			members = append(members, o)
		}
	}
	t.members.Store(&members)
}

// Member finds whom completion number at, counted as CompletionRing.Produced
// does, on the CQ of state belongs to, from its QPN; nil if nobody. A QPN may have
// been used again: what was added to the CQ before a queue pair was made is not
// its own. Any goroutine.
func (t *Members) Member(qpn uint32, state *State, at uint32) (found *Member) {
	all := t.load()
	i, n := 0, len(all)
	for i < n {
		if h := int(uint(i+n) >> 1); all[h].ep.QPN < qpn {
			i = h + 1
		} else {
			n = h
		}
	}
	for ; i < len(all) && all[i].ep.QPN == qpn; i++ {
		m := all[i]
		// The oldest takes what no other does: its beginning may be so long
		// ago that the numbers have wrapped.
		if m.state == state && (found == nil || int32(at-m.since) >= 0) {
			found = m
		}
	}
	return found
}
