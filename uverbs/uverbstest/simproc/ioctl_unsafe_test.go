//go:build linux && (amd64 || arm64)

package simproc_test

import (
	"syscall"
	"unsafe"
)

// ioctl is RDMA_VERBS_IOCTL.
func ioctl(fd int, request []byte) error {
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), 0xc0181b01, uintptr(unsafe.Pointer(&request[0]))); e != 0 {
		return e
	}
	return nil
}
