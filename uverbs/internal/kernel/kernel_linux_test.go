//go:build linux

package kernel

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rdevOf returns the device number of a device file.
func rdevOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return uint64(st.Rdev)
}

// openZero opens /dev/zero as if it were a uverbs file: it is a character
// device that can be mapped shared.
func openZero(t *testing.T) *file {
	t.Helper()
	f, err := Host().Open("/dev/zero", rdevOf(t, "/dev/zero"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f.(*file)
}

func TestOpenChecksTheOpenFile(t *testing.T) {
	plain := t.TempDir() + "/plain"
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left := leftOpen(t)
	for _, c := range []struct {
		name, path string
		rdev       uint64
		want       error
	}{
		{"any character device", "/dev/null", 0, nil},
		{"the right device", "/dev/null", rdevOf(t, "/dev/null"), nil},
		{"another device's number", "/dev/null", rdevOf(t, "/dev/zero"), syscall.ENXIO},
		{"a plain file", plain, 0, syscall.ENXIO},
		{"no file", plain + "-not", 0, syscall.ENOENT},
	} {
		f, err := Host().Open(c.path, c.rdev)
		if err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if f != nil {
			flags, err := unix.FcntlInt(uintptr(f.(*file).fd), unix.F_GETFD, 0)
			if err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("%s: not close-on-exec (%v)", c.name, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if open := left(); len(open) != 0 {
		t.Errorf("left open: %q", open)
	}
}

func TestIoctlNumber(t *testing.T) {
	if verbsIoctl != 0xc0181b01 {
		t.Fatalf("RDMA_VERBS_IOCTL is %#x", uint32(verbsIoctl))
	}
}

func TestIoctlRefusesLyingHeader(t *testing.T) {
	f := openZero(t)
	for _, n := range []int{0, 1, 23} {
		if err := f.Ioctl(make([]byte, n)); err != syscall.EINVAL {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	req := make([]byte, headerSize)
	if err := f.Ioctl(req); err != syscall.EINVAL {
		t.Errorf("length 0 in the header: %v", err)
	}
	req = headerOf(headerSize)
	if err := f.Ioctl(req); err != syscall.ENOTTY {
		t.Errorf("honest header on a file that is no uverbs file: %v", err)
	}
}

func TestClosedFile(t *testing.T) {
	f := openZero(t)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, mapErr := f.Map(0, 4096)
	for what, err := range map[string]error{
		"ioctl": f.Ioctl(headerOf(headerSize)),
		"write": f.Write(make([]byte, 32)),
		"map":   mapErr,
		"close": f.Close(),
	} {
		if err != os.ErrClosed {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

func TestWrite(t *testing.T) {
	f := openZero(t)
	if err := f.Write(make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
}

func TestDetachKeepsAddresses(t *testing.T) {
	f := openZero(t)
	page := os.Getpagesize()
	m, err := f.Map(0, 3*page)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	b := m.Bytes()
	for i := range b {
		b[i] = 0xa5
	}
	if got := mappedFiles(t, "/dev/zero"); got != 1 {
		t.Fatalf("%d mappings of the file", got)
	}
	if err := m.Detach(); err != nil {
		t.Fatal(err)
	}
	if got := mappedFiles(t, "/dev/zero"); got != 0 {
		t.Errorf("%d mappings of the file after Detach", got)
	}
	if !bytes.Equal(b, make([]byte, 3*page)) {
		t.Error("the pages behind Detach are not zero")
	}
	b[0] = 1
	if err := m.Detach(); err != nil || b[0] != 1 {
		t.Errorf("second Detach: %v, and byte 0 is %d", err, b[0])
	}
	if err := m.Unmap(); err != nil {
		t.Fatal(err)
	}
}

func TestDetachAfterUnmapTouchesNothing(t *testing.T) {
	f := openZero(t)
	page := os.Getpagesize()
	m, err := f.Map(0, page)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("%p", m.Bytes())
	if err := m.Unmap(); err != nil {
		t.Fatal(err)
	}
	other, err := f.Map(0, page)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Unmap()
	if fmt.Sprintf("%p", other.Bytes()) != addr {
		t.Skip("declared skip: the system chose other addresses for the second mapping")
	}
	other.Bytes()[0] = 7
	if err := m.Detach(); err != nil || other.Bytes()[0] != 7 {
		t.Errorf("Detach of an unmapped Mapping: %v, and it cleared another mapping", err)
	}
}

// Memory to read cannot be written to, until it is nobody's but ours.
func TestMapRead(t *testing.T) {
	f := openZero(t)
	m, err := f.MapRead(0, os.Getpagesize())
	if err != nil {
		t.Fatal(err)
	}
	write := func() (fault any) {
		defer func() { fault = recover() }()
		m.Bytes()[0] = 1
		return nil
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if m.Bytes()[0] != 0 || write() == nil {
		t.Error("memory to read was written to")
	}
	if err := m.Detach(); err != nil {
		t.Fatal(err)
	}
	if fault := write(); fault != nil || m.Bytes()[0] != 1 {
		t.Errorf("detached memory: %v", fault)
	}
	m.Unmap()
	for _, c := range []struct {
		offset int64
		n      int
	}{{0, 0}, {1, 4096}} {
		if m, err := f.MapRead(c.offset, c.n); err == nil {
			m.Unmap()
			t.Errorf("MapRead(%d, %d) succeeded", c.offset, c.n)
		}
	}
	f.Close()
	if _, err := f.MapRead(0, os.Getpagesize()); err != os.ErrClosed {
		t.Errorf("of a closed file: %v", err)
	}
}

func TestMapRefusals(t *testing.T) {
	f := openZero(t)
	for _, c := range []struct {
		offset int64
		n      int
	}{{0, 0}, {0, -1}, {1, 4096}} {
		if m, err := f.Map(c.offset, c.n); err == nil {
			m.Unmap()
			t.Errorf("Map(%d, %d) succeeded", c.offset, c.n)
		}
	}
	// Tokens of a driver pass 2^31 on a busy machine; on 32-bit systems
	// such an offset must arrive whole.
	m, err := f.Map(1<<33, os.Getpagesize())
	if err != nil {
		t.Fatalf("offset 2^33: %v", err)
	}
	m.Unmap()
}

func TestUnreachableMappingIsUnmapped(t *testing.T) {
	f := openZero(t)
	func() {
		m, err := f.Map(0, os.Getpagesize())
		if err != nil {
			t.Fatal(err)
		}
		m.Bytes()[0] = 1
		runtime.KeepAlive(m)
	}()
	if !eventually(func() bool { runtime.GC(); return mappedFiles(t, "/dev/zero") == 0 }) {
		t.Error("a mapping that nobody can reach is still mapped")
	}
}

func TestAlloc(t *testing.T) {
	k := Host()
	for _, n := range []int{1, k.PageSize(), k.PageSize() + 1} {
		m, err := k.Alloc(n, AllocOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b := m.Bytes()
		if len(b) < n || len(b)%k.PageSize() != 0 {
			t.Errorf("Alloc(%d) has %d bytes", n, len(b))
		}
		if !bytes.Equal(b, make([]byte, len(b))) {
			t.Errorf("Alloc(%d) is not zero", n)
		}
		if err := m.Unmap(); err != nil {
			t.Error(err)
		}
	}
	for _, n := range []int{0, -1, int(^uint(0) >> 1)} {
		if m, err := k.Alloc(n, AllocOptions{}); err == nil {
			m.Unmap()
			t.Errorf("Alloc(%d) succeeded", n)
		}
	}
}

func TestAllocSurvivesGC(t *testing.T) {
	var b []byte
	func() {
		m, err := Host().Alloc(1, AllocOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b = m.Bytes()
	}()
	runtime.GC()
	runtime.GC()
	time.Sleep(10 * time.Millisecond)
	b[0] = 1 // would fault; the page is this test's to lose
}

func TestHugePageSize(t *testing.T) {
	for text, want := range map[string]int{
		"MemTotal: 1 kB\nHugepagesize:       2048 kB\nHugetlb: 0 kB\n": 2 << 20,
		"Hugepagesize:    1048576 kB\n":                                1 << 30,
		"Hugepagesize:    2047 kB\n":                                   0,
		"Hugepagesize:    0 kB\n":                                      0,
		"Hugepagesize:    99999999999999999999 kB\n":                   0,
		"Hugepagesize:    2048\n":                                      0,
		"MemTotal: 1 kB\n":                                             0,
		"":                                                             0,
	} {
		if got := hugePageSize([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestInitialUserNamespace(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":   true,
		"         0       1000          1\n":   false,
		"0 0 1\n1 100000 65536\n":              false,
		"":                                     false,
		"0 0 4294967295\n5 5 4294967295 more":  false,
		"         0          0 4294967294\n\n": false,
	} {
		if got := initialUserNamespace(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestMemlock(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)
	want := uint64(64 << 10)
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: want, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	if got, _ := Host().Memlock(); got != want {
		t.Errorf("limit %d, want %d", got, want)
	}
}

func TestEventReadsDoNotAllocate(t *testing.T) {
	r, w := packetPipe(t)
	e, err := newEvents(r)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	buf, record := make([]byte, 8), []byte("12345678")
	for what, f := range map[string]func(){
		"empty": func() { e.Read(buf) },
		"Read":  func() { unix.Write(w, record); e.Read(buf) },
		"ReadWait": func() {
			unix.Write(w, record)
			if n, err := e.ReadWait(buf); n != 8 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		},
	} {
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

func TestCloseFD(t *testing.T) {
	f := openZero(t)
	r, _ := packetPipe(t)
	if err := f.CloseFD(r); err != nil {
		t.Fatal(err)
	}
	if err := f.CloseFD(-1); err != syscall.EBADF {
		t.Errorf("CloseFD(-1): %v", err)
	}
}
