//go:build linux

package kernel

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// events is an event descriptor on the Go runtime's poller.
type events struct {
	f  *os.File
	fd int

	// mu is read-locked around every non-blocking read of fd: such a read
	// goes past f, whose own lock a parked ReadWait holds.
	mu     sync.RWMutex
	closed bool
}

// newEvents takes over taken. It works on a duplicate, because an os.File can
// not give a descriptor back, and the caller keeps taken when this fails.
func newEvents(taken int) (*events, error) {
	// The kernel makes event descriptors blocking. A descriptor must be
	// non-blocking before it meets os.NewFile, which looks once.
	if err := unix.SetNonblock(taken, true); err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(uintptr(taken), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	e := &events{f: os.NewFile(uintptr(fd), "infinibandevent"), fd: fd}
	// A descriptor that epoll refuses would block a thread in every
	// ReadWait and could not be woken by Close.
	if err := e.f.SetReadDeadline(time.Time{}); err != nil {
		e.f.Close()
		if errors.Is(err, os.ErrNoDeadline) {
			return nil, ErrNotPollable
		}
		return nil, bare(err)
	}
	closeFD(taken)
	return e, nil
}

// Read implements [EventFile].
func (e *events) Read(p []byte) (int, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return 0, os.ErrClosed
	}
	for {
		n, err := unix.Read(e.fd, p)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n == 0 && len(p) > 0 {
			// The kernel has no end of file here: an event file
			// without a device says EIO.
			return 0, syscall.EIO
		}
		return n, nil
	}
}

// ReadWait implements [EventFile].
func (e *events) ReadWait(p []byte) (int, error) {
	n, err := e.f.Read(p)
	if err != nil {
		return 0, bare(err)
	}
	return n, nil
}

// SetReadDeadline implements [EventFile].
func (e *events) SetReadDeadline(t time.Time) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		// Package os has an unexported error here.
		return os.ErrClosed
	}
	return bare(e.f.SetReadDeadline(t))
}

// FD implements [EventFile].
func (e *events) FD() int { return e.fd }

// Close implements [EventFile].
func (e *events) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return bare(e.f.Close())
}

// bare takes the wrapping off an error of package os, whose text names a file
// that no user of the library knows.
func bare(err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		return pe.Err
	}
	return err
}
