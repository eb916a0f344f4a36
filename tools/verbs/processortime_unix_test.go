//go:build unix

package main

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is what the process has used, in user and kernel mode.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
