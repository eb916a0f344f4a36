//go:build amd64 || arm64

package simproc

import (
	"bytes"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

// openContext has a file of a device answer the first two requests of a program.
func openContext(t *testing.T, f *model.File) {
	t.Helper()
	b, at := region(t)
	put := func(off int, p []byte) uint64 {
		copy(b[off:], p)
		return at + uint64(off)
	}
	in := abi.MLX5IBAllocUcontextReqV2{TotalNumBfregs: 16, NumLowLatencyBfregs: 4, MaxCQEVersion: 1, LibCaps: uint64(abi.MLX5_LIB_CAP_DYN_UAR)}
	call := func(object, method uint16, attrs ...abi.UverbsAttr) {
		t.Helper()
		h := abi.UverbsIoctlHdr{ObjectID: object, MethodID: method, NumAttrs: uint16(len(attrs)), DriverID: uint32(abi.RDMA_DRIVER_MLX5)}
		h.Length = uint16(abi.SizeofUverbsIoctlHdr + len(attrs)*abi.SizeofUverbsAttr)
		copy(b, h.Bytes())
		for i := range attrs {
			copy(b[abi.SizeofUverbsIoctlHdr+i*abi.SizeofUverbsAttr:], attrs[i].Bytes())
		}
		if err := f.IoctlAt(at); err != nil {
			t.Fatal(err)
		}
	}
	const mandatory = uint16(abi.UVERBS_ATTR_F_MANDATORY)
	call(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT,
		abi.UverbsAttr{AttrID: abi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, Len: 4, Flags: mandatory, Data: put(1000, make([]byte, 4))},
		abi.UverbsAttr{AttrID: abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, Len: 8, Flags: mandatory, Data: put(1008, make([]byte, 8))},
		abi.UverbsAttr{AttrID: abi.UVERBS_ATTR_UHW_IN, Len: abi.SizeofMLX5IBAllocUcontextReqV2, Flags: mandatory, Data: put(1100, in.Bytes())},
		abi.UverbsAttr{AttrID: abi.UVERBS_ATTR_UHW_OUT, Len: abi.SizeofMLX5IBAllocUcontextResp, Flags: mandatory, Data: put(1200, make([]byte, abi.SizeofMLX5IBAllocUcontextResp))})
	call(abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC,
		abi.UverbsAttr{AttrID: abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, Flags: mandatory})
}

// region is a page and its address, with nothing behind it.
func region(t *testing.T) ([]byte, uint64) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, 2*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	if err := unix.Mprotect(b[pageSize:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return b[:pageSize], address(b)
}

func TestMemory(t *testing.T) {
	b, at := region(t)
	var denied atomic.Bool
	m := &memory{pid: os.Getpid(), denied: &denied}
	if err := m.Write(at+1, []byte("abcd")); err != nil || !bytes.Equal(b[:6], []byte("\x00abcd\x00")) {
		t.Errorf("Write: %v, % x", err, b[:6])
	}
	var p [4]byte
	if err := m.Read(at+1, p[:]); err != nil || string(p[:]) != "abcd" {
		t.Errorf("Read: %v, %q", err, p)
	}
	if v, err := m.Load32(at); err != nil || v != 0x00616263 {
		t.Errorf("Load32: %v, %#x", err, v)
	}
	if err := m.Publish(at+64, []byte("entry")); err != nil || string(b[64:69]) != "entry" {
		t.Errorf("Publish: %v, %q", err, b[64:69])
	}
	if m.Write(at, nil) != nil || m.Read(1, nil) != nil {
		t.Error("nothing cannot be copied")
	}
	// Half of it is not there.
	end := at + pageSize - 2
	_, load := m.Load32(end)
	for what, err := range map[string]error{"Write": m.Write(end, p[:]), "Read": m.Read(end, p[:]), "Publish": m.Publish(end, p[:]), "Load32": load, "short": m.Publish(at, p[:1])} {
		if err != request.EFAULT {
			t.Errorf("%s: %v", what, err)
		}
	}
	if denied.Load() {
		t.Error("memory that is not there counts as refused")
	}
	// The clock is ours.
	m.clock = make([]byte, 64)
	if err := m.Write(clockAt+8, []byte("tick")); err != nil || string(m.clock[8:12]) != "tick" {
		t.Errorf("the clock: %v, %q", err, m.clock[8:12])
	}
	if err := m.Write(clockAt+1, []byte("tock")); err != nil || string(m.clock[1:5]) != "tock" {
		t.Errorf("the clock: %v, %q", err, m.clock[1:5])
	}
	if err := m.Write(clockAt+62, []byte("tick")); err != request.EFAULT {
		t.Errorf("behind the clock: %v", err)
	}
}

// What is written to a process that has ended is written to nobody, as on a card, and that is no
// error. Reading it is.
func TestMemoryOfTheDead(t *testing.T) {
	c := exec.Command("true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	// It stays a zombie, so that its number is nobody else's.
	for {
		if err := unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err == nil {
			break
		} else if err != unix.EINTR {
			t.Fatal(err)
		}
	}
	_, at := region(t)
	var denied atomic.Bool
	m := &memory{pid: c.Process.Pid, denied: &denied}
	p := make([]byte, 64)
	if err := m.Write(at, p); err != nil {
		t.Errorf("Write: %v", err)
	}
	if err := m.Publish(at, p); err != nil {
		t.Errorf("Publish: %v", err)
	}
	if err := m.Read(at, p); err != request.EFAULT {
		t.Errorf("Read: %v", err)
	}
	if denied.Load() {
		t.Error("a process that has ended counts as one that refuses")
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}
