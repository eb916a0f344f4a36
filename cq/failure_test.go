package cq

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// newFailing makes a queue pair with so many requests posted on each side.
func newFailing(posted int) *Endpoint {
	state := new(State)
	e := &Endpoint{QPN: 17, Send: NewRequests(32, SendSide, 17, state), Recv: NewRequests(32, RecvSide, 17, state), Failures: new(Failures)}
	e.Failures.Begin(e.Send, e.Recv)
	for i := range posted {
		e.Send.Stage(100+uint64(i), OpWrite, uint32(i), i%2 == 1)
		e.Recv.Stage(200+uint64(i), OpRecv, 8, false)
	}
	e.Send.Commit()
	e.Recv.Commit()
	return e
}

// Of all completions the first one that failed by itself is remembered.
func TestFirstFailure(t *testing.T) {
	e := newFailing(8)
	f := e.Failures
	var w WC
	none := func(when string) {
		t.Helper()
		if first, ok := f.First(); ok {
			t.Errorf("%s: %+v", when, first)
		}
	}
	none("at first")
	if show, ok := e.Fail(e.Recv, 0, StatusFlushed, 0xf9, &w); !show || !ok || w != (WC{ID: 200, QPN: 17, Side: RecvSide, Status: StatusFlushed, VendorErr: 0xf9}) {
		t.Errorf("%v, %v, %+v", show, ok, w)
	}
	none("after a flush")
	// What is stale or invented fails nobody.
	for _, seq := range []uint32{8, 1 << 31, ^uint32(0)} {
		if _, ok := e.Fail(e.Send, seq, StatusRemoteAccess, 1, &w); ok {
			t.Errorf("request %d ended", seq)
		}
	}
	if _, ok := e.Fail(e.Recv, 0, StatusLocalAccess, 1, &w); ok {
		t.Error("a request ended twice")
	}
	none("after nobody's")
	before := time.Now()
	want := WC{ID: 103, QPN: 17, Side: SendSide, Status: StatusRemoteAccess, VendorErr: 0x88}
	if show, ok := e.Fail(e.Send, 3, StatusRemoteAccess, 0x88, &w); !show || !ok || w != want {
		t.Errorf("%v, %v, %+v", show, ok, w)
	}
	e.Fail(e.Send, 4, StatusFlushed, 0xf9, &w)
	e.Fail(e.Recv, 1, StatusLocalLength, 0xd4, &w)
	e.Fail(nil, 0, StatusGeneral, 3, &WC{ID: 9, Status: StatusGeneral})
	first, ok := f.First()
	if !ok || first.WC != want || first.Op != OpWrite || first.Bytes != 3 || first.Seq != 3 || first.Shared || first.At.Before(before) || time.Since(first.At) > time.Since(before) {
		t.Errorf("%v, %+v", ok, first)
	}
	f.Begin(e.Send, e.Recv)
	none("after the reset")
	// A receive of a shared queue has ended when it comes here.
	w = WC{ID: 9, QPN: 17, Side: RecvSide, Status: StatusLocalLength}
	e.Fail(nil, 5, StatusLocalLength, 0xd4, &w)
	want = WC{ID: 9, QPN: 17, Side: RecvSide, Status: StatusLocalLength, VendorErr: 0xd4}
	if first, ok := f.First(); !ok || first.WC != want || first.Op != OpRecv || !first.Shared || w != want {
		t.Errorf("%v, %+v, %+v", ok, first, w)
	}
}

// Requests of the library's own are no failures of the program's.
func TestSilentFailure(t *testing.T) {
	e := newFailing(0)
	seq := e.Send.StageSilent()
	e.Send.Commit()
	var w WC
	if show, ok := e.Fail(e.Send, seq, StatusLocalQPOperation, 1, &w); show || !ok {
		t.Errorf("%v, %v", show, ok)
	}
	if first, ok := e.Failures.First(); ok {
		t.Errorf("%+v", first)
	}
	// And an Endpoint need not remember at all.
	e.Failures = nil
	seq, _ = e.Send.Stage(1, OpSend, 1, false)
	e.Send.Commit()
	if show, ok := e.Fail(e.Send, seq, StatusFatal, 1, &w); !show || !ok || w.ID != 1 || w.VendorErr != 1 {
		t.Errorf("%v, %v, %+v", show, ok, w)
	}
}

// Both sides fail at once, each with its own poller, while somebody asks, and begins
// anew once all have ended: what is remembered is whole, and of the life that is.
func TestFailuresBesidePollers(t *testing.T) {
	for range 300 {
		e := newFailing(1)
		f := e.Failures
		var all sync.WaitGroup
		for _, side := range []Side{SendSide, RecvSide} {
			all.Go(func() {
				var w WC
				e.Fail(e.Side(side), 0, StatusFatal+Status(side), uint32(side), &w)
			})
		}
		all.Go(func() {
			for ; !e.Send.Idle() || !e.Recv.Idle(); runtime.Gosched() {
				if first, ok := f.First(); ok {
					if s := first.WC.Side; first.WC.Status != StatusFatal+Status(s) || first.WC.VendorErr != uint32(s) || first.WC.ID != 100+100*uint64(s) {
						t.Errorf("%+v", first)
					}
				}
			}
			f.Begin(e.Send, e.Recv)
			if first, ok := f.First(); ok {
				t.Errorf("after Begin: %+v", first)
			}
		})
		all.Wait()
		if first, ok := f.First(); ok {
			t.Errorf("from before Begin: %+v", first)
		}
	}
}
