//go:build linux

package request_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// process is this process's memory, as far as one mapping goes. A mapping does not move, so the kernel may be given its addresses.
type process struct{ memory }

func mapProcess(t *testing.T, n int) *process {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(b) })
	return &process{memory{uint64(reflect.ValueOf(b).Pointer()), b}}
}

// Regions of the mapping: the request, 64 KiB of zeros, 64 KiB of ones.
const (
	zerosAt = 64 << 10
	onesAt  = 128 << 10
	mapped  = 192 << 10
)

// TestKernelAgrees sends requests that this package refuses to a real kernel, which must refuse them with the same number. None
// of them is complete, so no method runs; only GET_CONTEXT, which wants nothing, makes a context, and closing the file ends it.
func TestKernelAgrees(t *testing.T) {
	fd, err := syscall.Open("/dev/infiniband/uverbs0", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("declared skip: needs a guest with soft-RoCE: there is no /dev/infiniband/uverbs0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	m := mapProcess(t, mapped)
	for i := onesAt; i < mapped; i++ {
		m.bytes[i] = 0xff
	}
	k := &kernel{t: t, fd: fd, m: m, config: *rxe}
	k.config.PageSize = os.Getpagesize()
	if got := k.ask(hdr(0xfff, 0)); got == request.EINVAL {
		t.Skip("declared skip: needs a guest with soft-RoCE: uverbs0 is another driver's")
	}
	k.headers()
	k.commands()
	var absent []string
	for d := range abi.Methods(rxe.Driver) {
		if k.ask(hdr(d.Object, d.ID)) == request.EPROTONOSUPPORT {
			absent = append(absent, d.Name)
			continue
		}
		k.method(d)
	}
	t.Logf("%d requests refused alike; the device has no %v", k.sent, absent)
	if k.sent < 10000 {
		t.Errorf("only %d requests were compared", k.sent)
	}
}

type kernel struct {
	t      *testing.T
	fd     int
	m      *process
	config request.Config
	sent   int
	told   int
}

// ask gives the kernel a request that it does not run.
func (k *kernel) ask(h abi.UverbsIoctlHdr, attrs ...abi.UverbsAttr) request.Errno {
	k.put(h, attrs)
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(k.fd), abi.RDMA_VERBS_IOCTL, uintptr(k.m.base))
	return request.Errno(e)
}

func (k *kernel) put(h abi.UverbsIoctlHdr, attrs []abi.UverbsAttr) {
	h.NumAttrs += uint16(len(attrs))
	h.Length += uint16(abi.SizeofUverbsIoctlHdr + len(attrs)*abi.SizeofUverbsAttr)
	n := copy(k.m.bytes, h.Bytes())
	for i := range attrs {
		n += copy(k.m.bytes[n:], attrs[i].Bytes())
	}
}

// same compares the two verdicts. What this package would let pass is not sent, nor what only the method itself would refuse
// because it cannot read an input.
func (k *kernel) same(h abi.UverbsIoctlHdr, attrs ...abi.UverbsAttr) {
	k.put(h, attrs)
	_, err := request.Read(k.m, k.m.base, &k.config)
	if err == nil || errors.Is(err, request.EFAULT) {
		return
	}
	k.compare(err, h, attrs)
}

// compare asks the kernel and reports a verdict that is not err's; the first few say enough.
func (k *kernel) compare(err error, h abi.UverbsIoctlHdr, attrs []abi.UverbsAttr) {
	k.sent++
	if got := k.ask(h, attrs...); got != request.ErrnoOf(err) {
		if k.told++; k.told < 20 {
			k.t.Errorf("kernel says %v; %v; request:\n%s", got, err, dump(k.m))
		}
	}
}

func dump(m *process) fmt.Stringer {
	var b stringWriter
	request.Dump(&b, m, m.base)
	return &b
}

type stringWriter []byte

func (w *stringWriter) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }
func (w *stringWriter) String() string              { return string(*w) }

func (k *kernel) headers() {
	good := hdr(abi.UVERBS_OBJECT_PD, abi.UVERBS_METHOD_PD_DESTROY)
	for _, edit := range []func(*abi.UverbsIoctlHdr){
		func(h *abi.UverbsIoctlHdr) {},
		func(h *abi.UverbsIoctlHdr) { h.Length = 1 },
		func(h *abi.UverbsIoctlHdr) { h.NumAttrs = 1 },
		func(h *abi.UverbsIoctlHdr) { h.Reserved1 = 1 << 63 },
		func(h *abi.UverbsIoctlHdr) { h.Reserved2 = 1 },
		func(h *abi.UverbsIoctlHdr) { h.Reserved2, h.Length = 1, 1 },
		func(h *abi.UverbsIoctlHdr) { h.Reserved2, h.DriverID = 1, 99 },
		func(h *abi.UverbsIoctlHdr) { h.DriverID = 99 },
		func(h *abi.UverbsIoctlHdr) { h.DriverID, h.ObjectID = 99, 99 },
		func(h *abi.UverbsIoctlHdr) { h.ObjectID = 99 },
		func(h *abi.UverbsIoctlHdr) { h.ObjectID = 0x1000 },
		func(h *abi.UverbsIoctlHdr) { h.ObjectID = 0xffff },
		func(h *abi.UverbsIoctlHdr) { h.MethodID = 0x1000 },
		func(h *abi.UverbsIoctlHdr) { h.MethodID = 0xffff },
		func(h *abi.UverbsIoctlHdr) { n := uint16(k.config.PageSize / 16); h.NumAttrs, h.Length = n, n*16 },
	} {
		h := good
		edit(&h)
		k.same(h)
	}
}

// method tries each attribute alone and in pairs, in many lengths and with many values.
func (k *kernel) method(d *abi.Method) {
	h := hdr(d.Object, d.ID)
	k.same(h)
	for _, flags := range []uint16{0, abi.UVERBS_ATTR_F_MANDATORY} {
		for _, id := range []uint16{0x0fff, 0x1000, 0x1002, 0x1fff, 0x2000, 0xffff} {
			if _, known := d.Attr(id); !known {
				k.same(h, abi.UverbsAttr{AttrID: id, Flags: flags, Len: 3, Data: 1})
			}
		}
	}
	for i := range d.Attrs {
		for _, a := range k.forms(&d.Attrs[i]) {
			k.same(h, a)
			k.same(h, a, a)
		}
	}
}

// commands tries the numbers of write commands with buffers of many sizes. Those that this package would hand out are not sent.
func (k *kernel) commands() {
	h := hdr(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE)
	numbers := []uint64{0x100, 0x1000, 0x40000000, 0x80000100, 1 << 32, 1<<32 | 3, 1 << 63}
	for n := range uint64(256) {
		numbers = append(numbers, n, n|abi.IB_USER_VERBS_CMD_FLAG_EXTENDED)
	}
	for _, n := range numbers {
		number := mandatory(abi.UVERBS_ATTR_WRITE_CMD, 8, n)
		c, known := abi.LookupCommand(uint32(n))
		if known && n>>32 == 0 && c.In == 0 {
			k.t.Fatalf("%s wants no request: this test would run it", c.Name)
		}
		extended := n&abi.IB_USER_VERBS_CMD_FLAG_EXTENDED != 0
		if known && extended && !c.Tail {
			continue // no size is too small for these
		}
		lacks := k.ask(h, number) == request.EOPNOTSUPP
		for _, in := range []uint16{4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 112} {
			for _, out := range []uint16{0, 4, 8, 12, 16, 32, 48, 128, 176} {
				attrs := []abi.UverbsAttr{
					number, mandatory(abi.UVERBS_ATTR_CORE_IN, in, k.m.base+zerosAt), mandatory(abi.UVERBS_ATTR_CORE_OUT, out, k.m.base+onesAt),
				}
				k.put(h, attrs)
				r, err := request.Read(k.m, k.m.base, &k.config)
				if err == nil {
					_, _, err = r.Command(func(*abi.Command) bool { return !lacks })
				}
				if err == nil {
					continue
				}
				k.compare(err, h, attrs)
			}
		}
	}
}

// forms returns an attribute in right and wrong forms. Objects that could exist are left out: the kernel looks for them, this
// package does not.
func (k *kernel) forms(d *abi.Attr) []abi.UverbsAttr {
	values := []uint64{0, ^uint64(0), k.m.base + zerosAt, k.m.base + onesAt}
	var object bool
	switch d.Kind {
	case abi.Handle, abi.HandleDestroy:
		object, values = true, []uint64{0, 1 << 63, ^uint64(0)}
	case abi.FD:
		object, values = true, []uint64{0, 1 << 40, 1 << 63}
	}
	var as []abi.UverbsAttr
	for _, length := range []uint16{0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 19, 20, 21, 24, 31, 32, 33, 40, 47, 48, 49, 64, 1000, 65535} {
		for _, v := range values {
			for elem := range uint8(2) {
				for reserved := range uint8(2) {
					if object && length == 0 && elem == 0 && reserved == 0 && v == 0 {
						continue
					}
					a := abi.UverbsAttr{AttrID: d.ID, Len: length, Flags: abi.UVERBS_ATTR_F_MANDATORY, Data: v}
					a.AttrData.EnumData().ElemID, a.AttrData.EnumData().Reserved = elem, reserved
					as = append(as, a)
				}
			}
		}
	}
	return as
}
