package mlx5

import (
	"encoding/binary"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/cq"
)

// Words that two sides share; tests that play the device use them as it does.

func load32(mem []byte, off int) uint32 { return atomic.LoadUint32(sharedWord(mem, off)) }

func store32(mem []byte, off int, v uint32) { atomic.StoreUint32(sharedWord(mem, off), v) }

func sharedWord(mem []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off : off+4][0])) }

// aligned returns n bytes of the Go heap at a multiple of 64.
func aligned(n int) []byte {
	mem := make([]byte, n+64)
	off := -int(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) & 63
	return mem[off : off+n : off+n]
}

// calibrate is what a poll of len(out) entries cannot do without: from index i on
// it loads 64 bytes of each, swaps four words and stores 48 bytes. Benchmarks give
// Poll as a multiple of it, since machines differ.
func calibrate(r *cqRing, i uint32, out []cq.WC) {
	for k := range out {
		in := (*[8]uint64)(unsafe.Pointer(r.entry(i)))
		to := (*[6]uint64)(unsafe.Pointer(&out[k]))
		to[0] = in[0] ^ in[1]
		to[1] = in[2] ^ in[3]
		to[2] = bits.ReverseBytes64(in[4])
		to[3] = bits.ReverseBytes64(in[5])
		to[4] = bits.ReverseBytes64(in[6])
		to[5] = bits.ReverseBytes64(in[7])
		i++
	}
}

// calibrateLookUp is calibrate with what a poll for many queue pairs cannot do without
// either, and calibrate does not count: it finds the requests of each entry's queue
// by the index, and there the slot of its request, loads that, and stores the head.
// It checks nothing.
func calibrateLookUp(r *cqRing, i uint32, out []cq.WC, view cq.EndpointView, recv bool) {
	for k := range out {
		e := r.entry(i)
		in := (*[8]uint64)(unsafe.Pointer(e))
		to := (*[6]uint64)(unsafe.Pointer(&out[k]))
		index := uint64(fromBE32(e.index())) & low24
		var requests *cq.Requests
		if recv {
			requests = view.Recv(index)
		} else {
			requests = view.Send(index)
		}
		to[0] = in[0] ^ in[1]
		to[1] = in[2] ^ in[3] ^ requests.Front(e.last()>>16).Expected()
		to[2] = bits.ReverseBytes64(in[4])
		to[3] = bits.ReverseBytes64(in[5])
		to[4] = bits.ReverseBytes64(in[6])
		to[5] = bits.ReverseBytes64(in[7])
		requests.Pop(requests.Head() - 1) // they are polled already: what was there
		i++
	}
}

// loadRegister reads 8 bytes of a register page in one piece, and what the machine's
// order makes big-endian of them.
func loadRegister(mem []byte, off int) uint64 {
	v := atomic.LoadUint64((*uint64)(unsafe.Pointer(&mem[off : off+8][0])))
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.BigEndian.Uint64(b[:])
}

// spin gives way to another goroutine if wait.
func spin(wait bool) {
	if wait {
		runtime.Gosched()
	}
}
