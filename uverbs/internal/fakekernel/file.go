package fakekernel

import (
	"encoding/binary"
	"os"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// file is an open verbs file.
type file struct {
	k      *Kernel
	dev    *device
	ctx    *context // nil before GET_CONTEXT
	closed bool
}

// begin checks what every call checks. The lock is held.
func (f *file) begin(c Call) error {
	if f.closed {
		return os.ErrClosed
	}
	if err := f.k.faults.check(c); err != nil {
		return err
	}
	if f.dev.gone {
		return syscall.EIO
	}
	return nil
}

// Write implements [kernel.File]. Soft-RoCE's send doorbell is the one command
// that the fake kernel takes this way.
func (f *file) Write(req []byte) error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if err := f.begin(Call{Op: Write}); err != nil {
		return err
	}
	if f.dev.NoWrite != nil {
		return f.dev.NoWrite
	}
	const header = 8
	if len(req) < header || int(binary.NativeEndian.Uint16(req[4:]))*4 != len(req) {
		return syscall.EINVAL
	}
	command := binary.NativeEndian.Uint32(req)
	switch {
	case command != abi.IB_USER_VERBS_CMD_POST_SEND, f.dev.lacksCommand(command):
		return syscall.EOPNOTSUPP
	case len(req) < header+abi.SizeofUverbsPostSend, binary.NativeEndian.Uint16(req[6:]) < abi.SizeofUverbsPostSendResp/4:
		return syscall.ENOSPC
	case f.ctx == nil:
		return syscall.EINVAL
	}
	var in abi.UverbsPostSend
	copy(in.Bytes(), req[header:])
	if err := f.ctx.postSend(&in); err != nil {
		return err
	}
	return memory{}.Write(in.Response, new(abi.UverbsPostSendResp).Bytes())
}

// MapRead implements [kernel.File]: soft-RoCE has nothing of that kind.
func (f *file) MapRead(offset int64, n int) (*kernel.Mapping, error) { return nil, syscall.EINVAL }

// Map implements [kernel.File].
func (f *file) Map(offset int64, n int) (*kernel.Mapping, error) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if err := f.begin(Call{Op: Map}); err != nil {
		return nil, err
	}
	if f.ctx == nil || n <= 0 {
		return nil, syscall.EINVAL
	}
	return f.ctx.mapRing(offset, n)
}

// Events implements [kernel.File].
func (f *file) Events(fd int) (kernel.EventFile, error) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if f.closed {
		return nil, os.ErrClosed
	}
	if err := f.k.faults.check(Call{Op: Events}); err != nil {
		return nil, err
	}
	e := f.k.fds[fd]
	if e == nil || e.taken {
		return nil, syscall.EBADF
	}
	e.taken = true
	return e, nil
}

// CloseFD implements [kernel.File].
func (f *file) CloseFD(fd int) error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	e := f.k.fds[fd]
	if e == nil || e.taken {
		return syscall.EBADF
	}
	return e.close()
}

// Close implements [kernel.File].
func (f *file) Close() error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	f.closed = true
	delete(f.k.files, f)
	if f.ctx != nil {
		f.ctx.open = false
		f.ctx.release()
	}
	f.k.freed(f.dev)
	return nil
}

var _ kernel.File = (*file)(nil)
