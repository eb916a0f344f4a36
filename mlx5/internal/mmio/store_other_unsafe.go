//go:build !(amd64 || arm64 || ppc64 || ppc64le || mips64 || mips64le || riscv64 || s390x || loong64)

package mmio

import (
	"sync/atomic"
	"unsafe"
)

// storeDoorbell64 leaves it to sync/atomic how a 32-bit machine stores 8 bytes at
// once.
func storeDoorbell64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

func copyBlueFlame(dst *[64]byte, ring *[64]byte, pos, mask, n uint32) {
	for i := range 8 * n {
		to, from := unsafe.Add(unsafe.Pointer(dst), 8*i), unsafe.Add(unsafe.Pointer(ring), (pos+8*i)&mask)
		atomic.StoreUint64((*uint64)(to), *(*uint64)(from))
	}
}
