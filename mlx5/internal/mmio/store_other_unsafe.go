//go:build !(amd64 || arm64 || ppc64 || ppc64le || mips64 || mips64le || riscv64 || s390x || loong64)

package mmio

import (
	"sync/atomic"
	"unsafe"
)

// storeDoorbell64 leaves it to sync/atomic how a 32-bit machine stores 8 bytes at
// once.
func storeDoorbell64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

func copyBlueFlame(dst, src *[64]byte) {
	d, s := (*[8]uint64)(unsafe.Pointer(dst)), (*[8]uint64)(unsafe.Pointer(src))
	for i := range d {
		atomic.StoreUint64(&d[i], s[i])
	}
}
