package uverbs

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// Posting and polling allocate nothing.
func TestHotPathAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("declared skip: the race detector itself allocates")
	}
	r := newRig(t, true)
	sq, rq := r.a.SendQueue(), r.b.RecvQueue()
	wcs := make([]WC, 16)
	spans := []Span{r.mr.Span(0, 8), r.mr.Span(8, 8)}
	data := []byte("inline")
	o := newOpsRig(t, RC, fakekernel.Device{Linux62: true})
	ops := o.a.SendQueue()
	mw, err := o.pd.NewMW()
	if err != nil {
		t.Fatal(err)
	}
	// What the fake kernel allocates in a doorbell is not ours, so staging
	// and polling are measured around it.
	for name, stage := range map[string]func(){
		"send":         func() { sq.Send(1, r.mr.Span(0, 8), Unsignaled, Fence) },
		"send spans":   func() { sq.SendV(1, spans, Unsignaled) },
		"send inline":  func() { sq.SendInline(1, data, Unsignaled) },
		"write":        func() { sq.Write(1, r.peer.Regions[0].At(8), r.mr.Span(0, 8), Unsignaled) },
		"read":         func() { sq.Read(1, r.mr.Span(0, 8), r.peer.Regions[0].At(8), Unsignaled) },
		"receive":      func() { rq.RecvV(1, spans) },
		"swap":         func() { ops.CompareSwap(1, o.mr.Span(0, 8), o.peer.Regions[0].At(8), 1, 2, Unsignaled) },
		"add":          func() { ops.FetchAdd(1, o.mr.Span(0, 8), o.peer.Regions[0].At(8), 1, Unsignaled) },
		"invalidate":   func() { ops.SendInvalidate(1, 2, o.mr.Span(0, 8), Unsignaled) },
		"bind":         func() { ops.BindMW(1, mw, o.mr.Span(0, 8), RemoteRead, Unsignaled); ops.LocalInvalidate(2, mw) },
		"flush":        func() { ops.RemoteFlush(1, o.peer.Regions[0].At(8), 8, FlushGlobal, Unsignaled) },
		"atomic write": func() { ops.AtomicWrite(1, o.peer.Regions[0].At(8), 8, Unsignaled) },
	} {
		if n := testing.AllocsPerRun(100, func() {
			stage()
			if sq.err != nil || ops.err != nil {
				t.Fatal(sq.err, ops.err)
			}
			sq.takeBack(sq.requests.Staged())
			ops.takeBack(ops.requests.Staged())
			rq.ring.Rollback(rq.requests.Staged())
			rq.requests.Rollback(rq.requests.Staged())
		}); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		if n, err := r.sendQ.Poll(wcs); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("an empty poll allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := sq.Flush(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("an empty flush allocates %v times", n)
	}
	if n := testing.AllocsPerRun(10, func() {
		rq.Recv(1, r.mr.Span(0, 8))
		if err := rq.Flush(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a receive allocates %v times", n)
	}
	// The whole of Flush, with a doorbell that the kernel refuses before it
	// does anything.
	for _, noWrite := range []bool{false, true} {
		r.dev.noWrite.Store(noWrite)
		b := r.a.sq.bell
		if n := testing.AllocsPerRun(100, func() {
			b.ioctl.rearm()
		}); n != 0 {
			t.Errorf("preparing a doorbell allocates %v times", n)
		}
	}
}

// BenchmarkPost measures staging and publishing one write, without its
// doorbell, which is a system call.
func BenchmarkPost(b *testing.B) {
	r := newRig(b, false)
	sq := r.a.SendQueue()
	b.ReportAllocs()
	for b.Loop() {
		sq.Write(1, r.peer.Regions[0].At(8), r.mr.Span(0, 8), Unsignaled)
		sq.ring.Publish()
		sq.takeBack(1)
	}
}

// BenchmarkEmptyPoll measures a poll that finds nothing.
func BenchmarkEmptyPoll(b *testing.B) {
	r := newRig(b, false)
	wcs := make([]WC, 16)
	b.ReportAllocs()
	for b.Loop() {
		r.sendQ.Poll(wcs)
	}
}

// A waiter that wakes without an event asks which errno it got, and allocates nothing.
func TestErrnoAllocatesNothing(t *testing.T) {
	errs := []error{syscall.EAGAIN, syscall.EINVAL, nil}
	if n := testing.AllocsPerRun(100, func() {
		if !isErrno(errs[0], syscall.EINTR, syscall.EAGAIN) || isErrno(errs[1], syscall.EAGAIN) || isErrno(errs[2], syscall.EAGAIN) {
			t.Error("taken for another")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if wrapped := fmt.Errorf("it says %w", syscall.EAGAIN); !isErrno(wrapped, syscall.EAGAIN) || isErrno(wrapped, syscall.EINTR) {
		t.Errorf("%v", wrapped)
	}
}
