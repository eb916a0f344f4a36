package mlx5

import "errors"

// ErrClockBusy: the kernel kept changing the clock page, or the device its counter,
// while they were read. Try again.
var ErrClockBusy = errors.New("mlx5: the device's clock changes faster than it can be read")

// clockTries is how often a clock is read before giving up: a reader must not hang on
// a kernel that died between two writes.
const clockTries = 10

// ClockInfo is what a clock page said at one moment.
type ClockInfo struct {
	// Nsec is the time, in nanoseconds of the kernel's real-time clock, when
	// the device's counter stood at Cycles. Frac is what is left over, in units
	// of 2^-Shift nanoseconds.
	Nsec, Cycles, Frac uint64
	// A tick is Mult / 2^Shift nanoseconds.
	Mult, Shift uint32
	// Mask has the bits that the counter has.
	Mask uint64
}

// Nanoseconds is the time of a stamp in ticks of the device, as the kernel's
// real-time clock had it. It is right for stamps within half a turn of the counter
// of Cycles.
func (c ClockInfo) Nanoseconds(stamp uint64) uint64 {
	// The kernel's fields are used as they are, whatever they are: the result of
	// nonsense is nonsense, and no more.
	delta := (stamp - c.Cycles) & c.Mask
	if delta > c.Mask/2 { // before the page was written
		return c.Nsec - scaled(((c.Cycles-stamp)&c.Mask), c.Mult, -c.Frac, c.Shift)
	}
	return c.Nsec + scaled(delta, c.Mult, c.Frac, c.Shift)
}

// scaled is (ticks * mult + add) / 2^shift, of which the kernel computes the lower 64
// bits of the sum only.
func scaled(ticks uint64, mult uint32, add uint64, shift uint32) uint64 {
	return (ticks*uint64(mult) + add) >> shift
}

// RealTime takes a stamp apart that a device made in real time, because the kernel
// was asked for that when the completion queue was made: seconds and nanoseconds of
// the device's own clock.
func RealTime(stamp uint64) (sec uint32, nsec uint32) { return uint32(stamp >> 32), uint32(stamp) }
