package mmio

// StoreDoorbell64 stores v at the register p, which is mapped uncached, in one 8-byte
// store. v is as a plain load of 8 bytes gives it: what stands in a request big-endian
// goes to the register bit for bit. p is a multiple of 8. [RecordBarrier] comes before.
func StoreDoorbell64(p *uint64, v uint64) {
	releaseDoorbell(p)
	storeDoorbell64(p, v)
}

// StoreWC is StoreDoorbell64 for a register that is mapped write-combining, with the
// barriers before and after that it takes.
func StoreWC(p *uint64, v uint64) {
	releaseDoorbell(p)
	storeWC(p, v)
}

// CopyWC stores n blocks of 64 bytes to a register that is mapped write-combining, from
// dst on upwards, as a write-combining buffer takes them, with the barriers before and
// after. They are those of a ring from pos on, both multiples of 64, which has mask+1
// bytes and goes on at its beginning; n is 1 at least.
func CopyWC(dst, ring *[64]byte, pos, mask, n uint32) {
	releaseBlueFlame(dst)
	copyWC(dst, ring, pos, mask, n)
}
