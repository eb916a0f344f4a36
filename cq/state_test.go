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

// Failures are noted for who counts, and nobody is called otherwise.
func TestFailed(t *testing.T) {
	var s State
	s.Failed(StatusFlushed)
	if s.Load() != 0 {
		t.Errorf("state %b where nobody counts", s.Load())
	}
	s.Failures = make([]uint32, 8)
	s.Set(Metered)
	for _, status := range []Status{StatusFlushed, StatusFlushed, 7, 8, 1<<32 - 1} {
		s.Failed(status)
	}
	if s.Load() != Metered|Look {
		t.Errorf("state %b", s.Load())
	}
	if s.Failures[StatusFlushed] != 2 || s.Failures[7] != 3 {
		t.Errorf("noted %v", s.Failures)
	}
}
