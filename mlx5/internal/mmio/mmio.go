package mmio

// StoreDoorbell64 stores v at the register p in one 8-byte store. v is as a plain
// load of 8 bytes gives it: what stands in a request big-endian goes to the
// register bit for bit. p is a multiple of 8.
//
// Before it comes [RecordBarrier], or [StartWC] if the register is mapped
// write-combining.
func StoreDoorbell64(p *uint64, v uint64) {
	releaseDoorbell(p)
	storeDoorbell64(p, v)
}

// CopyBlueFlame stores the 64 bytes at src to the register dst, upwards, as a
// write-combining buffer takes them. Both are multiples of 64. A request of
// several blocks takes as many calls, in order, between [StartWC] and [FlushWC].
func CopyBlueFlame(dst, src *[64]byte) {
	releaseBlueFlame(dst)
	copyBlueFlame(dst, src)
}
