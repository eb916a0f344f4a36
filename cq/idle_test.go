package cq

import "testing"

func TestSharedIdle(t *testing.T) {
	s := NewSharedRequests(3)
	var numbers []uint32
	for range 2 {
		seq, _ := s.Stage(1, OpRecv, 8, false)
		numbers = append(numbers, seq)
	}
	if !s.Idle() {
		t.Error("busy with what is staged only")
	}
	s.Commit()
	var w WC
	for _, seq := range numbers {
		if s.Idle() {
			t.Errorf("idle before request %d has ended", seq)
		}
		s.End(7, seq, StatusSuccess, &w)
	}
	if !s.Idle() {
		t.Error("busy when all have ended")
	}
}
