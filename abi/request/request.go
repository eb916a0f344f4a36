package request

import (
	"slices"

	"github.com/goverbs/goverbs/abi"
)

// A Request is one ioctl that passed the kernel's checks.
type Request struct {
	// Desc describes the method that is asked for.
	Desc *abi.Method

	mem     Memory
	attrsAt uint64 // address of the first attribute
	attrs   []attr // those that the method knows
}

// attr is an attribute as it came, and a copy of what it points to.
type attr struct {
	desc     *abi.Attr
	index    int // place in the request
	length   uint16
	flags    uint16
	elem     uint8
	reserved uint8
	data     [8]byte
	in       []byte
}

func (a *attr) uint64() uint64 { return native.Uint64(a.data[:]) }
func (a *attr) int64() int64   { return int64(a.uint64()) }

// find returns an attribute when it is there and of one of the kinds.
func (r *Request) find(id uint16, kinds ...abi.Kind) *attr {
	for i := range r.attrs {
		if a := &r.attrs[i]; a.desc.ID == id && (len(kinds) == 0 || slices.Contains(kinds, a.desc.Kind)) {
			return a
		}
	}
	return nil
}

// Is says whether the request asks for a method.
func (r *Request) Is(object, method uint16) bool {
	return r.Desc.Object == object && r.Desc.ID == method
}

// Has says whether the request carries an attribute that the method knows.
func (r *Request) Has(id uint16) bool { return r.find(id) != nil }

// In returns the bytes of an input attribute, and whether it is there. The
// bytes are a copy; the caller may keep and change them.
func (r *Request) In(id uint16) ([]byte, bool) {
	a := r.find(id, abi.PtrIn, abi.ConstIn, abi.FlagsIn, abi.EnumIn)
	if a == nil {
		return nil, false
	}
	return a.in, true
}

// Uint32 returns an input attribute of exactly four bytes as a number.
func (r *Request) Uint32(id uint16) (uint32, bool) {
	if b, ok := r.In(id); ok && len(b) == 4 {
		return native.Uint32(b), true
	}
	return 0, false
}

// Uint64 returns an input attribute of exactly eight bytes as a number.
func (r *Request) Uint64(id uint16) (uint64, bool) {
	if b, ok := r.In(id); ok && len(b) == 8 {
		return native.Uint64(b), true
	}
	return 0, false
}

// Const returns the number of a ConstIn attribute.
func (r *Request) Const(id uint16) (uint64, bool) {
	if r.find(id, abi.ConstIn) == nil {
		return 0, false
	}
	return r.Uint64(id)
}

// Flags returns the bits of a FlagsIn attribute, in either of its lengths. No
// attribute means no bits. A length between the two is EINVAL, as are bits outside
// allowed.
func (r *Request) Flags(id uint16, allowed uint64) (uint64, error) {
	a := r.find(id, abi.FlagsIn)
	if a == nil {
		return 0, nil
	}
	var v uint64
	switch len(a.in) {
	case 8:
		v = native.Uint64(a.in)
	case 4:
		v = uint64(native.Uint32(a.in))
	default:
		return 0, refuse(EINVAL, "%s: flags have 4 or 8 bytes, not %d", a.desc.Name, len(a.in))
	}
	if v&^allowed != 0 {
		return 0, refuse(EINVAL, "%s: unknown bits %#x", a.desc.Name, v&^allowed)
	}
	return v, nil
}

// Handle returns the object handle of an attribute of kind Handle or HandleDestroy.
func (r *Request) Handle(id uint16) (uint32, bool) {
	a := r.find(id, abi.Handle, abi.HandleDestroy)
	if a == nil {
		return 0, false
	}
	return uint32(a.uint64()), true
}

// Handles returns the handles of an array attribute.
func (r *Request) Handles(id uint16) ([]uint32, bool) {
	a := r.find(id, abi.Handles)
	if a == nil {
		return nil, false
	}
	hs := make([]uint32, len(a.in)/4)
	for i := range hs {
		hs[i] = native.Uint32(a.in[4*i:])
	}
	return hs, true
}

// FD returns the descriptor of an attribute of kind FD or RawFD. It may be negative.
func (r *Request) FD(id uint16) (int32, bool) {
	a := r.find(id, abi.FD, abi.RawFD)
	if a == nil {
		return 0, false
	}
	return int32(a.int64()), true
}

// OutLen returns how many bytes the buffer of an output attribute has.
func (r *Request) OutLen(id uint16) (int, bool) {
	a := r.find(id, abi.PtrOut)
	if a == nil {
		return 0, false
	}
	return int(a.length), true
}

// UHWIn returns the driver's opaque request; it is empty when there is none.
func (r *Request) UHWIn() []byte {
	b, _ := r.In(abi.UVERBS_ATTR_UHW_IN)
	return b
}

// UHWOutLen returns how many bytes of opaque response the caller has room for.
func (r *Request) UHWOutLen() int {
	n, _ := r.OutLen(abi.UVERBS_ATTR_UHW_OUT)
	return n
}
