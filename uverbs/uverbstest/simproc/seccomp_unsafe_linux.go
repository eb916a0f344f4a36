//go:build amd64 || arm64

package simproc

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif of linux/seccomp.h: a system call that waits for
// an answer. PID is a thread's, 0 where it is not visible from here.
type notification struct {
	ID    uint64
	PID   uint32
	Flags uint32
	Nr    int32
	Arch  uint32
	IP    uint64
	Args  [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	ID    uint64
	Val   int64
	Error int32
	Flags uint32
}

// addition is struct seccomp_notif_addfd.
type addition struct {
	ID                            uint64
	Flags, SrcFD, NewFD, NewFlags uint32
}

// The ioctls that package unix has not.
const (
	notifyValid = 0x40082102 // SECCOMP_IOCTL_NOTIF_ID_VALID
	notifyAddFD = 0x40182103 // SECCOMP_IOCTL_NOTIF_ADDFD
)

// listenerFlags are those of the filter. Without WAIT_KILLABLE_RECV a signal would
// take a call back that is being answered, and have it arrive a second time.
const listenerFlags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV

// probe says whether the kernel knows what is needed of it: flags are checked before
// the program is read, which is not there.
func probe() error {
	_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, listenerFlags, 0)
	switch e {
	case unix.EFAULT:
		return nil
	case unix.EINVAL:
		return fmt.Errorf("simproc: this kernel has no seccomp notifications that signals do not disturb (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV): it takes Linux 5.19 or later: %w", errors.ErrUnsupported)
	}
	return fmt.Errorf("simproc: seccomp: %w (a kernel without CONFIG_SECCOMP_FILTER, or a sandbox that forbids it): %w", e, errors.ErrUnsupported)
}

// install puts a filter on the calling thread, and returns the file that its
// notifications come from.
func install(filter []unix.SockFilter) (int, error) {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, listenerFlags, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

// receive waits for a notification.
func receive(fd int, n *notification) error {
	*n = notification{} // the kernel insists
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(n)))
	return errnoOrNil(e)
}

// answer ends the call that waits.
func answer(fd int, r *response) error {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(r)))
	return errnoOrNil(e)
}

// addFD gives the process that waits a descriptor. The result is its number there.
func addFD(fd int, a *addition) (int, error) {
	n, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), notifyAddFD, uintptr(unsafe.Pointer(a)))
	return int(n), errnoOrNil(e)
}

// valid says whether the call still waits, so that its thread is the one that it was.
func valid(fd int, id uint64) bool {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), notifyValid, uintptr(unsafe.Pointer(&id)))
	return e == 0
}

func errnoOrNil(e syscall.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}

// statBytes are the bytes of a struct stat.
func statBytes(st *unix.Stat_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(st)), unsafe.Sizeof(*st))
}

// registerAt is the eight bytes at an offset of a page, which the program writes too.
func registerAt(page []byte, offset int) *uint64 {
	_ = page[offset+7]
	return (*uint64)(unsafe.Pointer(&page[offset]))
}

// wordAt is the four bytes at an offset of a page.
func wordAt(page []byte, offset int) *uint32 {
	_ = page[offset+3]
	return (*uint32)(unsafe.Pointer(&page[offset]))
}
