//go:build linux && (amd64 || arm64)

package simproc

import "unsafe"

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
