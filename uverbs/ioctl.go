package uverbs

import (
	"errors"
	"os"
	"runtime"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Sizes and flags of include/uapi/rdma/rdma_user_ioctl.h.
const (
	headerSize    = 24
	attributeSize = 16

	attrMandatory = 1
)

// request builds one RDMA_VERBS_IOCTL call: a header and attributes. What the
// attributes point to is held in keep, which also forces it onto the heap: the
// kernel is told addresses as plain integers, and goroutine stacks move.
type request struct {
	buf  []byte
	keep [][]byte

	object, method uint16
	command        uint32
}

// newRequest begins a request for a native method. Inlined into all that ask the
// kernel for something, it and attribute were 9 kB of every program.
//
//go:noinline
func newRequest(driver uint32, object, method uint16) *request {
	r := &request{buf: make([]byte, headerSize, headerSize+12*attributeSize), object: object, method: method}
	native.PutUint16(r.buf[2:], object)
	native.PutUint16(r.buf[4:], method)
	native.PutUint32(r.buf[16:], driver)
	return r
}

// newCommand begins a request for a command of the older write interface,
// wrapped into an ioctl. in and out are the command's core structs; either may
// be nil.
func newCommand(driver, command uint32, in, out []byte) *request {
	r := newRequest(driver, abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE)
	r.command = command
	r.constant(abi.UVERBS_ATTR_WRITE_CMD, uint64(command))
	if in != nil {
		r.in(abi.UVERBS_ATTR_CORE_IN, in)
	}
	if out != nil {
		r.out(abi.UVERBS_ATTR_CORE_OUT, out)
	}
	return r
}

// attribute appends an attribute and returns where its 64-bit data word is.
//
//go:noinline
func (r *request) attribute(id uint16, n int) (data []byte) {
	at := len(r.buf)
	r.buf = append(r.buf, make([]byte, attributeSize)...)
	a := r.buf[at:]
	native.PutUint16(a[0:], id)
	native.PutUint16(a[2:], uint16(n))
	native.PutUint16(a[4:], attrMandatory)
	native.PutUint16(r.buf[0:], uint16(len(r.buf)))
	native.PutUint16(r.buf[6:], uint16((len(r.buf)-headerSize)/attributeSize))
	return a[8:16]
}

// optional lets kernels that do not know the last attribute ignore it.
func (r *request) optional() {
	native.PutUint16(r.buf[len(r.buf)-attributeSize+4:], 0)
}

// in passes b. Up to eight bytes travel in the attribute itself, as the kernel
// demands.
func (r *request) in(id uint16, b []byte) {
	data := r.attribute(id, len(b))
	if len(b) <= 8 {
		copy(data, b)
		return
	}
	r.point(data, b)
}

// out lets the kernel fill b, which is zeroed first: the kernel leaves the tail
// of a buffer that is longer than its struct alone.
func (r *request) out(id uint16, b []byte) {
	clear(b)
	r.point(r.attribute(id, len(b)), b)
}

func (r *request) point(data, b []byte) {
	r.keep = append(r.keep, b)
	native.PutUint64(data, address(b))
}

// in32 passes a 32-bit number.
func (r *request) in32(id uint16, v uint32) {
	native.PutUint32(r.attribute(id, 4), v)
}

// in64 passes a 64-bit number.
func (r *request) in64(id uint16, v uint64) { r.constant(id, v) }

// constant passes an enumeration value, which always has eight bytes.
func (r *request) constant(id uint16, v uint64) {
	native.PutUint64(r.attribute(id, 8), v)
}

// handle names an existing object.
func (r *request) handle(id uint16, h uint32) {
	native.PutUint64(r.attribute(id, 0), uint64(h))
}

// fd names an existing event file.
func (r *request) fd(id uint16, fd int) {
	native.PutUint64(r.attribute(id, 0), uint64(int64(fd)))
}

// create asks for a new object, or event file, whose handle result returns
// after the call.
func (r *request) create(id uint16) { r.attribute(id, 0) }

// result is the data word of attribute id after the call: a new handle or
// descriptor. It means something only if the call succeeded.
func (r *request) result(id uint16) uint64 {
	for at := headerSize; at < len(r.buf); at += attributeSize {
		if native.Uint16(r.buf[at:]) == id {
			return native.Uint64(r.buf[at+8:])
		}
	}
	return 0
}

// rearm makes a request that went through the kernel ready to go again: the
// kernel marks the output attributes that it filled.
func (r *request) rearm() {
	for at := headerSize; at < len(r.buf); at += attributeSize {
		native.PutUint16(r.buf[at+4:], attrMandatory)
	}
}

// run hands the request to the kernel and returns the bare errno.
func (r *request) run(f kernel.File) error {
	err := f.Ioctl(r.buf)
	runtime.KeepAlive(r)
	return err
}

// do runs a request on the device's file, under the eyes of the trace, and
// returns the bare errno.
func (d *Device) do(r *request) error {
	if d.trace == nil {
		return r.run(d.file)
	}
	d.trace.before(r)
	err := r.run(d.file)
	d.trace.after(r, err)
	return err
}

// call runs a request and wraps what goes wrong.
func (d *Device) call(op string, r *request) error { return d.failed(op, r, d.do(r)) }

// failed wraps the errno of a request.
func (d *Device) failed(op string, r *request, err error) error {
	if err == nil {
		return nil
	}
	switch err = kernelError(err); {
	case isDeviceGone(err):
	case d.lost.Load():
		err = ErrDeviceGone // and the file is closed, or the handle is of nothing
	case errors.Is(err, os.ErrClosed):
		return &Error{Op: op, Device: d.info.Name, Err: os.ErrClosed, Hint: "the device was closed"}
	}
	return &Error{Op: op, Device: d.info.Name, Object: r.object, Method: r.method, Command: r.command, Err: err}
}
