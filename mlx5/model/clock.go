package model

import (
	"math/bits"
	"slices"
	"time"

	"github.com/goverbs/goverbs/abi"
)

// clockBits is how many bits the device's counter has before it wraps.
const clockBits = 41

// clockAtStart is what the counter says when the model starts: not zero, as no
// machine's does.
const clockAtStart = 1 << 30

// cycles is the device's clock.
func (d *Device) cycles() uint64 { return d.cyclesAt(d.m.now) }

func (d *Device) cyclesAt(t time.Duration) uint64 {
	hi, lo := bits.Mul64(uint64(t), d.cfg.ClockKHz)
	n, _ := bits.Div64(hi, lo, 1_000_000)
	return (clockAtStart + n) & (1<<clockBits - 1)
}

// Cycles is what the device's clock says now: the counter that time stamps of completions
// are read from.
func (d *Device) Cycles() uint64 {
	d.m.enter()
	defer d.m.leave()
	return d.cycles()
}

// realTime is the time of day as the device stamps it: seconds and nanoseconds in 32
// bits each.
func (d *Device) realTime() uint64 {
	t := d.m.start.Add(d.m.now)
	return uint64(t.Unix())<<32 | uint64(t.Nanosecond())
}

// clockShift keeps a day of cycles times the multiplier within 64 bits.
const clockShift = 16

// clockPeriod is how long a clock page is good: a quarter of the counter's range at
// the highest frequency.
const clockPeriod = time.Duration(1 << (clockBits - 4))

// clockPage is a page that a program translates time stamps with.
type clockPage struct {
	*Mapping
	sign uint32
}

// update writes struct mlx5_ib_clock_info. Its first word has bit 0 set
// meanwhile, and another value afterwards.
func (p *clockPage) update() error {
	d := p.f.dev
	info := abi.MLX5IBClockInfo{
		Sign:           p.sign | abi.MLX5_IB_CLOCK_INFO_KERNEL_UPDATING,
		Nsec:           uint64(d.m.start.Add(d.m.now).UnixNano()),
		Cycles:         d.cycles(),
		Mult:           uint32(1_000_000 << clockShift / d.cfg.ClockKHz),
		Shift:          clockShift,
		Mask:           1<<clockBits - 1,
		OverflowPeriod: uint64(clockPeriod),
	}
	const signBytes = 4
	if err := p.f.mem.Write(p.addr, info.Bytes()[:signBytes]); err != nil {
		return err
	}
	if err := p.f.mem.Write(p.addr+2*signBytes, info.Bytes()[2*signBytes:]); err != nil {
		return err
	}
	p.sign += 2
	info.Sign = p.sign
	return p.f.mem.Write(p.addr, info.Bytes()[:signBytes])
}

// updateClocks brings all clock pages up to date. Pages that are not there any
// more are forgotten.
func (m *Model) updateClocks() {
	m.clocksDue = m.now + clockPeriod
	m.clocks = slices.DeleteFunc(m.clocks, func(p *clockPage) bool { return p.f.closed || p.update() != nil })
}
