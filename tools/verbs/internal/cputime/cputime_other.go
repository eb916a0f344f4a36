//go:build !linux

package cputime

import (
	"errors"
	"fmt"
	"runtime"
)

// Process is the processor time of the process.
func Process() (Stamp, error) { return Stamp{}, unsupported() }

// Thread is that of the calling thread.
func Thread() (Stamp, error) { return Stamp{}, unsupported() }

func unsupported() error {
	return fmt.Errorf("the processor time of a thread is measured on Linux only, and this is %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
