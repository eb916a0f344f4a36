package request

import (
	"encoding/binary"
	"math"

	"github.com/goverbs/goverbs/abi"
)

// Memory is the address space of the program that makes a request. Read and
// Write fail, or do less, when part of the range is not there; the request is then
// refused with EFAULT. A range that wraps around the end of the address space must fail.
type Memory interface {
	Read(addr uint64, p []byte) error
	Write(addr uint64, p []byte) error
}

// Config says what kind of kernel and device reads the request.
type Config struct {
	// Driver is the RDMA_DRIVER_ number of the device. The request must carry it.
	Driver uint32
	// PageSize bounds the length of a request. Zero means 4096.
	PageSize int
	// Supports says whether the device has a method that the schema knows. Nil
	// means that it has all of its driver's.
	Supports func(*abi.Method) bool
}

// Offsets inside struct ib_uverbs_attr. The layout is read from bytes here, not
// through abi's structs, so that request and builder do not share a mistake.
const (
	offFlags    = 4
	offElemID   = 6
	offReserved = 7
	offData     = 8
	inlineBytes = 8
)

var native = binary.NativeEndian

// Read checks the request at addr and returns what it asks for. The checks
// and their order are those of the kernel's ib_uverbs_ioctl; an error is
// what the kernel would return before it ran the method.
func Read(mem Memory, addr uint64, c *Config) (*Request, error) {
	var hdr [abi.SizeofUverbsIoctlHdr]byte
	if err := mem.Read(addr, hdr[:]); err != nil {
		return nil, refuse(EFAULT, "header at %#x: %v", addr, err)
	}
	length, num := native.Uint16(hdr[0:]), native.Uint16(hdr[6:])
	page := c.PageSize
	if page == 0 {
		page = 4096
	}
	if want := len(hdr) + int(num)*abi.SizeofUverbsAttr; int(length) != want || want > page {
		return nil, refuse(EINVAL, "length is %d, but a header and %d attributes have %d bytes, of at most %d", length, num, want, page)
	}
	if native.Uint64(hdr[8:]) != 0 || native.Uint32(hdr[20:]) != 0 {
		return nil, refuse(EPROTONOSUPPORT, "a reserved word of the header is not zero")
	}
	if d := native.Uint32(hdr[16:]); d != c.Driver {
		return nil, refuse(EINVAL, "driver id is %v, the device's is %v", abi.RdmaDriverID(d), abi.RdmaDriverID(c.Driver))
	}
	object, method := native.Uint16(hdr[2:]), native.Uint16(hdr[4:])
	desc, ok := abi.LookupMethod(c.Driver, object, method)
	if !ok || c.Supports != nil && !c.Supports(desc) {
		return nil, refuse(EPROTONOSUPPORT, "the device has no method %d of %s", method, abi.ObjectName(c.Driver, object))
	}
	r := &Request{Desc: desc, mem: mem, attrsAt: addr + uint64(len(hdr))}
	raw := make([]byte, int(num)*abi.SizeofUverbsAttr)
	if err := mem.Read(r.attrsAt, raw); err != nil {
		return nil, refuse(EFAULT, "%d attributes at %#x: %v", num, r.attrsAt, err)
	}
	for i := range int(num) {
		if err := r.add(i, raw[i*abi.SizeofUverbsAttr:][:abi.SizeofUverbsAttr]); err != nil {
			return nil, err
		}
	}
	for i := range desc.Attrs {
		if a := &desc.Attrs[i]; a.Mandatory && !r.Has(a.ID) {
			return nil, refuse(EINVAL, "%s lacks %s", desc.Name, a.Name)
		}
	}
	return r, r.copyIn()
}

// add checks one attribute and records it.
func (r *Request) add(index int, raw []byte) error {
	id := native.Uint16(raw)
	desc, ok := r.Desc.Attr(id)
	if !ok {
		if native.Uint16(raw[offFlags:])&abi.UVERBS_ATTR_F_MANDATORY != 0 {
			return refuse(EPROTONOSUPPORT, "%s knows no attribute %#x, and the request calls it mandatory", r.Desc.Name, id)
		}
		return nil
	}
	if r.Has(id) {
		return refuse(EINVAL, "%s is there twice", desc.Name)
	}
	a := attr{desc: desc, index: index, length: native.Uint16(raw[2:]), flags: native.Uint16(raw[offFlags:]), elem: raw[offElemID], reserved: raw[offReserved]}
	copy(a.data[:], raw[offData:])
	if err := r.checkAttr(&a); err != nil {
		return err
	}
	r.attrs = append(r.attrs, a)
	return nil
}

// checkAttr applies the rules of the attribute's kind, in the kernel's order: a request that breaks two of them gets the
// same errno.
func (r *Request) checkAttr(a *attr) error {
	switch d := a.desc; d.Kind {
	case abi.EnumIn:
		if int(a.elem) >= len(d.Variants) {
			return refuse(EOPNOTSUPP, "%s has no variant %d", d.Name, a.elem)
		}
		if a.reserved != 0 {
			return refuse(EINVAL, "%s: the reserved byte is not zero", d.Name)
		}
		if want := d.Variants[a.elem]; a.length != want {
			return refuse(EINVAL, "%s: variant %d has %d bytes, not %d", d.Name, a.elem, want, a.length)
		}
		return nil
	case abi.PtrIn, abi.ConstIn, abi.FlagsIn:
		if a.length > d.MaxLen && d.ZeroTail && !r.zeroTail(a) {
			return refuse(EOPNOTSUPP, "%s: the bytes after the %d that are known are not zero", d.Name, d.MaxLen)
		}
		if err := checkLength(a); err != nil {
			return err
		}
		if err := checkReserved(a); err != nil || !d.Copied {
			return err
		}
		return r.copyAttr(a)
	case abi.PtrOut:
		if err := checkLength(a); err != nil {
			return err
		}
		return checkReserved(a)
	case abi.Handles:
		if err := checkReserved(a); err != nil {
			return err
		}
		if a.length%4 != 0 {
			return refuse(EINVAL, "%s: %d bytes are no array of 32-bit handles", d.Name, a.length)
		}
		if err := checkLength(a); err != nil {
			return err
		}
		return r.copyAttr(a)
	}
	return checkObject(a)
}

// checkObject is for the attributes that name or make an object or a file.
func checkObject(a *attr) error {
	if err := checkReserved(a); err != nil {
		return err
	}
	d, v := a.desc, a.int64()
	switch {
	case a.length != 0:
		return refuse(EINVAL, "%s: length is %d and must be 0 for kind %v", d.Name, a.length, d.Kind)
	case d.Kind == abi.HandleNew || d.Kind == abi.FDNew:
		return nil // Data is for the answer
	case d.Kind == abi.FD || d.Kind == abi.RawFD:
		if v < math.MinInt32 || v > math.MaxInt32 {
			return refuse(EINVAL, "%s: %d is no file descriptor", d.Name, v)
		}
	case v < 0:
		return refuse(EINVAL, "%s: %d is no handle", d.Name, v)
	case v > math.MaxUint32:
		return refuse(ENOENT, "%s: no handle is as large as %d", d.Name, v)
	}
	return nil
}

func checkReserved(a *attr) error {
	if a.elem != 0 || a.reserved != 0 {
		return refuse(EINVAL, "%s: elem_id and the reserved byte are %d and %d, and must be 0 for kind %v", a.desc.Name, a.elem, a.reserved, a.desc.Kind)
	}
	return nil
}

func checkLength(a *attr) error {
	d := a.desc
	if a.length < d.MinLen || a.length > d.MaxLen && !d.ZeroTail {
		return refuse(EINVAL, "%s: %d bytes, want %d to %d", d.Name, a.length, d.MinLen, d.MaxLen)
	}
	return nil
}

// zeroTail looks at the bytes that this kernel does not know. Memory that cannot be read counts as not zero, as
// in the kernel.
func (r *Request) zeroTail(a *attr) bool {
	tail := a.data[min(a.desc.MaxLen, inlineBytes):min(a.length, inlineBytes)]
	if a.length > inlineBytes {
		tail = make([]byte, a.length-a.desc.MaxLen)
		at := a.uint64() + uint64(a.desc.MaxLen)
		if at < a.uint64() || r.mem.Read(at, tail) != nil {
			return false
		}
	}
	return allZero(tail)
}

func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// copyIn takes the inputs out of the caller's memory that were not copied yet. The kernel does so inside the method,
// after all other checks.
func (r *Request) copyIn() error {
	for i := range r.attrs {
		a := &r.attrs[i]
		if a.desc.Copied {
			continue
		}
		switch a.desc.Kind {
		case abi.PtrIn, abi.ConstIn, abi.FlagsIn, abi.EnumIn:
			if err := r.copyAttr(a); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Request) copyAttr(a *attr) error {
	if a.length <= inlineBytes {
		a.in = a.data[:a.length]
		return nil
	}
	a.in = make([]byte, a.length)
	if err := r.mem.Read(a.uint64(), a.in); err != nil {
		return refuse(EFAULT, "%s: %d bytes at %#x: %v", a.desc.Name, a.length, a.uint64(), err)
	}
	return nil
}
