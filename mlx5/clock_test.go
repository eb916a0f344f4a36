package mlx5

import (
	"encoding/binary"
	"errors"
	mathbig "math/big"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
)

// clockPage writes what a clock page says, without the sign.
func clockPage(c ClockInfo, mem []byte) {
	host := binary.NativeEndian
	host.PutUint64(mem[8:], c.Nsec)
	host.PutUint64(mem[16:], c.Cycles)
	host.PutUint64(mem[24:], c.Frac)
	host.PutUint32(mem[32:], c.Mult)
	host.PutUint32(mem[36:], c.Shift)
	host.PutUint64(mem[40:], c.Mask)
}

func TestClockRead(t *testing.T) {
	mem := guarded(t, 56, true)
	want := ClockInfo{Nsec: 1<<60 + 1, Cycles: 1<<47 + 2, Frac: 3, Mult: 4, Shift: 5, Mask: 1<<48 - 1}
	clockPage(want, mem)
	c, err := NewClock(mem)
	if err != nil {
		t.Fatal(err)
	}
	for sign := uint32(0); sign < 6; sign++ {
		store32(mem, 0, sign+1<<31)
		got, err := c.Read()
		if busy := sign&1 != 0; busy != errors.Is(err, ErrClockBusy) || !busy && got != want {
			t.Errorf("sign %#x: %+v, %v", sign, got, err)
		}
	}
	for what, c := range map[string][]byte{"55 bytes": aligned(64)[:55], "4 bytes past": aligned(64)[4:]} {
		if _, err := NewClock(c); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q in it", err, what)
		}
	}
}

// The values are worked out from the kernel's formula with a clock of 1 GHz and one
// of 156.25 MHz.
func TestNanoseconds(t *testing.T) {
	const mask = 1<<41 - 1
	for _, c := range []struct {
		info        ClockInfo
		stamp, want uint64
	}{
		{ClockInfo{Nsec: 1000, Cycles: 500, Mult: 1 << 21, Shift: 21, Mask: mask}, 500, 1000},
		{ClockInfo{Nsec: 1000, Cycles: 500, Mult: 1 << 21, Shift: 21, Mask: mask}, 700, 1200},
		{ClockInfo{Nsec: 1000, Cycles: 500, Mult: 1 << 21, Shift: 21, Mask: mask}, 400, 900},
		{ClockInfo{Nsec: 1000, Cycles: mask, Mult: 1 << 21, Shift: 21, Mask: mask}, 9, 1010},                    // the counter wraps
		{ClockInfo{Nsec: 1000, Cycles: 5, Mult: 1 << 21, Shift: 21, Mask: mask}, mask - 4, 990},                 // backwards too
		{ClockInfo{Nsec: 1000, Cycles: 0, Mult: 64 << 20 / 10, Shift: 20, Mask: mask}, 10, 1063},                // 6.4 ns, cut off
		{ClockInfo{Nsec: 1000, Cycles: 0, Frac: 1 << 20, Mult: 64 << 20 / 10, Shift: 20, Mask: mask}, 10, 1064}, // a nanosecond left over
		{ClockInfo{Nsec: 1000, Cycles: 20, Frac: 1 << 19, Mult: 64 << 20 / 10, Shift: 20, Mask: mask}, 10, 937},
		{ClockInfo{Nsec: 7, Cycles: 1, Mult: ^uint32(0), Shift: 1 << 31, Mask: ^uint64(0)}, 9, 7}, // nonsense
		{ClockInfo{}, 1 << 63, 0},
	} {
		if got := c.info.Nanoseconds(c.stamp); got != c.want {
			t.Errorf("%+v: stamp %d is %d, want %d", c.info, c.stamp, got, c.want)
		}
	}
	// Against exact arithmetic, where nothing overflows.
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		c := ClockInfo{Nsec: rng.Uint64N(1 << 62), Cycles: rng.Uint64N(1 << 41), Mult: 1 + rng.Uint32N(1<<24), Shift: 1 + rng.Uint32N(24), Mask: mask}
		c.Frac = rng.Uint64N(1 << c.Shift)
		delta := rng.Int64N(1<<38) + 1<<25
		if rng.IntN(2) == 0 {
			delta = -delta
		}
		ns := new(mathbig.Int).Mul(mathbig.NewInt(delta), mathbig.NewInt(int64(c.Mult)))
		ns.Add(ns, new(mathbig.Int).SetUint64(c.Frac))
		if delta < 0 { // what is cut off is cut off toward the page's time
			ns.Neg(ns)
			ns.Rsh(ns, uint(c.Shift))
			ns.Neg(ns)
		} else {
			ns.Rsh(ns, uint(c.Shift))
		}
		want := c.Nsec + uint64(ns.Int64())
		if got := c.Nanoseconds((c.Cycles + uint64(delta)) & mask); got != want {
			t.Fatalf("%+v, %d ticks on: %d, want %d", c, delta, got, want)
		}
	}
	if s, n := RealTime(0x12345678_3b9ac9ff); s != 0x12345678 || n != 999999999 {
		t.Errorf("%#x seconds, %d nanoseconds", s, n)
	}
}

// A reader beside the kernel sees one moment or gives up.
func TestClockBesideWriter(t *testing.T) {
	mem := aligned(64)
	c, err := NewClock(mem)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := uint32(0); !stop.Load(); i++ {
			store32(mem, 0, 2*i+1)
			for off := 8; off < 48; off += 4 {
				store32(mem, off, i)
			}
			store32(mem, 0, 2*i+2)
			spin(i%64 == 0)
		}
	}()
	read := 0
	for i := 0; read < roundsOr(5000); i++ {
		got, err := c.Read()
		if err != nil {
			spin(true)
			continue
		}
		read++
		v := got.Mult
		twice := uint64(v)<<32 | uint64(v)
		if got != (ClockInfo{twice, twice, twice, v, v, twice}) {
			t.Errorf("torn: %+v", got)
			break
		}
	}
	stop.Store(true)
	<-done
}

func TestCounter(t *testing.T) {
	mem := guarded(t, 16, true)
	copy(mem, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	for _, c := range []struct {
		off  int
		want uint64
		says string
	}{
		{0, 0x0102030405060708, ""}, {4, 0x05060708090a0b0c, ""}, {8, 0x090a0b0c0d0e0f10, ""},
		{-4, 0, "offset -4"}, {12, 0, "page of 16 bytes"}, {2, 0, "offset 2"}, {1 << 30, 0, "offset"},
	} {
		got, err := Counter(mem, c.off)
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("at %d: %#x, %v", c.off, got, err)
		}
	}
	if _, err := Counter(aligned(64)[2:], 0); err == nil {
		t.Error("a page at an odd address")
	}
}

// The upper half of the counter changes while it is read, once in a while or always.
func TestCounterTurnsOver(t *testing.T) {
	mem := aligned(64)
	host := func(v uint32) uint32 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], v)
		return binary.NativeEndian.Uint32(b[:])
	}
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := uint32(0); !stop.Load(); i++ {
			store32(mem, 4, host(0)) // a counter whose lower half is 0 or its upper half
			store32(mem, 0, host(i))
			store32(mem, 4, host(i))
			spin(i%64 == 0)
		}
	}()
	defer func() {
		stop.Store(true)
		<-done
	}()
	for n := 0; n < 5000; {
		v, err := Counter(mem, 0)
		switch {
		case err != nil:
			if !errors.Is(err, ErrClockBusy) {
				t.Fatal(err)
			}
			spin(true)
			continue
		case uint32(v) != 0 && uint32(v) != uint32(v>>32):
			t.Fatalf("%#x: halves of different moments", v)
		}
		n++
	}
}
