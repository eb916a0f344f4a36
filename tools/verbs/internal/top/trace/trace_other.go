//go:build !linux

package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
)

// A Tracer is a set of probes in the kernel.
type Tracer struct{}

// Open needs Linux.
func Open(Options) (*Tracer, error) {
	return nil, fmt.Errorf("probes in the kernel need Linux, and this is %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Snapshot has nothing to show.
func (*Tracer) Snapshot(func() error) (map[CQID]CQ, error) { return nil, fs.ErrClosed }

// Syscalls has nothing to show.
func (*Tracer) Syscalls() ([]Syscall, error) { return nil, fs.ErrClosed }

// Levels has nothing to show.
func (*Tracer) Levels() []Level { return nil }

// Close does nothing.
func (*Tracer) Close() error { return nil }
