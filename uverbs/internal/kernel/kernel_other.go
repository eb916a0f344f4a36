//go:build !linux

package kernel

import (
	"io/fs"
	"math"
	"os"
	"syscall"
)

// Host returns a system without RDMA devices: opening one says
// [ErrNotLinux]. Memory can be allocated, for devices that are simulated.
func Host() Kernel { return other{} }

type other struct{}

// Open implements [Kernel].
func (other) Open(string, uint64) (File, error) { return nil, ErrNotLinux }

// Sysfs implements [Kernel]: it is empty.
func (other) Sysfs() fs.FS { return empty{} }

// Release implements [Kernel]: there is none.
func (other) Release() string { return "" }

// Memlock implements [Kernel].
func (other) Memlock() (limit uint64, exempt bool) { return math.MaxUint64, false }

// PageSize implements [Kernel].
func (other) PageSize() int { return os.Getpagesize() }

// Alloc implements [Kernel].
func (other) Alloc(n int, opts AllocOptions) (*Mapping, error) {
	if opts.HugePages || opts.Placed {
		return nil, ErrNotLinux
	}
	n, ok := roundUp(n, os.Getpagesize())
	if !ok {
		return nil, syscall.EINVAL
	}
	// No device of this system reads it by address, so the heap does for
	// "outside the heap".
	return HeapMapping(n, os.Getpagesize()), nil
}

// Watch implements [Kernel]: there is no device.
func (other) Watch(string, func()) (run, stop func(), err error) { return nil, func() {}, nil }

// Nodes implements [Kernel].
func (other) Nodes(*Mapping) (map[int]int, error) { return nil, ErrNotLinux }

// empty is a file tree with nothing in it.
type empty struct{}

func (empty) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
