package uverbs

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// A region of a dma-buf is read and written by offset, though the program has no
// slice of it, from the offset on that was registered and by the address that
// was given. The descriptor is not needed any more.
func TestDMABuf(t *testing.T) {
	r := newRig(t, false, fakekernel.Device{DMABuf: true})
	const size, offset, length, iova = 3 * 4096, 4096 + 100, 4096, 1<<40 + 100
	gpu := make([]byte, size)
	fd := r.k.NewDMABuf(gpu)
	mr, err := r.pd.RegisterDMABuf(fd, offset, length, iova, LocalWrite|RemoteWrite|RemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	r.k.CloseDMABuf(fd)
	if got := mr.Remote(); got != (Remote{Addr: iova, Length: length, RKey: mr.RKey()}) || mr.Len() != length || mr.PD() != r.pd || mr.All() != mr.Span(0, length) {
		t.Errorf("%+v, %d bytes", got, mr.Len())
	}
	at := gpu[offset : offset+length]
	copy(r.mem.Bytes(), "from the host")
	copy(at[4000:], "from the GPU")
	local, peer := r.peer.Regions[0], mr.Remote()
	sq := r.a.SendQueue()
	for name, test := range map[string]struct {
		post func()
		into []byte
		want string
	}{
		"write from it":        {func() { sq.Write(1, local.At(100), mr.Span(4000, 12)) }, r.mem.Bytes()[100:], "from the GPU"},
		"write to it":          {func() { sq.Write(1, peer.At(0), r.mr.Span(0, 13)) }, at, "from the host"},
		"write to its end":     {func() { sq.Write(1, peer.At(length-13), r.mr.Span(0, 13)) }, at[length-13:], "from the host"},
		"read from it":         {func() { sq.Read(1, r.mr.Span(200, 12), peer.At(4000)) }, r.mem.Bytes()[200:], "from the GPU"},
		"read into it":         {func() { sq.Read(1, mr.Span(50, 13), local.At(0)) }, at[50:], "from the host"},
		"its last byte, write": {func() { sq.Write(1, local.At(300), mr.Span(length-1, 1)) }, r.mem.Bytes()[300:], "t"},
	} {
		clear(at[:1000])
		clear(at[length-13:])
		copy(at[length-1:], "t")
		before := bytes.Clone(gpu)
		test.post()
		if err := sq.Flush(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if w := wait(t, r.sendQ, 1)[0]; w.Status != StatusSuccess {
			t.Fatalf("%s: %+v", name, w)
		}
		if got := string(test.into[:len(test.want)]); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if !bytes.Equal(before[:offset], gpu[:offset]) || !bytes.Equal(before[offset+length:], gpu[offset+length:]) {
			t.Errorf("%s: bytes outside of the region changed", name)
		}
	}
	for name, test := range map[string]func(){
		"span past the end":   func() { sq.Send(1, mr.Span(length-1, 2)) },
		"remote past the end": func() { sq.Write(1, peer.At(length-1), r.mr.Span(0, 2)) },
	} {
		test()
		says(t, name, sq.Flush(), ErrBounds, strconv.Itoa(length))
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	sq.Send(1, mr.Span(0, 1))
	says(t, "span of the closed region", sq.Flush(), os.ErrClosed)
}

// Rights and PD of such a region can be changed as those of any.
func TestDMABufReregister(t *testing.T) {
	r := newRig(t, false, fakekernel.Device{DMABuf: true, Rereg: reregPD | reregAccess})
	fd := r.k.NewDMABuf(make([]byte, 4096))
	mr, err := r.pd.RegisterDMABuf(fd, 0, 4096, 0, LocalWrite|RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer mr.Close()
	if err := mr.Reregister(ChangeAccess(LocalWrite)); err != nil {
		t.Fatal(err)
	}
	if w := r.onceWritten(t, mr.Remote(), r.mr.Span(0, 8)); w.Status != StatusRemoteAccess {
		t.Errorf("without the right: %+v", w)
	}
}

func TestDMABufErrors(t *testing.T) {
	method := fakekernel.Method{Object: abi.UVERBS_OBJECT_MR, Method: abi.UVERBS_METHOD_REG_DMABUF_MR}
	r := newRig(t, false, fakekernel.Device{DMABuf: true}, fakekernel.Device{}, fakekernel.Device{DMABuf: true, Lacks: []fakekernel.Method{method}})
	pds := map[string]*PD{"rxe0": r.pd}
	for _, name := range []string{"rxe1", "rxe2"} {
		d, err := on(r.k).open(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if pds[name], err = d.NewPD(); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := r.dev.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	pds["closed PD"] = gone
	fd := r.k.NewDMABuf(make([]byte, 8192))
	shut := r.k.NewDMABuf(make([]byte, 8192))
	r.k.CloseDMABuf(shut)
	for name, test := range map[string]struct {
		on                   string
		fd                   int
		offset, length, iova uint64
		access               Access
		is                   error
		parts                []string
	}{
		"descriptor -1":          {"rxe0", -1, 0, 4096, 0, LocalWrite, ErrInvalid, []string{"descriptor -1"}},
		"no bytes":               {"rxe0", fd, 0, 0, 0, LocalWrite, ErrInvalid, []string{"0 bytes"}},
		"length":                 {"rxe0", fd, 0, math.MaxInt + 1, 0, LocalWrite, ErrInvalid, []string{"addressed"}},
		"offset and length":      {"rxe0", fd, math.MaxUint64 - 4095, 4097, 0, LocalWrite, ErrInvalid, []string{"4097 bytes at offset 18446744073709547520"}},
		"iova and length":        {"rxe0", fd, 0, 4097, math.MaxUint64 - 4095, LocalWrite, ErrInvalid, []string{"iova 0xfffffffffffff000"}},
		"iova off the page":      {"rxe0", fd, 0, 4096, 8, LocalWrite, ErrInvalid, []string{"iova 0x8 at offset 0", "page size, 4096"}},
		"unknown right":          {"rxe0", fd, 0, 4096, 0, 1 << 21, ErrInvalid, []string{"0x200000", "RelaxedOrdering"}},
		"right of other regions": {"rxe0", fd, 0, 4096, 0, LocalWrite | MWBind, ErrInvalid, []string{"MWBind", "allowed are LocalWrite"}},
		"remote without local":   {"rxe0", fd, 0, 4096, 0, RemoteWrite, ErrInvalid, []string{"LocalWrite too"}},
		"closed PD":              {"closed PD", fd, 0, 4096, 0, LocalWrite, os.ErrClosed, []string{"PD"}},
		"closed descriptor":      {"rxe0", shut, 0, 4096, 0, LocalWrite, syscall.EBADF, []string{"descriptor " + strconv.Itoa(shut) + " is not open"}},
		"too short":              {"rxe0", fd, 4096, 4097, 0, LocalWrite, syscall.EINVAL, []string{"fewer bytes"}},
		"driver":                 {"rxe1", fd, 0, 4096, 0, LocalWrite, ErrNotSupported, []string{"driver rxe", "dma-bufs", "mlx5"}},
		"old kernel":             {"rxe2", fd, 0, 4096, 0, LocalWrite, ErrNotSupported, []string{"dma-buf", "5.12"}},
	} {
		mr, err := pds[test.on].RegisterDMABuf(test.fd, test.offset, test.length, test.iova, test.access)
		says(t, name, err, test.is, test.parts...)
		if mr != nil {
			t.Errorf("%s: a region beside the error", name)
		}
	}
	// With RelaxedOrdering, and without it where the kernel does not know it.
	mr, err := r.pd.RegisterDMABuf(fd, 0, 8192, 0, LocalWrite|RelaxedOrdering)
	if err != nil || mr.Access() != LocalWrite|RelaxedOrdering {
		t.Fatalf("%v", err)
	}
	mr.Close()
	for op := range []int{0, 1} {
		r.k.FailAt(fakekernel.Ioctl, op+1, syscall.EINTR)
		mr, err := r.pd.RegisterDMABuf(fd, 0, 8192, 0, LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		mr.Close()
	}
	r.k.Fail(nil)
}
