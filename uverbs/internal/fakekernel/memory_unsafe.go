package fakekernel

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// memory is the address space of this process, which is that of the program
// under test. It implements the request reader's Memory.
type memory struct{}

// Read copies from an address. What is not mapped is EFAULT.
func (memory) Read(addr uint64, p []byte) error {
	return guarded(addr, len(p), func(b []byte) { copy(p, b) })
}

// Write copies to an address. What is not mapped, or read-only, is EFAULT.
func (memory) Write(addr uint64, p []byte) error {
	return guarded(addr, len(p), func(b []byte) { copy(b, p) })
}

// guarded calls f with the n bytes at addr. The address comes from the program
// under test and may be anything, so faults are caught.
func guarded(addr uint64, n int, f func([]byte)) (err error) {
	if n == 0 {
		return nil
	}
	if addr == 0 || addr > uint64(^uintptr(0)) || uint64(n) > uint64(^uintptr(0))-addr {
		return syscall.EFAULT
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(runtime.Error); !ok {
				panic(r)
			}
			err = syscall.EFAULT
		}
	}()
	f(bytesAt(addr, n))
	return nil
}

// bytesAt is the memory at an address. The address is turned into a pointer
// through memory: it is not derived from one that the compiler knows.
func bytesAt(addr uint64, n int) []byte {
	at := uintptr(addr)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n)
}

// addressOf is where b begins.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// word is the 32-bit word at an offset that is a multiple of four.
func word(b []byte, off int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&b[off : off+4][0]))
}

// pages makes n zeroed bytes that begin at a page. They are in the Go heap,
// where the race detector sees what both sides do with them.
func pages(n int) []byte {
	b := make([]byte, n+pageSize)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (pageSize - 1)
	return b[skip : skip+n : skip+n]
}
