package cq

import "testing"

// A poller that is inside Poll while its queue is closed reads pages that nobody wrote:
// what it makes of them is no completion that went astray.
func TestDroppedOfAClosedQueue(t *testing.T) {
	var s State
	s.Dropped(false)
	s.Dropped(true)
	s.Set(Closed)
	s.Dropped(false)
	s.Dropped(true)
	if s.Stray.Load() != 1 || s.Late.Load() != 1 {
		t.Errorf("stray %d, late %d; want 1 and 1", s.Stray.Load(), s.Late.Load())
	}
}
