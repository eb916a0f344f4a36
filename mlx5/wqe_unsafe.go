package mlx5

import (
	"unsafe"

	"github.com/goverbs/goverbs/mlx5/internal/mmio"
)

// wqes is the memory of a queue's requests: a power of two of bytes. Positions in
// it are free-running.
type wqes struct {
	base unsafe.Pointer
	mask uint32 // bytes less one
}

// newWQEs makes one of memory that its caller has checked.
func newWQEs(mem []byte) wqes {
	return wqes{base: unsafe.Pointer(unsafe.SliceData(mem)), mask: uint32(len(mem) - 1)}
}

// segment is 16 bytes of a WQE: two big-endian numbers of 64 bits. Stores of whole
// words stay whole words: bytes that are put together the compiler may take apart
// again.
type segment [2]uint64

// segment returns the 16 bytes at a position, a multiple of 16.
func (w *wqes) segment(pos uint32) *segment {
	return (*segment)(unsafe.Add(w.base, pos&w.mask))
}

// copyWC stores so many blocks of 64 bytes, from a position on, to a register.
func (w *wqes) copyWC(to *[blockBytes]byte, pos, blocks uint32) {
	mmio.CopyWC(to, (*[blockBytes]byte)(w.base), pos, w.mask, blocks)
}

// half returns the 4 bytes at a position, a multiple of 4.
func (w *wqes) half(pos uint32) *uint32 { return (*uint32)(unsafe.Add(w.base, pos&w.mask)) }

// copy copies data to a position, round the end of the ring if need be. It is no
// more than the ring has.
func (w *wqes) copy(pos uint32, data []byte) {
	pos &= w.mask
	room := w.mask + 1 - pos
	if uint32(len(data)) > room {
		copy(unsafe.Slice((*byte)(w.base), len(data)-int(room)), data[room:])
		data = data[:room]
	}
	copy(unsafe.Slice((*byte)(unsafe.Add(w.base, pos)), len(data)), data)
}

// peek returns the two numbers at a position, a multiple of 16. The poster may be
// writing there, which is the caller's business, not the race detector's.
//
//go:norace
func (w *wqes) peek(pos uint32) (high, low uint64) {
	s := (*segment)(unsafe.Add(w.base, pos&w.mask))
	return toBE64(s[0]), toBE64(s[1])
}
