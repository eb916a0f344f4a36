package sim

import "unsafe"

// at is the address of b, which does not move: its caller keeps it.
func at(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
