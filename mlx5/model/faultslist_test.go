package model

import "testing"

// Faults that are used up are no burden for the requests that follow.
func TestUsedUpFaultsGo(t *testing.T) {
	h := newHostile(t)
	d := h.m.devices[0]
	if err := h.m.Script("request: drop\nrequest 2 times=2: drop\nrequest times=forever: drop"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{2, 2, 1, 1} {
		if h.m.faults.find(func(f *Fault) bool { return f.at(AtRequest, d, 1) }) == nil || len(h.m.faults.list) != want {
			t.Errorf("request %d leaves %d faults, want %d", i+1, len(h.m.faults.list), want)
		}
	}
}
