package mlx5

import (
	"fmt"
	"math/bits"
	"sync"
)

// Records hands out doorbell records from a page. Each has a cache line to
// itself, so that the stores of one queue do not disturb another. Its methods may
// be called from any goroutine.
type Records struct {
	mem    []byte
	stride int

	mu   sync.Mutex
	used []uint64
	n    int
}

// NewRecords makes records of a page of ordinary memory that a kernel can pin:
// anonymous, at a multiple of its own size. line is the size of a cache line, as
// the context says ([Context.CacheLine]).
func NewRecords(page []byte, line int) (*Records, error) {
	if line < recordBytes || line&(line-1) != 0 || line > len(page) {
		return nil, fmt.Errorf("mlx5: doorbell records every %d bytes in a page of %d: they stand at a power of two from %d to the page", line, len(page), recordBytes)
	}
	if _, off := recordAt(page); off != 0 {
		return nil, fmt.Errorf("mlx5: a page for doorbell records %d bytes past a multiple of %d", off, recordBytes)
	}
	n := len(page) / line
	return &Records{mem: page, stride: line, used: make([]uint64, (n+63)/64), n: n}, nil
}

// Take returns a record of zeros and where in the page it is; ok is false when all
// are taken.
func (r *Records) Take() (record []byte, off int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w, set := range r.used {
		b := bits.TrailingZeros64(^set)
		if i := w*64 + b; b < 64 && i < r.n {
			r.used[w] |= 1 << b
			off = i * r.stride
			record = r.mem[off : off+recordBytes : off+recordBytes]
			clear(record)
			return record, off, true
		}
	}
	return nil, 0, false
}

// Give takes back the record at an offset. The kernel must have let go of it, by
// the destruction of the queue that had it.
func (r *Records) Give(off int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := off / r.stride
	if off%r.stride != 0 || off < 0 || i >= r.n || r.used[i/64]>>(i%64)&1 == 0 {
		panic(fmt.Sprintf("mlx5: doorbell record at offset %d, which was not taken", off))
	}
	r.used[i/64] &^= 1 << (i % 64)
}

// Idle says whether no record is taken.
func (r *Records) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, set := range r.used {
		if set != 0 {
			return false
		}
	}
	return true
}
