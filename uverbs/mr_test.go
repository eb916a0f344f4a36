package uverbs

import (
	"errors"
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
