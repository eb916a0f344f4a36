//go:build !amd64 && !arm64

package mmio

import "sync/atomic"

// fence is the strongest barrier that the language has: machines with weak order
// make it of this store, wherever it goes.
func fence() {
	var word uint32
	atomic.StoreUint32(&word, 0)
}

// RequestBarrier stands between requests, in memory, and the doorbell record
// that hands them to the device.
func RequestBarrier() { fence() }

// RecordBarrier stands between a doorbell record and the store to a register
// that is mapped uncached.
func RecordBarrier() { fence() }

// ReadBarrier stands between the owner words of completions and their bodies.
func ReadBarrier() { fence() }

func storeWC(p *uint64, v uint64) {
	fence()
	storeDoorbell64(p, v)
	fence()
}

func copyWC(dst *[64]byte, ring *[64]byte, pos, mask, n uint32) {
	fence()
	copyBlueFlame(dst, ring, pos, mask, n)
	fence()
}
