//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups is where the guest has the unified hierarchy.
const cgroups = "/sys/fs/cgroup"

// limit makes a cgroup of so many processors' time, and returns it, open, and what takes it away
// again.
func (h harsh) limit(name string) (f *os.File, remove func(), err error) {
	dir := cgroups + "/" + name
	if err := os.WriteFile(cgroups+"/cgroup.subtree_control", []byte("+cpu"), 0); err != nil {
		return nil, nil, fmt.Errorf("let cgroups limit processor time: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, nil, err
	}
	const period = 100000 // us
	if err = os.WriteFile(dir+"/cpu.max", fmt.Appendf(nil, "%d %d", int(h.CPUs*period), period), 0); err == nil {
		f, err = os.Open(dir)
	}
	if err != nil {
		os.Remove(dir)
		return nil, nil, err
	}
	return f, func() {
		f.Close()
		// A process that has just ended may still be counted.
		for range 100 {
			if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}, nil
}

// stormPause is how long it is between two signals. Without any, a program on one processor would do
// nothing else than take them.
const stormPause = 50 * time.Microsecond

// storm sends process pid SIGURG until it is told to stop, or the process is gone. The process must
// not have been waited for.
func storm(pid int, stop <-chan struct{}) {
	for tick := time.NewTicker(stormPause); ; {
		select {
		case <-stop:
			tick.Stop()
			return
		case <-tick.C:
			if unix.Kill(pid, unix.SIGURG) != nil {
				return
			}
		}
	}
}
