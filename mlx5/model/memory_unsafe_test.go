package model_test

import "unsafe"

// pages makes n zeroed bytes that begin at a page. They are in the Go heap, where
// the race detector sees what both sides do with them.
func pages(n int) []byte {
	const size = 4096
	b := make([]byte, n+size)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (size - 1)
	kept = b // so that it is on the heap
	return b[skip : skip+n : skip+n]
}

var kept []byte

// at is the address of b.
func at(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
