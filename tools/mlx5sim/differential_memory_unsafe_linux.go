package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAt makes n bytes of memory at an address at which there is none: programs that are compared
// have their data at the same place.
func mapAt(addr uint64, n int) ([]byte, error) {
	a := uintptr(addr)
	// A pointer to nothing of Go's, which the conversion of a number would not say.
	p, err := unix.MmapPtr(-1, 0, *(*unsafe.Pointer)(unsafe.Pointer(&a)), uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE)
	if err != nil {
		return nil, fmt.Errorf("mmap at %#x: %w", addr, err)
	}
	return unsafe.Slice((*byte)(p), n), nil
}
