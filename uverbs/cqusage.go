package uverbs

import (
	"runtime"

	"github.com/goverbs/goverbs/cq"
)

// CQUsage is how full a completion queue is, in completions.
type CQUsage struct {
	// Depth is CQ.Depth.
	Depth int
	// Committed is how many completions the queue pairs may have outstanding: the
	// sum of their depths. It exceeds Depth only by QPOptions.AllowOverrun.
	Committed int
	// Occupied is how many are in the ring now and were not polled; 0 after Close.
	Occupied int
	// HighWater is the most that polls have found there; 0 unless the queue was
	// made with CQOptions.Stats or CQOptions.Grow.
	HighWater int
}

// Usage says how full the queue is. Any goroutine may call it; where another one polls,
// Occupied is what it was a moment ago. It waits while the queue is being resized.
func (q *CQ) Usage() (u CQUsage) {
	m := &q.mailbox
	m.mu.Lock() // the ring may be replaced
	defer m.mu.Unlock()
	if n := unread(q.ring); q.state.Load()&cq.Closed == 0 { // else the ring may be gone, and n be anything
		u.Occupied = int(n)
	}
	if m := metered(q); m != nil {
		u.HighWater = int(m.high.Load())
	}
	runtime.KeepAlive(q) // and so the memory of a ring that is closed meanwhile
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	u.Depth, u.Committed = q.depth(), q.committed
	return u
}
