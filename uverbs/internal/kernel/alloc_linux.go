//go:build linux

package kernel

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Alloc implements [Kernel].
func (linux) Alloc(n int, opts AllocOptions) (*Mapping, error) {
	page, flags := os.Getpagesize(), 0
	if opts.HugePages {
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
	if err := prepare(r.b, page, opts); err != nil {
		r.unmap()
		return nil, err
	}
	m := r.mapping(opts.Collected)
	m.page = page
	return m, nil
}

// prepare gives fresh memory its rules and its place.
func prepare(b []byte, page int, opts AllocOptions) error {
	// A child of a plain fork does not get it. Kernels before 5.12 may
	// otherwise leave the child the page that the device writes to, and the
	// parent a copy; later ones copy all that is pinned, during the fork.
	if err := unix.Madvise(b, unix.MADV_DONTFORK); err != nil {
		return err
	}
	if !opts.Placed {
		return nil
	}
	// Preferred rather than bound: when the node is full, a bound page has
	// the kernel look for a process to kill.
	if err := preferNode(b, opts.Node); err != nil {
		return err
	}
	return populate(b, page)
}

// populate makes pages exist that nobody uses yet.
func populate(b []byte, page int) error {
	switch err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err {
	case unix.EINVAL: // Linux before 5.14
		for off := 0; off < len(b); off += page {
			b[off] = 0
		}
		return nil
	case unix.EFAULT: // a huge page that is not there, though reserved
		return syscall.ENOMEM
	default:
		return err
	}
}

// hugePageSize finds the default size of huge pages in the text of
// /proc/meminfo, 0 where there are none. munmap wants whole huge pages, so
// the size has to be known.
func hugePageSize(meminfo []byte) int {
	for line := range bytes.Lines(meminfo) {
		rest, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte{'\n'}), []byte("Hugepagesize:"))
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
