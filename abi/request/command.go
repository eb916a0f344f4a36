package request

import (
	"math"

	"github.com/goverbs/goverbs/abi"
)

// IsWrite says whether the request is INVOKE_WRITE, the envelope of the older
// write commands.
func (r *Request) IsWrite() bool {
	return r.Is(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE)
}

// Command returns the write command that an INVOKE_WRITE request carries and its
// request struct. The struct of a plain command, and of one with a Tail, has at
// least Command.In bytes. The kernel takes extended commands with less on either
// side: what is absent of the request is zero, and the response is cut off. Errors
// are the kernel's: EINVAL for a number with unknown bits, EOPNOTSUPP for a
// command that does not exist, ENOSPC for buffers that are too small.
//
// Supports says whether the device has a command; nil means that it has all.
func (r *Request) Command(supports func(*abi.Command) bool) (*abi.Command, []byte, error) {
	if !r.IsWrite() {
		return nil, nil, refuse(EINVAL, "%s is no INVOKE_WRITE", r.Desc.Name)
	}
	number, _ := r.Const(abi.UVERBS_ATTR_WRITE_CMD)
	if number > math.MaxUint32 || number&^(abi.IB_USER_VERBS_CMD_FLAG_EXTENDED|abi.IB_USER_VERBS_CMD_COMMAND_MASK) != 0 {
		return nil, nil, refuse(EINVAL, "write command %#x has unknown bits", number)
	}
	c, ok := abi.LookupCommand(uint32(number))
	if !ok || supports != nil && !supports(c) {
		return nil, nil, refuse(EOPNOTSUPP, "the device has no write command %#x", number)
	}
	in, _ := r.In(abi.UVERBS_ATTR_CORE_IN)
	room, _ := r.OutLen(abi.UVERBS_ATTR_CORE_OUT)
	extended := c.Number&abi.IB_USER_VERBS_CMD_FLAG_EXTENDED != 0
	if len(in) < int(c.In) && (!extended || c.Tail) || room < int(c.Out) && !extended {
		return nil, nil, refuse(ENOSPC, "%s: %d bytes in and room for %d out, want %d and %d", c.Name, len(in), room, c.In, c.Out)
	}
	return c, in, nil
}

// Fill copies the request struct of a write command into dst, the bytes of the
// struct that the caller knows. A shorter one is filled up with zeros; the
// bytes of a longer one that dst has no room for must be zero, otherwise
// the error is EOPNOTSUPP. It is for commands without a Tail.
func Fill(c *abi.Command, dst, in []byte) error {
	n := copy(dst, in)
	clear(dst[n:])
	if !allZero(in[n:]) {
		return refuse(EOPNOTSUPP, "%s: the bytes after the %d that are known are not zero", c.Name, n)
	}
	return nil
}

// SetCoreOut fills the response of a write command.
func (r *Request) SetCoreOut(b []byte) error { return r.SetOut(abi.UVERBS_ATTR_CORE_OUT, b) }
