//go:build linux

package kernel

import (
	"io/fs"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// events is an event descriptor. It joins the Go runtime's poller with the first
// ReadWait: the poller would wake a thread of the program for every record,
// though a completion channel's records are waited for elsewhere.
type events struct {
	fd int
	// forgotten closes fd if the program forgets to, as an os.File does.
	forgotten runtime.Cleanup
	anchor    Anchor

	// mu is read-locked around every non-blocking read of fd: such a read
	// goes past f, whose own lock a parked ReadWait holds.
	mu     sync.RWMutex
	f      *os.File // of fd, once on the poller
	closed bool
}

// newEvents takes over fd; the caller keeps it when this fails.
func newEvents(fd int) (*events, error) {
	// The kernel makes event descriptors blocking. A descriptor must be
	// non-blocking before it meets os.NewFile, which looks once.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	if err := pollable(fd); err != nil {
		return nil, err
	}
	unix.CloseOnExec(fd)
	return takeEvents(fd), nil
}

// takeEvents is newEvents of a descriptor that is known to be all that it has to be.
func takeEvents(fd int) *events {
	e := &events{fd: fd}
	e.forgotten = e.anchor.OnCollect(func() { closeFD(fd) })
	return e
}

// pollable fails when epoll refuses fd: it would block a thread in every wait,
// and could not be woken by Close.
func pollable(fd int) error {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(set)
	err = unix.EpollCtl(set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
	if err == unix.EPERM {
		return ErrNotPollable
	}
	return err
}

// parking puts the descriptor on the runtime's poller, once.
func (e *events) parking() (*os.File, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		// Package os has an unexported error here.
		return nil, os.ErrClosed
	}
	if e.f == nil {
		e.forgotten.Stop()
		e.f = os.NewFile(uintptr(e.fd), "infinibandevent")
	}
	return e.f, nil
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
	f, err := e.parking()
	if err != nil {
		return 0, err
	}
	n, err := f.Read(p)
	if err != nil {
		return 0, bare(err)
	}
	return n, nil
}

// SetReadDeadline implements [EventFile].
func (e *events) SetReadDeadline(t time.Time) error {
	f, err := e.parking()
	if err != nil {
		return err
	}
	return bare(f.SetReadDeadline(t))
}

// FD implements [EventFile].
func (e *events) FD() int { return e.fd }

// PollFD implements [EventFile].
func (e *events) PollFD() int { return e.fd }

// Notify implements [EventFile]: the descriptor can be polled.
func (e *events) Notify(func()) {}

// Close implements [EventFile].
func (e *events) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return os.ErrClosed
	case e.f == nil:
		e.closed = true
		e.forgotten.Stop()
		closeFD(e.fd)
		return nil
	}
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
