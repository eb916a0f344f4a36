package mlx5

import (
	"sync/atomic"
	"unsafe"
)

// Words that two sides share; tests that play the device use them as it does.

func load32(mem []byte, off int) uint32 { return atomic.LoadUint32(sharedWord(mem, off)) }

func store32(mem []byte, off int, v uint32) { atomic.StoreUint32(sharedWord(mem, off), v) }

func sharedWord(mem []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off : off+4][0])) }

// aligned returns n bytes of the Go heap at a multiple of 64.
func aligned(n int) []byte {
	mem := make([]byte, n+64)
	off := -int(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) & 63
	return mem[off : off+n : off+n]
}
