package mmio

// RequestBarrier stands between requests, in memory, and the doorbell record
// that hands them to the device. It is DMB OSHST.
func RequestBarrier()

// RecordBarrier stands between a doorbell record and the store to a register
// that is mapped uncached. It is DSB ST.
func RecordBarrier()

// ReadBarrier stands between the owner words of completions and their bodies. It
// is DMB OSHLD.
func ReadBarrier()

//go:noescape
func storeDoorbell64(p *uint64, v uint64)

//go:noescape
func storeWC(p *uint64, v uint64)

//go:noescape
func copyWC(dst *[64]byte, ring *[64]byte, pos, mask, n uint32)
