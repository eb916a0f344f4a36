package uverbs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

func TestTraceIsOffAndOn(t *testing.T) {
	for value, on := range map[string]bool{"": false, "ioctl": true, "x, ioctl": true, "ioctls": false} {
		t.Setenv("GOVERBS_DEBUG", value)
		if got := newTracer() != nil; got != on {
			t.Errorf("GOVERBS_DEBUG=%q: trace %v, want %v", value, got, on)
		}
	}
}

// A trace names methods, attributes and commands, shows what came back, and
// reads nothing but the request's own memory.
func TestTrace(t *testing.T) {
	var out bytes.Buffer
	r := &rig{k: fakekernel.New(fakekernel.Device{})}
	var err error
	if r.dev, err = on(r.k).open("rxe0", nil); err != nil {
		t.Fatal(err)
	}
	defer func() { r.close(t); r.clean(t) }()
	r.dev.trace = &tracer{w: &out}
	if _, err := r.dev.NewCQ(7, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dev.NewPD(); err != nil {
		t.Fatal(err)
	}
	r.dev.vectors = 99 // so that the kernel refuses the next one
	if _, err := r.dev.NewCQ(7, &CQOptions{Vector: 50}); err == nil {
		t.Error("vector 50 was accepted")
	}
	for _, part := range []string{"CQ_CREATE", "CREATE_CQ_CQE", "RDMA_DRIVER_RXE", "ALLOC_PD", "-> ok", "-> EINVAL"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the trace lacks %q:\n%s", part, &out)
		}
	}
	m := requestMemory{newRequest(14, 0, 0)}
	for _, addr := range []uint64{0, 1, ^uint64(0), address(m.r.buf) - 1, address(m.r.buf) + 25} {
		if err := m.Read(addr, make([]byte, 8)); err == nil {
			t.Errorf("read of %#x, outside of the request", addr)
		}
	}
	if err := m.Write(address(m.r.buf), []byte{1}); err == nil {
		t.Error("the trace may write")
	}
}
