package uverbs

import (
	"runtime"
	"unsafe"
)

// A hiddenDevice is soft-RoCE as the race detector sees a real one: not at all. It
// works on the rings that the kernel shares with a program, with ordinary loads and
// stores that the compiler does not report to the detector; had it used sync/atomic,
// each of its stores would have handed what it had seen before to whoever loads it,
// and the program would look clean without doing anything for it. Nor does it lock,
// or use a channel: it spins on the index words, and on one of its own to be stopped.
//
// Aligned words are stored at once on all machines. That they become visible in
// order is amd64's doing, and elsewhere Gosched's, which takes locks that are the
// scheduler's own.
type hiddenDevice struct {
	stop  uint32
	moves []move
}

// A move takes every request that is posted to one ring and completes it on
// another. The driver's own indices are here; the program's are in the rings.
type move struct {
	from, to []byte
	next     uint32 // of from's slots
	done     uint32 // of to's
	qpn      uint32
	recv     bool
}

// hiddenPayload is what every byte of a receive's memory becomes.
const hiddenPayload = 0x77

//go:norace
//go:noinline
func peek32(b []byte, off int) uint32 { return *(*uint32)(unsafe.Pointer(&b[off])) }

//go:norace
//go:noinline
func poke32(b []byte, off int, v uint32) { *(*uint32)(unsafe.Pointer(&b[off])) = v }

//go:norace
//go:noinline
func (d *hiddenDevice) stopped() bool { return d.stop != 0 }

//go:norace
//go:noinline
func (d *hiddenDevice) halt() { d.stop = 1 }

// run is the device's goroutine.
//
//go:norace
func (d *hiddenDevice) run() {
	for !d.stopped() {
		for i := range d.moves {
			d.moves[i].step()
		}
		runtime.Gosched()
	}
}

// step completes what is posted, as far as there is room.
//
//go:norace
func (m *move) step() {
	const producer, consumer, slots = 128, 256, 384
	mask, shift := peek32(m.from, 4), peek32(m.from, 0)
	toMask, toShift := peek32(m.to, 4), peek32(m.to, 0)
	for m.next != peek32(m.from, producer) && (m.done+1)&toMask != peek32(m.to, consumer) {
		runtime.Gosched() // the index was read before the slot is
		wqe := m.from[slots+int(m.next)<<shift:][:1<<shift]
		cqe := m.to[slots+int(m.done)<<toShift:][:48]
		for i := 0; i < 48; i += 4 {
			poke32(cqe, i, 0)
		}
		poke32(cqe, 0, peek32(wqe, 0))
		poke32(cqe, 4, peek32(wqe, 4))
		poke32(cqe, 28, m.qpn)
		if m.recv {
			receive(wqe[40:])
			poke32(cqe, 12, 128) // IB_WC_RECV
			poke32(cqe, 20, peek32(wqe, 16))
		}
		m.next, m.done = (m.next+1)&mask, (m.done+1)&toMask
		runtime.Gosched() // the slot is written before the index is
		poke32(m.from, consumer, m.next)
		poke32(m.to, producer, m.done)
	}
}

// receive fills the memory of the only element of a receive.
//
//go:norace
func receive(sge []byte) {
	addr := uintptr(*(*uint64)(unsafe.Pointer(&sge[0])))
	to := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), peek32(sge, 8))
	for i := range to {
		to[i] = hiddenPayload
	}
}
