package uverbs

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"
	"weak"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// Memory that the kernel may still write to stays where it is, though the
// program has forgotten it; Device.Close, after which the kernel does not, lets
// go of it.
func TestRegisteredMemoryStays(t *testing.T) {
	r := newRig(t, false)
	r.k.Fail(func(c fakekernel.Call) error {
		if c.Method == (fakekernel.Method{Object: abi.UVERBS_OBJECT_MR, Method: abi.UVERBS_METHOD_MR_DESTROY}) {
			return syscall.ENOMEM
		}
		return nil
	})
	heap := func() weak.Pointer[byte] {
		b := make([]byte, 1<<16)
		mr, err := r.pd.Register(b, LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		if err := mr.Close(); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("close: %v", err)
		}
		return weak.Make(&b[0])
	}()
	if err := r.mr.Close(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("close: %v", err)
	}
	runtime.GC()
	if heap.Value() == nil {
		t.Error("memory was collected that the kernel has not let go of")
	}
	says(t, "close memory", r.mem.Close(), ErrInUse)
	if err := r.dev.Close(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("close device: %v", err)
	}
	r.k.Fail(nil)
	if err := r.mem.Close(); err != nil {
		t.Errorf("close memory after the device: %v", err)
	}
}

// An optional right reaches a kernel that knows such, and is left out where the
// kernel's core does not say so: it would refuse it.
func TestOptionalAccess(t *testing.T) {
	for _, test := range []struct {
		device fakekernel.Device
		want   Access
	}{
		{fakekernel.Device{Rereg: reregAccess}, LocalWrite | RelaxedOrdering},
		{fakekernel.Device{Rereg: reregAccess, NoOptionalAccess: true}, LocalWrite},
	} {
		r := newRig(t, false, test.device)
		mr, err := r.pd.Register(r.mem.Bytes(), LocalWrite|RelaxedOrdering)
		if err != nil {
			t.Fatalf("%+v: %v", test.device, err)
		}
		if mr.Access() != test.want {
			t.Errorf("%+v: access %v, want %v", test.device, mr.Access(), test.want)
		}
		if err := mr.Reregister(ChangeAccess(LocalWrite | RemoteRead | RelaxedOrdering)); err != nil {
			t.Fatalf("%+v: %v", test.device, err)
		}
		if mr.Access() != test.want|RemoteRead {
			t.Errorf("%+v: access %v, want %v", test.device, mr.Access(), test.want|RemoteRead)
		}
		// One that this library does not know, and the kernel may.
		future, err := r.pd.Register(r.mem.Bytes(), LocalWrite|1<<29)
		if err != nil {
			t.Fatalf("%+v: %v", test.device, err)
		}
		for _, mr := range []*MR{mr, future} {
			if err := mr.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	// The fake kernel does refuse it.
	r := newRig(t, false, fakekernel.Device{NoOptionalAccess: true})
	r.dev.coreSupport = uint64(abi.IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS)
	if mr, err := r.pd.Register(r.mem.Bytes(), LocalWrite|RelaxedOrdering); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an optional right for a kernel without: %v, %v", mr, err)
	}
}

// Requests with memory of a region that was closed do not reach the device, and
// a region that could not be closed stays as it was.
func TestClosedRegion(t *testing.T) {
	r := newRig(t, false)
	mr, err := r.pd.Register(r.mem.Bytes(), LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	span, key := mr.Span(0, 8), mr.LKey()
	r.k.FailAt(fakekernel.Ioctl, 1, syscall.ENOMEM)
	if err := mr.Close(); !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("close: %v", err)
	}
	if w := r.onceWritten(t, r.mr.Remote(), span); w.Status != StatusSuccess {
		t.Errorf("after a Close that failed: %+v", w)
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	if mr.Len() != r.mem.Len() || mr.LKey() != key || mr.Access() != LocalWrite || mr.PD() != r.pd {
		t.Errorf("the closed region says %d bytes, key %#x, %v", mr.Len(), mr.LKey(), mr.Access())
	}
	sq, rq := r.a.SendQueue(), r.a.RecvQueue()
	for name, test := range map[string]struct {
		post  func()
		flush func() error
	}{
		"send":              {func() { sq.Send(1, span) }, sq.Flush},
		"send of nothing":   {func() { sq.Send(1, mr.Span(0, 0)) }, sq.Flush},
		"write":             {func() { sq.WriteV(1, r.mr.Remote().At(0), []Span{r.mr.Span(0, 8), span}) }, sq.Flush},
		"read":              {func() { sq.Read(1, span, r.mr.Remote().At(0)) }, sq.Flush},
		"receive":           {func() { rq.Recv(1, span) }, rq.Flush},
		"span out of range": {func() { sq.Send(1, mr.Span(-1, 1<<20)) }, sq.Flush},
	} {
		test.post()
		says(t, name, test.flush(), os.ErrClosed, "memory region that was closed")
	}
	if sq.Room() != 16 || rq.Room() != 16 {
		t.Errorf("room for %d sends and %d receives", sq.Room(), rq.Room())
	}
}

// Requests with heap memory of which the program keeps the region alone move the
// right bytes, whatever the collector does.
func TestHeapRegion(t *testing.T) {
	r := newRig(t, false)
	const n = 300
	mr := func() *MR {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i)
		}
		mr, err := r.pd.Register(b, LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		return mr
	}()
	for range 10 {
		runtime.GC()
		for range 100 {
			junk := make([]byte, n) // of the same size class
			junk[0] = 0xee
			runtime.KeepAlive(junk)
		}
		r.a.SendQueue().Write(1, r.mr.Remote().At(0), mr.Span(0, n))
		if err := r.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		if w := wait(t, r.sendQ, 1)[0]; w.Status != StatusSuccess {
			t.Fatalf("%+v", w)
		}
		for i, c := range r.mem.Bytes()[:n] {
			if c != byte(i) {
				t.Fatalf("byte %d is %#x", i, c)
			}
		}
		clear(r.mem.Bytes()[:n])
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
}
