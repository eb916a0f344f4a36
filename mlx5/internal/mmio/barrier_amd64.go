package mmio

// RequestBarrier stands between requests, in memory, and the doorbell record
// that hands them to the device. On amd64 stores are visible in the order of the
// program.
func RequestBarrier() {}

// RecordBarrier stands between a doorbell record and the store to a register
// that is mapped uncached. On amd64 stores to uncached memory stay behind those
// to ordinary memory.
func RecordBarrier() {}

//go:noescape
func storeDoorbell64(p *uint64, v uint64)

//go:noescape
func storeWC(p *uint64, v uint64)

//go:noescape
func copyWC(dst *[64]byte, ring *[64]byte, pos, mask, n uint32)
