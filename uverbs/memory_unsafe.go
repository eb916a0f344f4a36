package uverbs

import (
	"sync/atomic"
	"unsafe"
)

// address is where b begins, as the kernel wants to be told it: an integer
// that the garbage collector does not see. The caller keeps b reachable and
// off any goroutine stack for as long as the kernel may use it.
func address(b []byte) uint64 {
	if cap(b) == 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// atomicWord is the word at the beginning of b, which is aligned to 8 bytes and
// at least as long.
func atomicWord(b []byte) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b)))
}
