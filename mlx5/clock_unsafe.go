package mlx5

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/abi"
)

// Clock reads the page in which the kernel says how ticks of the device become
// nanoseconds: struct mlx5_ib_clock_info of rdma/mlx5-abi.h. Any goroutine may use
// it.
type Clock struct{ info *abi.MLX5IBClockInfo }

// NewClock makes a clock of the mapped page, which stays mapped as long as the clock
// is used.
func NewClock(page []byte) (*Clock, error) {
	if len(page) < abi.SizeofMLX5IBClockInfo {
		return nil, fmt.Errorf("mlx5: a clock page of %d bytes: what it has to hold takes %d", len(page), abi.SizeofMLX5IBClockInfo)
	}
	p := unsafe.Pointer(unsafe.SliceData(page))
	if uintptr(p)%8 != 0 {
		return nil, fmt.Errorf("mlx5: the clock page starts %d bytes past a multiple of 8: map it at a page", uintptr(p)%8)
	}
	return &Clock{(*abi.MLX5IBClockInfo)(p)}, nil
}

// Read takes what the page says. It fails with [ErrClockBusy] if the kernel is
// writing to it, however often it looks.
func (c *Clock) Read() (ClockInfo, error) {
	p := c.info
	for range clockTries {
		// The sign is odd while the kernel writes, and another one afterwards.
		sign := atomic.LoadUint32(&p.Sign)
		if sign&1 != 0 {
			continue
		}
		info := ClockInfo{
			Nsec: load64(&p.Nsec), Cycles: load64(&p.Cycles), Frac: load64(&p.Frac),
			Mult: atomic.LoadUint32(&p.Mult), Shift: atomic.LoadUint32(&p.Shift), Mask: load64(&p.Mask),
		}
		if atomic.LoadUint32(&p.Sign) == sign {
			return info, nil
		}
	}
	return ClockInfo{}, ErrClockBusy
}

// load64 loads a number in the machine's order in two pieces: that it is of one
// moment is the caller's business. Not all machines load eight bytes in one piece
// from a page that they must not write to.
func load64(p *uint64) uint64 {
	words := (*[2]uint32)(unsafe.Pointer(p))
	var b [8]byte
	binary.NativeEndian.PutUint32(b[:4], atomic.LoadUint32(&words[0]))
	binary.NativeEndian.PutUint32(b[4:], atomic.LoadUint32(&words[1]))
	return binary.NativeEndian.Uint64(b[:])
}

// Counter reads the device's counter, which it has in ticks, from its mapped page: at
// offset off, as the kernel's reply to opening the device says. Its halves change
// under the reader's eyes: it fails with [ErrClockBusy] if the upper one does so
// every time.
func Counter(page []byte, off int) (uint64, error) {
	if off < 0 || off%4 != 0 || off > len(page)-8 {
		return 0, fmt.Errorf("mlx5: the device's counter at offset %d of a page of %d bytes", off, len(page))
	}
	p := unsafe.Pointer(unsafe.SliceData(page[off:]))
	if uintptr(p)%4 != 0 {
		return 0, fmt.Errorf("mlx5: the page of the device's counter starts %d bytes past a multiple of 4", uintptr(p)%4)
	}
	words := (*[2]uint32)(p)
	high := fromBE32(atomic.LoadUint32(&words[0]))
	for range clockTries {
		low := fromBE32(atomic.LoadUint32(&words[1]))
		again := fromBE32(atomic.LoadUint32(&words[0]))
		if again == high {
			return uint64(high)<<32 | uint64(low), nil
		}
		high = again
	}
	return 0, ErrClockBusy
}
