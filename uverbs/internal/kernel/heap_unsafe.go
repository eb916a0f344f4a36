package kernel

import "unsafe"

// HeapMapping makes a Mapping of n bytes, aligned to align, in the Go heap. Objects
// do not move there. It is for devices in software: memory that a kernel is to pin
// comes from Alloc.
func HeapMapping(n, align int) *Mapping {
	b := make([]byte, n+align)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (align - 1)
	return NewMapping(b[skip:skip+n:skip+n],
		func(bool) error { return nil },
		func() error { return nil })
}
