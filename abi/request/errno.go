package request

import (
	"errors"
	"fmt"
	"strconv"
)

// Errno is a Linux error number. It is a type of this package, not of package
// syscall, so that requests can be checked on any system.
type Errno uint32

// The error numbers that the uverbs ioctl returns.
const (
	EPERM           Errno = 1
	ENOENT          Errno = 2
	EINTR           Errno = 4
	EIO             Errno = 5
	EBADF           Errno = 9
	EAGAIN          Errno = 11
	ENOMEM          Errno = 12
	EACCES          Errno = 13
	EFAULT          Errno = 14
	EBUSY           Errno = 16
	EINVAL          Errno = 22
	ENOTTY          Errno = 25
	ENOSPC          Errno = 28
	ENOSYS          Errno = 38
	ENODATA         Errno = 61
	EPROTONOSUPPORT Errno = 93
	EOPNOTSUPP      Errno = 95
)

var errnoNames = [...]string{
	EPERM: "EPERM", ENOENT: "ENOENT", EINTR: "EINTR", EIO: "EIO", EBADF: "EBADF", EAGAIN: "EAGAIN", ENOMEM: "ENOMEM",
	EACCES: "EACCES", EFAULT: "EFAULT", EBUSY: "EBUSY", EINVAL: "EINVAL", ENOTTY: "ENOTTY", ENOSPC: "ENOSPC",
	ENOSYS: "ENOSYS", ENODATA: "ENODATA", EPROTONOSUPPORT: "EPROTONOSUPPORT", EOPNOTSUPP: "EOPNOTSUPP",
}

// String returns the name of the number, such as EINVAL, or errno(N).
func (e Errno) String() string {
	if e < Errno(len(errnoNames)) && errnoNames[e] != "" {
		return errnoNames[e]
	}
	return "errno(" + strconv.FormatUint(uint64(e), 10) + ")"
}

// Error makes an Errno an error by itself. It is the same as String.
func (e Errno) Error() string { return e.String() }

// Error is a request that the kernel would refuse.
type Error struct {
	Errno  Errno
	Reason string // which part of the request broke which rule
}

// Error returns the reason, then the name of the number.
func (e *Error) Error() string { return "request: " + e.Reason + ": " + e.Errno.String() }

// Unwrap returns the Errno, so that errors.Is(err, request.EINVAL) works.
func (e *Error) Unwrap() error { return e.Errno }

func refuse(n Errno, format string, args ...any) error {
	return &Error{n, fmt.Sprintf(format, args...)}
}

// ErrnoOf returns the number that ioctl returns for an error: 0 for nil, the
// Errno that err is or wraps, and EIO for any other error.
func ErrnoOf(err error) Errno {
	var n Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &n):
		return n
	}
	return EIO
}
