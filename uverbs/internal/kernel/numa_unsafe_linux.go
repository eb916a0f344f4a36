package kernel

import (
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wordBits is the size of a C long.
const wordBits = bits.UintSize

// The numbers of linux/mempolicy.h.
const (
	mpolPreferred = 1
	mpolFNode     = 1 << 0
	mpolFAddr     = 1 << 1
)

// preferNode lets the pages of b, which do not exist yet, come from a node if it
// has room.
func preferNode(b []byte, node int) error {
	mask, err := nodeMask(node)
	if err != nil {
		return err
	}
	// The kernel takes one bit less than it is told.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), mpolPreferred,
		uintptr(unsafe.Pointer(&mask)), maxNodes+1, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// nodeOf is the node of the page at p. A page that does not exist is made.
func nodeOf(p *byte) (int, error) {
	var node int32
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&node)), 0, 0,
		uintptr(unsafe.Pointer(p)), mpolFNode|mpolFAddr, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(node), nil
}

// mincore tells of each small page of b, in the low bit of a byte, whether it
// exists.
func mincore(b, resident []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&resident[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
