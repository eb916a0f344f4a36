//go:build amd64 || arm64

package simproc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Listening says whether the program, or a process that it started, listens on a TCP port: it is
// ready for one that connects to it.
func (c *Cmd) Listening() bool {
	c.mu.Lock()
	pid, runs := c.pid, c.pidfd >= 0
	c.mu.Unlock()
	if !runs {
		return false
	}
	for _, p := range descendants(pid) {
		if listens(p) {
			return true
		}
	}
	return false
}

// descendants are a process and all below it.
func descendants(pid int) []int {
	all := []int{pid}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	for _, l := range lists {
		b, _ := os.ReadFile(l) // of a process that has ended there is none
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, descendants(child)...)
			}
		}
	}
	return all
}

// listens says whether one of the sockets of a process listens.
func listens(pid int) bool {
	listening := make(map[string]bool) // by inode
	for _, table := range []string{"tcp", "tcp6"} {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table)) // a kernel without IPv6 has one
		for line := range bytes.Lines(b) {
			const state, inode, listen = 3, 9, "0A" // TCP_LISTEN of net/tcp_states.h
			if f := strings.Fields(string(line)); len(f) > inode && f[state] == listen {
				listening["socket:["+f[inode]+"]"] = true
			}
		}
	}
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is right
	for _, l := range links {
		if target, err := os.Readlink(l); err == nil && listening[target] {
			return true
		}
	}
	return false
}
