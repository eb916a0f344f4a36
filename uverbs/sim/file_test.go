package sim

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

var ne = binary.NativeEndian

// attr is an attribute of a request: a value of up to eight bytes, or what it
// points to.
type attr struct {
	id    uint16
	value []byte
	point bool
}

// escaped forces what requests point to off the stack.
var escaped atomic.Pointer[[]byte]

// send builds an ioctl and runs it. It returns the data word of the first attribute
// afterwards, which is where handles and descriptors come.
func send(t *testing.T, f kernel.File, object, method uint16, attrs ...attr) (uint64, error) {
	t.Helper()
	req := make([]byte, headerSize+16*len(attrs))
	ne.PutUint16(req[0:], uint16(len(req)))
	ne.PutUint16(req[2:], object)
	ne.PutUint16(req[4:], method)
	ne.PutUint16(req[6:], uint16(len(attrs)))
	ne.PutUint32(req[16:], uint32(abi.RDMA_DRIVER_MLX5))
	for i, a := range attrs {
		b := req[headerSize+16*i:]
		ne.PutUint16(b[0:], a.id)
		ne.PutUint16(b[2:], uint16(len(a.value)))
		ne.PutUint16(b[4:], 1) // mandatory
		if a.point {
			escaped.Store(&attrs[i].value)
			ne.PutUint64(b[8:], at(a.value))
		} else {
			copy(b[8:16], a.value)
		}
	}
	err := f.Ioctl(req)
	runtime.KeepAlive(attrs)
	return ne.Uint64(req[headerSize+8:]), err
}

func in(id uint16, b []byte) attr { return attr{id, b, len(b) > 8} }

func out(id uint16, b []byte) attr { return attr{id, b, true} }

// openFile opens the only device of a fabric and makes the file a context.
func openFile(t *testing.T, f *Fabric) kernel.File {
	t.Helper()
	file, err := f.system.Open("/dev/infiniband/uverbs0", verbsNumber(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	want := abi.MLX5IBAllocUcontextReqV2{TotalNumBfregs: 16, NumLowLatencyBfregs: 4, MaxCQEVersion: 1, LibCaps: uint64(abi.MLX5_LIB_CAP_4K_UAR | abi.MLX5_LIB_CAP_DYN_UAR)}
	if _, err := send(t, file, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT,
		out(abi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, make([]byte, 4)), out(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, make([]byte, 8)),
		in(abi.UVERBS_ATTR_UHW_IN, want.Bytes()), out(abi.UVERBS_ATTR_UHW_OUT, make([]byte, abi.SizeofMLX5IBAllocUcontextResp))); err != nil {
		t.Fatal(err)
	}
	return file
}

func newFabric(t *testing.T) *Fabric {
	t.Helper()
	f, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// allocUAR makes a page of registers and returns where in the file it is.
func allocUAR(t *testing.T, file kernel.File) int64 {
	t.Helper()
	offset := make([]byte, 8)
	if _, err := send(t, file, abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_ALLOC,
		attr{id: abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE}, in(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, make([]byte, 8)),
		out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset), out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, make([]byte, 4)),
		out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, make([]byte, 4))); err != nil {
		t.Fatal(err)
	}
	return int64(ne.Uint64(offset))
}

// The device learns of stores until the page is detached, and not from then on,
// whatever became of the device and the file.
func TestDoorbellPage(t *testing.T) {
	f := newFabric(t)
	file := openFile(t, f)
	page, err := file.Map(allocUAR(t, file), 4096)
	if err != nil {
		t.Fatal(err)
	}
	other, err := file.Map(allocUAR(t, file), 4096)
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Bytes()) != 4096 || at(page.Bytes())%4096 != 0 || at(page.Bytes()) == at(other.Bytes()) {
		t.Fatalf("%d bytes at %#x", len(page.Bytes()), at(page.Bytes()))
	}
	// The model has no such queue pair, and says so when it hears the bell.
	rung := func(m *kernel.Mapping, qpn uint64) bool {
		before := len(f.Model().Violations())
		copy(m.Bytes()[0x800:], []byte{1, 2, 3, 4, 5, 6, 7, 8})
		m.Tell(0x800, qpn<<8)
		return len(f.Model().Violations()) > before
	}
	if !rung(page, 0x777) || !strings.Contains(f.Model().Violations()[0], "0x777") {
		t.Errorf("the device heard %q", f.Model().Violations())
	}
	for range 2 {
		if err := page.Detach(); err != nil {
			t.Fatal(err)
		}
		if rung(page, 0x778) {
			t.Error("a detached page rings")
		}
	}
	if !rung(other, 0x779) {
		t.Error("the other page does not ring any more")
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if rung(other, 0x780) || rung(page, 0x781) {
		t.Error("a page of a closed file rings")
	}
	if err := errors.Join(other.Detach(), other.Unmap(), page.Unmap()); err != nil {
		t.Error(err)
	}
}

// Pages are those of the driver, also where the machine has larger ones.
func TestPageSize(t *testing.T) {
	f := newFabric(t)
	if n := f.system.PageSize(); n != 4096 {
		t.Errorf("pages of %d bytes", n)
	}
	for _, n := range []int{1, 4096, 4097, 1 << 20} {
		m, err := f.system.Alloc(n, kernel.AllocOptions{})
		if err != nil || len(m.Bytes()) < n || len(m.Bytes())%4096 != 0 || at(m.Bytes())%4096 != 0 {
			t.Fatalf("%d bytes: %d at %#x, %v", n, len(m.Bytes()), at(m.Bytes()), err)
		}
		if err := m.Unmap(); err != nil {
			t.Error(err)
		}
	}
}

func TestMapRefuses(t *testing.T) {
	f := newFabric(t)
	file := openFile(t, f)
	uar := allocUAR(t, file)
	for _, c := range []struct {
		what   string
		offset int64
		n      int
		want   error
	}{
		{"two pages", uar, 8192, syscall.EINVAL},
		{"nothing", uar, 0, syscall.EINVAL},
		{"no such page", uar + 4096, 4096, syscall.EINVAL},
		{"half a page further", uar + 2048, 4096, syscall.EINVAL},
		{"negative", -4096, 4096, syscall.EINVAL},
		{"the clock page, which can only be read", int64(abi.MLX5_IB_MMAP_CLOCK_INFO) << 8 * 4096, 4096, syscall.EPERM},
	} {
		if m, err := file.Map(c.offset, c.n); err != c.want {
			t.Errorf("%s: %v, %v, want %v", c.what, m, err, c.want)
		}
	}
	f.Model().Device("sim0").Fail()
	if _, err := file.Map(uar, 4096); err != syscall.EIO {
		t.Errorf("device gone: %v", err)
	}
}

func TestOpenFile(t *testing.T) {
	f := newFabric(t)
	for _, c := range []struct {
		path string
		rdev uint64
		want error
	}{
		{"/dev/infiniband/uverbs0", 0, nil},
		{"/dev/infiniband/uverbs1", verbsNumber(1), nil},
		{"/dev/infiniband/uverbs1", verbsNumber(0), syscall.ENXIO},
		{"/dev/infiniband/uverbs2", 0, fs.ErrNotExist},
		{"/dev/infiniband/../infiniband/uverbs0", 0, fs.ErrNotExist},
		{"", 0, fs.ErrNotExist},
	} {
		file, err := f.system.Open(c.path, c.rdev)
		if !errors.Is(err, c.want) {
			t.Errorf("%s, %#x: %v, want %v", c.path, c.rdev, err, c.want)
		}
		if err == nil {
			file.Close()
		}
	}
	// Numbers stay apart where a minor number has more than eight bits.
	if verbsNumber(63) != 0xe7ff || verbsNumber(64) != 0x10e700 {
		t.Errorf("numbers %#x, %#x", verbsNumber(63), verbsNumber(64))
	}
}

func TestFileRefuses(t *testing.T) {
	f := newFabric(t)
	file := openFile(t, f)
	for what, req := range map[string][]byte{"nothing": nil, "half a header": make([]byte, 12), "a length that is not there": append([]byte{40, 40}, make([]byte, 22)...)} {
		if err := file.Ioctl(req); err != syscall.EINVAL {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := file.Write(make([]byte, 32)); err != syscall.EOPNOTSUPP {
		t.Errorf("Write: %v", err)
	}
	for _, fd := range []int{-1, 0, 1 << 30} {
		if _, err := file.Events(fd); err != syscall.EBADF {
			t.Errorf("Events(%d): %v", fd, err)
		}
		if err := file.CloseFD(fd); err != syscall.EBADF {
			t.Errorf("CloseFD(%d): %v", fd, err)
		}
	}
	// A reason is told, and the errno is in it.
	_, err := send(t, file, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT,
		in(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, ne.AppendUint64(nil, 9)), out(abi.UVERBS_ATTR_QUERY_PORT_RESP, make([]byte, abi.SizeofUverbsQueryPortRespEx)))
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno != syscall.EINVAL || !strings.Contains(err.Error(), "no such port") {
		t.Errorf("port 9: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	_, errIoctl := send(t, file, abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC, attr{id: abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE})
	if _, err := file.MapRead(7<<8*4096, 4096); err != os.ErrClosed {
		t.Errorf("the clock of a closed file: %v", err)
	}
	_, errMap := file.Map(0, 4096)
	for what, err := range map[string]error{"Ioctl": errIoctl, "Map": errMap, "Close": file.Close()} {
		if err != os.ErrClosed {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}
