package uverbs

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

// The errors that programs test for with errors.Is. Each comes wrapped in text
// that says what was asked and what to do about it.
var (
	// ErrNotSupported: the kernel or the device's driver lacks a feature.
	ErrNotSupported = errors.New("not supported")
	// ErrInUse: an object cannot be closed while others stand on it.
	ErrInUse = errors.New("in use")
	// ErrQueueFull: a send or receive queue has no room for the request.
	ErrQueueFull = errors.New("queue full")
	// ErrCQFull: a completion queue cannot hold the completions of one more
	// queue pair.
	ErrCQFull = errors.New("completion queue too small")
	// ErrState: the queue pair is in a state that does not allow this.
	ErrState = errors.New("wrong queue pair state")
	// ErrBusy: another goroutine holds a role that only one can have.
	ErrBusy = errors.New("busy")
	// ErrDeviceGone: the device was removed or failed for good.
	ErrDeviceGone = errors.New("device gone")
	// ErrOverrun: a completion queue overflowed and lost completions.
	ErrOverrun = errors.New("completion queue overrun")
	// ErrInvalid: an argument is outside of what is allowed.
	ErrInvalid = errors.New("invalid argument")
	// ErrNoEvents: the completion queue was made without an event channel.
	ErrNoEvents = errors.New("completion queue has no event channel")
	// ErrBounds: a span or remote address lies outside its memory region.
	ErrBounds = errors.New("out of bounds")
)

// A reason is an error of the package with a text around it, as fmt.Errorf makes them; but the
// compiler makes it. Package fmt at the start of every program, for errors that few see, takes
// longer than all else that the package does then.
type reason struct {
	before string
	err    *error
	behind string
}

func (r *reason) Error() string { return r.before + (*r.err).Error() + r.behind }
func (r *reason) Unwrap() error { return *r.err }

// Error is a call to the kernel that failed. Err wraps the errno, so
// errors.Is(err, syscall.ENOMEM) works, and one of the package's errors where
// one fits.
type Error struct {
	// Op is what the program asked for, such as "create CQ".
	Op string
	// Device is the name of the device.
	Device string
	// Object, Method are the kernel's numbers of the request that failed;
	// for requests of the older write interface, both are zero and Command
	// is set.
	Object, Method uint16
	Command        uint32
	// Hint says what usually causes this and what to do. It may be empty.
	Hint string
	Err  error
}

// Error returns one line: operation, device, cause and hint.
func (e *Error) Error() string {
	s := "goverbs: "
	if e.Device != "" {
		s += e.Device + ": "
	}
	s += e.Op + ": " + e.Err.Error()
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// kernelError gives an errno of the kernel its meaning. EPROTONOSUPPORT is
// reserved for requests that the kernel does not know, EOPNOTSUPP for those
// that the driver does not have (facts of drivers/infiniband/core/uverbs_ioctl.c).
func kernelError(err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err
	}
	switch errno {
	case syscall.EPROTONOSUPPORT:
		return fmt.Errorf("%w by this kernel: %w", ErrNotSupported, err)
	case syscall.EOPNOTSUPP, syscall.ENOSYS:
		return fmt.Errorf("%w by this device's driver: %w", ErrNotSupported, err)
	case syscall.EIO, syscall.ENODEV:
		return fmt.Errorf("%w: %w", ErrDeviceGone, err)
	case syscall.EBUSY:
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return err
}

// invalid makes an ErrInvalid that says what was asked and what is allowed.
func invalid(format string, args ...any) error {
	return fmt.Errorf("goverbs: %w: "+format, append([]any{ErrInvalid}, args...)...)
}

// isErrno says whether err is, or wraps, one of the given errno values.
func isErrno(err error, any ...syscall.Errno) bool {
	errno, bare := err.(syscall.Errno) // without errors.As, whose target is on the heap
	return bare && slices.Contains(any, errno) || err != nil && !bare && wrapsErrno(err, any)
}

func wrapsErrno(err error, any []syscall.Errno) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains(any, errno)
}
