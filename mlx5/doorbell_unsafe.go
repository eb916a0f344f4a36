package mlx5

import "unsafe"

// wordAt returns the first 8 bytes of mem, which has that many, as the word that
// stores to a register take, and how far mem is past a multiple of align.
func wordAt(mem []byte, align int) (*uint64, int) {
	p := unsafe.Pointer(unsafe.SliceData(mem))
	return (*uint64)(p), int(uintptr(p) % uintptr(align))
}

// recordAt returns the 8 bytes of mem as a doorbell record, and how far they are
// past a multiple of 8.
func recordAt(mem []byte) (*[2]uint32, int) {
	p := unsafe.Pointer(unsafe.SliceData(mem))
	return (*[2]uint32)(p), int(uintptr(p) % recordBytes)
}
