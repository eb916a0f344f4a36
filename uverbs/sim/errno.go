package sim

import (
	"errors"
	"runtime"
	"syscall"

	"github.com/goverbs/goverbs/abi/request"
)

// errnos are the errors of this system by Linux's numbers for them
// (include/uapi/asm-generic/errno.h). They are interfaces, because numbers of some systems do not become
// one without an allocation.
var errnos = [...]error{
	1: syscall.EPERM, 2: syscall.ENOENT, 4: syscall.EINTR, 5: syscall.EIO, 6: syscall.ENXIO, 7: syscall.E2BIG,
	9: syscall.EBADF, 11: syscall.EAGAIN, 12: syscall.ENOMEM, 13: syscall.EACCES, 14: syscall.EFAULT,
	16: syscall.EBUSY, 17: syscall.EEXIST, 19: syscall.ENODEV, 22: syscall.EINVAL, 24: syscall.EMFILE, 25: syscall.ENOTTY,
	28: syscall.ENOSPC, 33: syscall.EDOM, 34: syscall.ERANGE, 38: syscall.ENOSYS, 61: syscall.ENODATA, 75: syscall.EOVERFLOW, 90: syscall.EMSGSIZE,
	93: syscall.EPROTONOSUPPORT, 95: syscall.EOPNOTSUPP, 97: syscall.EAFNOSUPPORT, 99: syscall.EADDRNOTAVAIL,
	100: syscall.ENETDOWN, 101: syscall.ENETUNREACH, 110: syscall.ETIMEDOUT, 111: syscall.ECONNREFUSED, 113: syscall.EHOSTUNREACH,
}

// errnoOf is the error of this system. A number that only Linux has stays what it is:
// another system would give it another meaning.
func errnoOf(n request.Errno) error {
	switch {
	case int64(n) < int64(len(errnos)) && errnos[n] != nil:
		return errnos[n]
	case runtime.GOOS == "linux":
		return syscall.Errno(n)
	}
	return n
}

// systemError makes an error of the model one of this system.
func systemError(err error) error {
	if err == nil {
		return nil
	}
	if n, ok := err.(request.Errno); ok { // without the allocation of errors.As
		return errnoOf(n)
	}
	var why *request.Error
	if errors.As(err, &why) {
		return &refusal{why.Reason, errnoOf(why.Errno)}
	}
	var n request.Errno
	if errors.As(err, &n) {
		return errnoOf(n)
	}
	return err
}

// refusal is an errno and what was wrong with the request.
type refusal struct {
	reason string
	errno  error
}

func (r *refusal) Error() string { return r.reason + ": " + r.errno.Error() }

func (r *refusal) Unwrap() error { return r.errno }
