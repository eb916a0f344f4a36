//go:build race

package mmio

import "unsafe"

func block(words *[8]uint64) *[64]byte { return (*[64]byte)(unsafe.Pointer(words)) }
