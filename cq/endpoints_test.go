package cq

import (
	"sync"
	"testing"
)

func TestEndpoints(t *testing.T) {
	var e Endpoints
	if e.Get(0) != nil || e.Get(MaxEndpoints) != nil || e.Get(^uint32(0)) != nil {
		t.Fatal("an empty table found something")
	}
	seen := map[uint32]*Endpoint{}
	for i := 0; i < 1000; i++ {
		n, ok := e.Reserve()
		if !ok || seen[n] != nil {
			t.Fatalf("index %d twice", n)
		}
		p := &Endpoint{QPN: n}
		seen[n] = p
		e.Set(n, p)
	}
	for n, p := range seen {
		if e.Get(n) != p {
			t.Fatalf("index %d lost", n)
		}
	}
	e.Release(500)
	if e.Get(500) != nil {
		t.Error("a released index is still found")
	}
	if n, ok := e.Reserve(); !ok || n != 500 {
		t.Errorf("got index %d, want the released 500", n)
	}
}

// Look-ups beside growth: an entry that was set is found, always.
func TestEndpointsGrowBesideGet(t *testing.T) {
	var e Endpoints
	first, _ := e.Reserve()
	want := &Endpoint{}
	e.Set(first, want)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if e.Get(first) != want {
				t.Error("lost an entry while the table grew")
				return
			}
		}
	})
	for i := 0; i < 100000; i++ {
		n, _ := e.Reserve()
		e.Set(n, &Endpoint{})
	}
	close(stop)
	wg.Wait()
}

// The table of no queue is what NewRequests makes for none.
func TestNothingIsATable(t *testing.T) {
	made := NewRequests(1, SendSide, NoQPN, nil)
	got := *nothing
	got.first, got.begin = made.first, made.begin
	if got != *made {
		t.Errorf("%+v, want %+v", got, *made)
	}
	if nothing.first != &noSlot || nothing.begin != &noSlot {
		t.Error("it has other slots than its own")
	}
}
