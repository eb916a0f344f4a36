//go:build linux

package kernel

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Alloc implements [Kernel].
func (linux) Alloc(n int, hugePages bool) (*Mapping, error) {
	page, flags := os.Getpagesize(), 0
	if hugePages {
		meminfo, err := os.ReadFile("/proc/meminfo")
		if err != nil {
			return nil, bare(err)
		}
		if page = hugePageSize(meminfo); page == 0 {
			return nil, syscall.EOPNOTSUPP
		}
		flags = unix.MAP_HUGETLB
	}
	n, ok := roundUp(n, page)
	if !ok {
		return nil, syscall.EINVAL
	}
	r, err := mapAnonymous(n, flags)
	if err != nil {
		return nil, err
	}
	return r.mapping(false), nil
}

// hugePageSize finds the default size of huge pages in the text of
// /proc/meminfo, 0 where there are none. munmap wants whole huge pages, so
// the size has to be known.
func hugePageSize(meminfo []byte) int {
	s := bufio.NewScanner(bytes.NewReader(meminfo))
	for s.Scan() {
		rest, ok := bytes.CutPrefix(s.Bytes(), []byte("Hugepagesize:"))
		if !ok {
			continue
		}
		kB, ok := bytes.CutSuffix(rest, []byte("kB"))
		if !ok {
			return 0
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(kB)), 10, 21)
		if err != nil || n == 0 || n&(n-1) != 0 {
			return 0
		}
		return int(n) << 10
	}
	return 0
}
