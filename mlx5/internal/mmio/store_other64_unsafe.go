//go:build ppc64 || ppc64le || mips64 || mips64le || riscv64 || s390x || loong64

package mmio

import "unsafe"

// A compiler that cannot see the callers can neither merge nor drop this store,
// and these machines have one for 8 bytes.
//
//go:noinline
func storeDoorbell64(p *uint64, v uint64) { *p = v }

func copyBlueFlame(dst *[64]byte, ring *[64]byte, pos, mask, n uint32) {
	for i := range 8 * n {
		to, from := unsafe.Add(unsafe.Pointer(dst), 8*i), unsafe.Add(unsafe.Pointer(ring), (pos+8*i)&mask)
		storeDoorbell64((*uint64)(to), *(*uint64)(from))
	}
}
