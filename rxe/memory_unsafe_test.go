package rxe

import (
	"sync/atomic"
	"unsafe"
)

// The index words of a ring are shared between two sides; tests that play the
// driver use them as it does.

func load32(mem []byte, off int) uint32 { return atomic.LoadUint32(word(mem, off)) }

func store32(mem []byte, off int, v uint32) { atomic.StoreUint32(word(mem, off), v) }

func word(mem []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off : off+4][0])) }
