package sim

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi/request"
)

// Whatever numbers the system has, the names are the same.
func TestErrnos(t *testing.T) {
	for n, want := range map[request.Errno]syscall.Errno{
		request.EPERM: syscall.EPERM, request.ENOENT: syscall.ENOENT, request.EINTR: syscall.EINTR, request.EIO: syscall.EIO, request.EBADF: syscall.EBADF,
		request.EAGAIN: syscall.EAGAIN, request.ENOMEM: syscall.ENOMEM, request.EACCES: syscall.EACCES, request.EFAULT: syscall.EFAULT,
		request.EBUSY: syscall.EBUSY, request.EINVAL: syscall.EINVAL, request.ENOTTY: syscall.ENOTTY, request.ENOSPC: syscall.ENOSPC, request.ENOSYS: syscall.ENOSYS,
		request.ENODATA: syscall.ENODATA, request.EPROTONOSUPPORT: syscall.EPROTONOSUPPORT, request.EOPNOTSUPP: syscall.EOPNOTSUPP,
		// What package request has no name for and package uverbs asks for.
		6: syscall.ENXIO, 19: syscall.ENODEV, 97: syscall.EAFNOSUPPORT, 101: syscall.ENETUNREACH, 110: syscall.ETIMEDOUT, 113: syscall.EHOSTUNREACH,
	} {
		for _, err := range []error{n, fmt.Errorf("wrapped: %w", n), &request.Error{Errno: n, Reason: "why"}} {
			var errno syscall.Errno
			if got := systemError(err); !errors.As(got, &errno) || errno != want {
				t.Errorf("%v: %v, want %v", err, got, want)
			}
		}
		if got := systemError(n); got != error(want) {
			t.Errorf("%v is not bare: %v", n, got)
		}
	}
	var seen []error
	for n, err := range errnos {
		if err == nil {
			continue
		}
		if slices.Contains(seen, err) {
			t.Errorf("%d is %v, which another number is", n, err)
		}
		seen = append(seen, err)
		if runtime.GOOS == "linux" && !strings.HasPrefix(runtime.GOARCH, "mips") && err != error(syscall.Errno(n)) {
			t.Errorf("%d is %d", n, err)
		}
	}
	// Numbers that have no name here.
	for _, n := range []request.Errno{0, 3, 9999, 1 << 31} {
		var errno syscall.Errno
		err := systemError(n)
		if linux := runtime.GOOS == "linux"; err == nil || errors.As(err, &errno) != linux || linux && errno != syscall.Errno(n) {
			t.Errorf("number %d: %v", n, err)
		}
	}
	if err := systemError(os.ErrClosed); err != os.ErrClosed {
		t.Errorf("%v", err)
	}
	if err := systemError(nil); err != nil {
		t.Errorf("%v", err)
	}
}
