package nldev

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// receive is recv(2) with MSG_TRUNC, and like it returns the size of a datagram
// that does not fit. unix.Recvfrom would want the sender's address, and so the
// code for the addresses of all families.
func receive(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_TRUNC, 0, 0)
	return int(n), errno
}
