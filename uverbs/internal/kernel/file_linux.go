//go:build linux

package kernel

import (
	"encoding/binary"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// verbsIoctl is RDMA_VERBS_IOCTL of rdma/rdma_user_ioctl.h:
	// _IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr). Architectures encode the
	// direction bits in two ways (mips, powerpc and sparc use three bits),
	// but "read and write" comes out as the two top bits in both.
	verbsIoctl = 0xc0000000 | headerSize<<16 | 0x1b<<8 | 1

	// headerSize is the size of struct ib_uverbs_ioctl_hdr.
	headerSize = 24
)

// file is an open uverbs character device. The descriptor is not pollable
// (epoll refuses it), so it stays a plain number: an os.File would add nothing.
type file struct {
	// mu is read-locked around every use of fd, so that Close cannot hand
	// the number to somebody else in the middle of a call.
	mu     sync.RWMutex
	fd     int
	closed bool
}

// Ioctl implements [File].
func (f *file) Ioctl(req []byte) error {
	// The kernel trusts the header's length for what it reads and writes
	// back, so a request that lies about itself would let it write into
	// whatever lies behind the slice.
	if len(req) < headerSize || int(binary.NativeEndian.Uint16(req)) != len(req) {
		return syscall.EINVAL
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return os.ErrClosed
	}
	return ioctl(f.fd, req)
}

// Write implements [File].
func (f *file) Write(req []byte) error {
	if len(req) == 0 {
		return syscall.EINVAL
	}
	// Without defer, which takes longer than all else that is done here.
	f.mu.RLock()
	if f.closed {
		f.mu.RUnlock()
		return os.ErrClosed
	}
	n, errno := write(f.fd, &req[0], len(req))
	for errno == syscall.EINTR {
		n, errno = write(f.fd, &req[0], len(req))
	}
	f.mu.RUnlock()
	switch {
	case errno != 0:
		return errno
	case n != len(req):
		return io.ErrShortWrite
	}
	return nil
}

// Map implements [File].
func (f *file) Map(offset int64, n int) (*Mapping, error) {
	return f.mapped(offset, n, unix.PROT_READ|unix.PROT_WRITE)
}

// MapRead implements [File].
func (f *file) MapRead(offset int64, n int) (*Mapping, error) {
	return f.mapped(offset, n, unix.PROT_READ)
}

func (f *file) mapped(offset int64, n, prot int) (*Mapping, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return nil, os.ErrClosed
	}
	if n <= 0 {
		return nil, syscall.EINVAL
	}
	r, err := mapShared(f.fd, offset, n, prot)
	if err != nil {
		return nil, err
	}
	return r.mapping(true), nil
}

// Events implements [File].
func (f *file) Events(fd int) (EventFile, error) { return newEvents(fd) }

// CloseFD implements [File].
func (f *file) CloseFD(fd int) error { return closeFD(fd) }

// Close implements [File]. It waits for calls that are inside the kernel.
func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	f.closed = true
	return closeFD(f.fd)
}

// closeFD closes a descriptor. Linux has released it also when close says
// EINTR, and a second try could close somebody else's file.
func closeFD(fd int) error {
	if err := unix.Close(fd); err != nil && err != unix.EINTR {
		return err
	}
	return nil
}
