package cputime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Process is the processor time of the process.
func Process() (Stamp, error) { return usage(unix.RUSAGE_SELF) }

// Thread is that of the calling thread.
func Thread() (Stamp, error) { return usage(unix.RUSAGE_THREAD) }

func usage(who int) (Stamp, error) {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		return Stamp{}, fmt.Errorf("getrusage: %w", err)
	}
	return Stamp{time.Now(), time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())}, nil
}
