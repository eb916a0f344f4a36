package sim

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// file is an open uverbs file of a device of the model.
type file struct {
	*model.File
	host kernel.Kernel
}

// headerSize is the size of struct ib_uverbs_ioctl_hdr.
const headerSize = 24

// Ioctl implements [kernel.File].
func (f *file) Ioctl(req []byte) error {
	// As below on a machine, where the kernel trusts the header's length.
	if len(req) < headerSize || int(binary.NativeEndian.Uint16(req)) != len(req) {
		return syscall.EINVAL
	}
	return systemError(f.File.Ioctl(req))
}

// Write implements [kernel.File]. The driver has no requests that go without an ioctl.
func (f *file) Write([]byte) error { return syscall.EOPNOTSUPP }

// Map implements [kernel.File]. The page is memory of the process: the device is told
// of what is stored there.
func (f *file) Map(offset int64, n int) (*kernel.Mapping, error) {
	return f.mapped(offset, n, true)
}

// MapRead implements [kernel.File]. The model has no memory to map that could not be
// written to: its clock and its counter are copies.
func (f *file) MapRead(offset int64, n int) (*kernel.Mapping, error) {
	return f.mapped(offset, n, false)
}

func (f *file) mapped(offset int64, n int, writable bool) (*kernel.Mapping, error) {
	page, err := f.File.Map(offset, n, writable)
	if err != nil {
		return nil, systemError(err)
	}
	memory, err := f.host.Alloc(n, kernel.AllocOptions{Collected: true})
	if err != nil {
		return nil, err
	}
	// The system's pages may be larger than the device's.
	b := memory.Bytes()[:n:n]
	var detached atomic.Bool
	m := kernel.NewMapping(b, func(bool) error {
		detached.Store(true)
		page.Withdraw()
		return memory.Detach()
	}, memory.Unmap)
	page.Memory = memory
	switch page.Kind {
	case model.MapRegisters:
		m.Tell = func(off int, value uint64) {
			if !detached.Load() {
				f.Ring(page.ID, off, value)
			}
		}
		return m, nil
	case model.MapCounter:
		m.Fresh = func() {
			if !detached.Load() {
				page.Refresh()
			}
		}
	}
	return m, systemError(page.Place(at(b)))
}

// Events implements [kernel.File].
func (f *file) Events(fd int) (kernel.EventFile, error) {
	q := f.queue(fd)
	if q == nil {
		return nil, syscall.EBADF
	}
	return newEvents(q), nil
}

// CloseFD implements [kernel.File].
func (f *file) CloseFD(fd int) error {
	q := f.queue(fd)
	if q == nil {
		return syscall.EBADF
	}
	return systemError(q.Close())
}

func (f *file) queue(fd int) *model.EventQueue {
	if fd < 0 || fd > math.MaxInt32 {
		return nil
	}
	return f.EventQueue(int32(fd))
}

// Close implements [kernel.File].
func (f *file) Close() error { return systemError(f.File.Close()) }

var _ kernel.File = (*file)(nil)
