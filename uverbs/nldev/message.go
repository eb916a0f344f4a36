package nldev

import (
	"encoding/binary"
	"syscall"
)

// The framing of netlink, struct nlmsghdr and struct nlattr of linux/netlink.h.
// Everything begins at a multiple of four bytes.
const (
	headerSize     = 16
	attrHeaderSize = 4

	typeError = 2 // NLMSG_ERROR, also an acknowledgement
	typeDone  = 3 // NLMSG_DONE, behind the elements of a list

	flagRequest = 0x001 // NLM_F_REQUEST
	flagMulti   = 0x002 // NLM_F_MULTI: an element of a list
	flagAck     = 0x004 // NLM_F_ACK
	flagDump    = 0x300 // NLM_F_DUMP

	attrTypeMask = 0x3fff // NLA_TYPE_MASK: without the flags of an attribute's type
)

func aligned(n int) int { return (n + 3) &^ 3 }

// A header is what matters of struct nlmsghdr.
type header struct {
	typ, flags uint16
	seq        uint32
}

// An attribute is one attribute of a request.
type attribute struct {
	typ  uint16
	data []byte
}

func u32(typ uint16, x uint32) attribute {
	return attribute{typ, binary.NativeEndian.AppendUint32(nil, x)}
}

func str(typ uint16, s string) attribute { return attribute{typ, append([]byte(s), 0)} }

// appendMessage appends a message to the kernel. Its texts are no longer than
// names, so that lengths fit.
func appendMessage(b []byte, h header, attrs []attribute) []byte {
	begin := len(b)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint16(b, h.typ)
	b = binary.NativeEndian.AppendUint16(b, h.flags)
	b = binary.NativeEndian.AppendUint32(b, h.seq)
	b = binary.NativeEndian.AppendUint32(b, 0) // the kernel knows who asks
	for _, a := range attrs {
		b = binary.NativeEndian.AppendUint16(b, uint16(attrHeaderSize+len(a.data)))
		b = binary.NativeEndian.AppendUint16(b, a.typ)
		b = append(b, a.data...)
		b = append(b, make([]byte, aligned(len(a.data))-len(a.data))...)
	}
	binary.NativeEndian.PutUint32(b[begin:], uint32(len(b)-begin))
	return b
}

// nextMessage cuts the first message off what was received.
func nextMessage(b []byte) (h header, data, rest []byte, err error) {
	if len(b) < headerSize {
		return header{}, nil, nil, malformed("%d bytes behind the last message", len(b))
	}
	n := binary.NativeEndian.Uint32(b)
	if n < headerSize || int64(n) > int64(len(b)) {
		return header{}, nil, nil, malformed("a message of %d bytes in %d", n, len(b))
	}
	h = header{binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:]), binary.NativeEndian.Uint32(b[8:])}
	return h, b[headerSize:n], b[min(aligned(int(n)), len(b)):], nil
}

// errorOf is what an acknowledgement, or the end of a list, says: an errno,
// negated, is first in it. The end of a list may have none.
func errorOf(h header, data []byte) error {
	if len(data) == 0 && h.typ == typeDone {
		return nil
	}
	if len(data) < 4 {
		return malformed("an acknowledgement of %d bytes", len(data))
	}
	if errno := int32(binary.NativeEndian.Uint32(data)); errno != 0 {
		return syscall.Errno(-errno)
	}
	return nil
}
