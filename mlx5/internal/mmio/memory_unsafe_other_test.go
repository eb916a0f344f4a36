//go:build !linux

package mmio

import (
	"testing"
	"unsafe"
)

// registers returns n bytes at a multiple of 64, and how to name the 8 bytes at a
// place.
func registers(t *testing.T, n int) (mem []byte, word func(off int) *uint64) {
	all := make([]byte, n+64)
	off := -int(uintptr(unsafe.Pointer(unsafe.SliceData(all)))) & 63
	mem = all[off : off+n : off+n]
	return mem, func(off int) *uint64 { return (*uint64)(unsafe.Pointer(&mem[off : off+8][0])) }
}
