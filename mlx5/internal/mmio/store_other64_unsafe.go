//go:build ppc64 || ppc64le || mips64 || mips64le || riscv64 || s390x || loong64

package mmio

import "unsafe"

// A compiler that cannot see the callers can neither merge nor drop this store,
// and these machines have one for 8 bytes.
//
//go:noinline
func storeDoorbell64(p *uint64, v uint64) { *p = v }

//go:noinline
func copyBlueFlame(dst, src *[64]byte) {
	d, s := (*[8]uint64)(unsafe.Pointer(dst)), (*[8]uint64)(unsafe.Pointer(src))
	for i := range d {
		storeDoorbell64(&d[i], s[i])
	}
}
