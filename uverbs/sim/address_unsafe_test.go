package sim

import "unsafe"

// at is the address of b, which is in the heap: its caller keeps it.
func at(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
