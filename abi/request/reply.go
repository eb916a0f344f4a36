package request

import (
	"github.com/goverbs/goverbs/abi"
)

// SetOut fills an output attribute and marks it as written. Bytes beyond the
// caller's buffer are dropped and the rest of a larger buffer keeps what it
// had, as in the kernel. An attribute that the request does not carry is no
// error: the caller did not ask.
func (r *Request) SetOut(id uint16, b []byte) error {
	a := r.find(id, abi.PtrOut)
	if a == nil {
		return nil
	}
	b = b[:min(len(b), int(a.length))]
	if len(b) > 0 {
		if err := r.mem.Write(a.uint64(), b); err != nil {
			return refuse(EFAULT, "%s: %d bytes at %#x: %v", a.desc.Name, len(b), a.uint64(), err)
		}
	}
	return r.markWritten(a)
}

// SetUint32 is SetOut for one number.
func (r *Request) SetUint32(id uint16, v uint32) error {
	var b [4]byte
	native.PutUint32(b[:], v)
	return r.SetOut(id, b[:])
}

// SetUint64 is SetOut for one number.
func (r *Request) SetUint64(id uint16, v uint64) error {
	var b [8]byte
	native.PutUint64(b[:], v)
	return r.SetOut(id, b[:])
}

// SetUHWOut fills the driver's opaque response.
func (r *Request) SetUHWOut(b []byte) error { return r.SetOut(abi.UVERBS_ATTR_UHW_OUT, b) }

// SetHandle writes the handle of a new object into its attribute. The kernel
// does so before it runs the method, so the caller must not trust it when
// the ioctl fails.
func (r *Request) SetHandle(id uint16, handle uint32) error {
	return r.setData(id, abi.HandleNew, uint64(handle))
}

// SetFD writes a new file descriptor into its attribute.
func (r *Request) SetFD(id uint16, fd int32) error {
	return r.setData(id, abi.FDNew, uint64(int64(fd)))
}

func (r *Request) setData(id uint16, kind abi.Kind, v uint64) error {
	a := r.find(id, kind)
	if a == nil {
		return nil
	}
	var b [8]byte
	native.PutUint64(b[:], v)
	if err := r.mem.Write(r.attrAddr(a)+offData, b[:]); err != nil {
		return refuse(EFAULT, "%s: cannot write the new object's number: %v", a.desc.Name, err)
	}
	return nil
}

// Finish does what the kernel does after a method that succeeded: it marks the
// opaque response as written, whether the driver wrote it or not.
func (r *Request) Finish() error {
	if a := r.find(abi.UVERBS_ATTR_UHW_OUT, abi.PtrOut); a != nil && r.Desc.UHW {
		return r.markWritten(a)
	}
	return nil
}

func (r *Request) markWritten(a *attr) error {
	a.flags |= abi.UVERBS_ATTR_F_VALID_OUTPUT
	var b [2]byte
	native.PutUint16(b[:], a.flags)
	if err := r.mem.Write(r.attrAddr(a)+offFlags, b[:]); err != nil {
		return refuse(EFAULT, "%s: cannot mark it as written: %v", a.desc.Name, err)
	}
	return nil
}

func (r *Request) attrAddr(a *attr) uint64 {
	return r.attrsAt + uint64(a.index)*abi.SizeofUverbsAttr
}
