package model_test

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"
)

// pages makes n zeroed bytes that begin at a page and live as long as the test: the device
// knows their address and nothing more. They are in the Go heap, where the race detector
// sees what both sides do with them.
func pages(t testing.TB, n int) []byte {
	const size = 4096
	b := make([]byte, n+size)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (size - 1)
	t.Cleanup(func() { runtime.KeepAlive(b) })
	return b[skip : skip+n : skip+n]
}

// onHeap makes n bytes that are not on a stack, which moves when it grows.
func onHeap(n int) []byte {
	b := make([]byte, n)
	escaped.Store(&b)
	return b
}

var escaped atomic.Pointer[[]byte]

// at is the address of b.
func at(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// store puts a big-endian word into a doorbell record, in one step and after all that
// was written before.
func store(b []byte, v uint32) {
	var w [4]byte
	binary.BigEndian.PutUint32(w[:], v)
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[:4][0])), binary.NativeEndian.Uint32(w[:]))
}

// load reads four bytes in one step, before all that is read afterwards.
func load(b []byte) (w [4]byte) {
	binary.NativeEndian.PutUint32(w[:], atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[:4][0]))))
	return w
}
