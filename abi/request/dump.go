package request

import (
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/abi"
)

// dumpBytes is how much of a buffer is printed. The largest core struct of a write command has 304 bytes.
const dumpBytes = 320

// Dump prints a request, one line for the method and one for each attribute,
// with the schema's names. It prints what it finds, also when the kernel
// would refuse the request.
//
//	CQ.CQ_CREATE driver=RDMA_DRIVER_RXE attrs=2
//	  CREATE_CQ_HANDLE handle-new
//	  CREATE_CQ_CQE ptr-in 4: 10000000
//
// It writes w once. The error is that of w.
func Dump(w io.Writer, mem Memory, addr uint64) error {
	d := dumper{mem: mem}
	if h, ok := d.header(addr); ok {
		d.line("%s driver=%v attrs=%d%s\n", d.title(addr, h), abi.RdmaDriverID(h.driver), h.num, d.complaints(h))
		for i := range h.num {
			if !d.attr(addr, h, i, false) {
				break
			}
		}
	}
	_, err := io.WriteString(w, d.b.String())
	return err
}

// DumpReply prints what the kernel answered to the request at addr: the number
// that ioctl returned, and when that is 0 the new handles and descriptors and the
// output buffers that it marked as written.
func DumpReply(w io.Writer, mem Memory, addr uint64, result Errno) error {
	d := dumper{mem: mem}
	if h, ok := d.header(addr); ok {
		status := "ok"
		if result != 0 {
			status = result.String()
		}
		d.line("%s -> %s\n", d.title(addr, h), status)
		for i := 0; result == 0 && i < h.num; i++ {
			if !d.attr(addr, h, i, true) {
				break
			}
		}
	}
	_, err := io.WriteString(w, d.b.String())
	return err
}

// Title names the request at addr as the first word of [Dump] does: OBJECT.METHOD, and for
// INVOKE_WRITE the command behind it.
func Title(mem Memory, addr uint64) string {
	d := dumper{mem: mem}
	h, ok := d.header(addr)
	if !ok {
		return fmt.Sprintf("request at %#x that cannot be read", addr)
	}
	return d.title(addr, h)
}

type dumper struct {
	mem Memory
	b   strings.Builder
}

// header is a request's header as it came, and the schema of its method if there is one.
type header struct {
	length, object, method uint16
	num                    int
	driver                 uint32
	reserved               bool
	desc                   *abi.Method
}

func (d *dumper) line(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

func (d *dumper) header(addr uint64) (header, bool) {
	var b [abi.SizeofUverbsIoctlHdr]byte
	if err := d.mem.Read(addr, b[:]); err != nil {
		d.line("request at %#x: cannot be read: %v\n", addr, err)
		return header{}, false
	}
	h := header{
		length: native.Uint16(b[0:]), object: native.Uint16(b[2:]), method: native.Uint16(b[4:]),
		num: int(native.Uint16(b[6:])), driver: native.Uint32(b[16:]),
		reserved: native.Uint64(b[8:]) != 0 || native.Uint32(b[20:]) != 0,
	}
	h.desc, _ = abi.LookupMethod(h.driver, h.object, h.method)
	return h, true
}

func (d *dumper) complaints(h header) string {
	var s string
	if want := abi.SizeofUverbsIoctlHdr + h.num*abi.SizeofUverbsAttr; int(h.length) != want {
		s = fmt.Sprintf(" length=%d (want %d)", h.length, want)
	}
	if h.reserved {
		s += " reserved words not zero"
	}
	return s
}

// title is OBJECT.METHOD, with the name of the command when it is INVOKE_WRITE.
func (d *dumper) title(addr uint64, h header) string {
	object := trim(abi.ObjectName(h.driver, h.object))
	if h.desc == nil {
		return fmt.Sprintf("%s.method(%#x)", object, h.method)
	}
	s := object + "." + trim(h.desc.Name)
	if h.object != abi.UVERBS_OBJECT_DEVICE || h.method != abi.UVERBS_METHOD_INVOKE_WRITE {
		return s
	}
	for i := range h.num {
		if raw, ok := d.raw(addr, i); ok && native.Uint16(raw[:]) == abi.UVERBS_ATTR_WRITE_CMD {
			return s + " " + commandName(native.Uint64(raw[offData:]))
		}
	}
	return s
}

func commandName(number uint64) string {
	if number <= 1<<32-1 {
		if c, ok := abi.LookupCommand(uint32(number)); ok {
			return trim(c.Name)
		}
	}
	return fmt.Sprintf("command(%#x)", number)
}

var prefixes = []string{
	"UVERBS_OBJECT_", "UVERBS_METHOD_", "UVERBS_ATTR_", "IB_USER_VERBS_CMD_", "IB_USER_VERBS_",
	"MLX5_IB_OBJECT_", "MLX5_IB_METHOD_", "MLX5_IB_ATTR_",
}

// trim takes away what the place of a name already says.
func trim(name string) string {
	for _, p := range prefixes {
		if s, ok := strings.CutPrefix(name, p); ok {
			return s
		}
	}
	return name
}

func (d *dumper) raw(addr uint64, index int) ([abi.SizeofUverbsAttr]byte, bool) {
	var raw [abi.SizeofUverbsAttr]byte
	err := d.mem.Read(addr+abi.SizeofUverbsIoctlHdr+uint64(index)*abi.SizeofUverbsAttr, raw[:])
	return raw, err == nil
}

// attr prints one attribute. It returns false when the attributes cannot be read any further.
func (d *dumper) attr(addr uint64, h header, index int, reply bool) bool {
	raw, ok := d.raw(addr, index)
	if !ok {
		d.line("  attribute %d: cannot be read\n", index)
		return false
	}
	a := attr{length: native.Uint16(raw[2:]), flags: native.Uint16(raw[offFlags:]), elem: raw[offElemID]}
	copy(a.data[:], raw[offData:])
	id := native.Uint16(raw[:])
	if h.desc != nil {
		a.desc, _ = h.desc.Attr(id)
	}
	switch {
	case reply:
		d.output(&a)
	case a.desc == nil:
		d.line("  attr(%#x) len=%d flags=%#x data=%#x\n", id, a.length, a.flags, a.uint64())
	default:
		d.input(&a)
	}
	return true
}

func (d *dumper) input(a *attr) {
	d.line("  %s %v", trim(a.desc.Name), a.desc.Kind)
	switch a.desc.Kind {
	case abi.ConstIn:
		if a.desc.ID == abi.UVERBS_ATTR_WRITE_CMD && a.desc.Name == "UVERBS_ATTR_WRITE_CMD" {
			d.line(" %s", commandName(a.uint64()))
		} else {
			d.line(" %d", a.uint64())
		}
	case abi.FlagsIn:
		v := a.uint64()
		if a.length == 4 {
			v = uint64(native.Uint32(a.data[:]))
		}
		d.line(" %#x", v)
	case abi.Handle, abi.HandleDestroy, abi.FD, abi.RawFD:
		d.line(" %d", a.int64())
	case abi.PtrOut:
		d.line(" %d bytes at %#x", a.length, a.uint64())
	case abi.EnumIn:
		d.line(" variant %d", a.elem)
		d.buffer(a)
	case abi.PtrIn, abi.Handles:
		d.buffer(a)
	}
	d.b.WriteByte('\n')
}

func (d *dumper) output(a *attr) {
	if a.desc == nil {
		return
	}
	switch a.desc.Kind {
	case abi.HandleNew, abi.FDNew:
		d.line("  %s %d\n", trim(a.desc.Name), a.int64())
	case abi.PtrOut:
		if a.flags&abi.UVERBS_ATTR_F_VALID_OUTPUT != 0 {
			d.line("  %s", trim(a.desc.Name))
			d.pointed(a)
			d.b.WriteByte('\n')
		}
	}
}

// buffer prints the bytes of an input, which stand in the attribute when there are at most eight.
func (d *dumper) buffer(a *attr) {
	if a.length <= inlineBytes {
		d.line(" %d: %x", a.length, a.data[:a.length])
		return
	}
	d.pointed(a)
}

func (d *dumper) pointed(a *attr) {
	b := make([]byte, min(int(a.length), dumpBytes))
	if len(b) == 0 {
		d.line(" 0:")
		return
	}
	if err := d.mem.Read(a.uint64(), b); err != nil {
		d.line(" %d bytes at %#x: cannot be read: %v", a.length, a.uint64(), err)
		return
	}
	d.line(" %d: %x", a.length, b)
	if int(a.length) > len(b) {
		d.b.WriteString("…")
	}
}
