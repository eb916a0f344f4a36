//go:build !linux

package kernel

import "unsafe"

// heapMapping makes a Mapping of n bytes, aligned to align, in the Go heap.
// Large objects do not move there, and no device of this system reads them by
// address, so the heap does for "outside the heap".
func heapMapping(n, align int) *Mapping {
	b := make([]byte, n+align)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (align - 1)
	return NewMapping(b[skip:skip+n:skip+n],
		func() error { return nil },
		func() error { return nil })
}
