package nldev

import (
	"encoding/binary"
	"syscall"

	"github.com/mdlayher/netlink"
)

// headerSize is that of struct nlmsghdr of linux/netlink.h.
const headerSize = 16

func u32(typ uint16, x uint32) netlink.Attribute {
	return netlink.Attribute{Type: typ, Data: binary.NativeEndian.AppendUint32(nil, x)}
}

func str(typ uint16, s string) netlink.Attribute {
	return netlink.Attribute{Type: typ, Data: append([]byte(s), 0)}
}

// makeMessage makes a message to the kernel, which knows who asks.
func makeMessage(h netlink.Header, attrs []netlink.Attribute) ([]byte, error) {
	data, err := netlink.MarshalAttributes(attrs)
	if err != nil {
		return nil, err
	}
	h.Length = uint32(headerSize + len(data))
	return netlink.Message{Header: h, Data: data}.MarshalBinary()
}

// nextMessage cuts the first message off what was received. Each takes a multiple of
// four bytes.
func nextMessage(b []byte) (m netlink.Message, rest []byte, err error) {
	if len(b) < headerSize {
		return m, nil, malformed("%d bytes behind the last message", len(b))
	}
	n := (uint64(binary.NativeEndian.Uint32(b)) + 3) &^ 3
	if n > uint64(len(b)) {
		return m, nil, malformed("a message of %d bytes in %d", n, len(b))
	}
	if err := m.UnmarshalBinary(b[:n]); err != nil {
		return m, nil, malformed("%v", err)
	}
	return m, b[n:], nil
}

// errorOf is what an acknowledgement, or the end of a list, says: an errno,
// negated, is first in it. The end of a list may have none.
func errorOf(m netlink.Message) error {
	if len(m.Data) == 0 && m.Header.Type == netlink.Done {
		return nil
	}
	if len(m.Data) < 4 {
		return malformed("an acknowledgement of %d bytes", len(m.Data))
	}
	if errno := int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
		return syscall.Errno(-errno)
	}
	return nil
}
