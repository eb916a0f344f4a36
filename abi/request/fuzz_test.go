package request_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// FuzzRequest reads hostile bytes. Whatever they are: no panic; an error has an
// errno that the kernel's framework returns; what is handed out obeys the schema; and
// reading does not change the caller's memory.
func FuzzRequest(f *testing.F) {
	m := newMemory()
	h, attrs := createCQ(m)
	addr := m.call(h, attrs...)
	f.Add(m.bytes, uint16(addr-m.base), rxe.Driver)
	f.Add(m.bytes, uint16(addr-m.base), uint32(abi.RDMA_DRIVER_MLX5))
	f.Fuzz(func(t *testing.T, mem []byte, off uint16, driver uint32) {
		m := &memory{base: 0x10000, bytes: bytes.Clone(mem)}
		addr := m.base + uint64(off)
		if err := request.Dump(io.Discard, m, addr); err != nil {
			t.Fatal(err)
		}
		if request.Title(m, addr) == "" {
			t.Error("a request without a title")
		}
		r, err := request.Read(m, addr, &request.Config{Driver: driver})
		if !bytes.Equal(m.bytes, mem) {
			t.Fatal("reading changed the caller's memory")
		}
		if err != nil {
			var e *request.Error
			if !errors.As(err, &e) || e.Reason == "" {
				t.Fatalf("no explanation: %#v", err)
			}
			switch e.Errno {
			case request.EINVAL, request.EFAULT, request.EPROTONOSUPPORT, request.EOPNOTSUPP, request.ENOENT:
			default:
				t.Fatalf("the framework does not return %v", e.Errno)
			}
			return
		}
		for i := range r.Desc.Attrs {
			checkCarried(t, r, &r.Desc.Attrs[i], mem[off:])
		}
		if r.IsWrite() {
			if c, in, err := r.Command(nil); err == nil && len(in) < int(c.In) && c.Number < abi.IB_USER_VERBS_CMD_FLAG_EXTENDED {
				t.Fatalf("%s with %d bytes", c.Name, len(in))
			}
		}
		if err := r.Finish(); err != nil && !errors.Is(err, request.EFAULT) {
			t.Fatal(err)
		}
		if err := request.DumpReply(io.Discard, m, addr, 0); err != nil {
			t.Fatal(err)
		}
	})
}

// checkCarried looks at what is handed out of an attribute of the request in raw.
func checkCarried(t *testing.T, r *request.Request, a *abi.Attr, raw []byte) {
	if a.Mandatory && !r.Has(a.ID) {
		t.Fatalf("%s is mandatory and absent", a.Name)
	}
	if !r.Has(a.ID) {
		return
	}
	check := func(n int, ok bool) {
		if !ok || n < int(a.MinLen) || n > int(a.MaxLen) && !a.ZeroTail {
			t.Fatalf("%s: %d bytes, %v, want %d to %d", a.Name, n, ok, a.MinLen, a.MaxLen)
		}
	}
	switch a.Kind {
	case abi.PtrIn, abi.ConstIn, abi.FlagsIn, abi.EnumIn:
		b, ok := r.In(a.ID)
		check(len(b), ok)
	case abi.PtrOut:
		check(r.OutLen(a.ID))
		if err := r.SetOut(a.ID, make([]byte, 1<<17)); err != nil && !errors.Is(err, request.EFAULT) {
			t.Fatal(err)
		}
	case abi.Handles:
		hs, ok := r.Handles(a.ID)
		check(4*len(hs), ok)
	case abi.Handle, abi.HandleDestroy:
		if h, ok := r.Handle(a.ID); !ok || uint64(h) != dataOf(raw, a.ID) {
			t.Fatalf("%s has handle %d, %v; the request says %#x", a.Name, h, ok, dataOf(raw, a.ID))
		}
	case abi.FD, abi.RawFD:
		if _, ok := r.FD(a.ID); !ok {
			t.Fatalf("%s has no descriptor", a.Name)
		}
	case abi.HandleNew, abi.FDNew:
		err := errors.Join(r.SetHandle(a.ID, 7), r.SetFD(a.ID, 7))
		if err != nil {
			t.Fatalf("the attribute was readable: %v", err)
		}
	default:
		t.Fatalf("%s: kind %v", a.Name, a.Kind)
	}
}

// dataOf is the data word of an attribute of the request in raw.
func dataOf(raw []byte, id uint16) uint64 {
	for raw = raw[abi.SizeofUverbsIoctlHdr:]; len(raw) >= abi.SizeofUverbsAttr; raw = raw[abi.SizeofUverbsAttr:] {
		if binary.NativeEndian.Uint16(raw) == id {
			return binary.NativeEndian.Uint64(raw[8:])
		}
	}
	return 0
}
