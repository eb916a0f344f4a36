//go:build race

package mmio

import (
	"runtime"
	"unsafe"
)

// A store in assembly is nothing to the race detector. These say what it does:
// all that the program did before is done for the device, which learns of it from
// the register's first 8 bytes.

func releaseDoorbell(p *uint64) { runtime.RaceReleaseMerge(unsafe.Pointer(p)) }

func releaseBlueFlame(dst *[64]byte) { runtime.RaceReleaseMerge(unsafe.Pointer(dst)) }
