package rxe

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// makers makes each kind of queue for records of the greatest size that fits
// element.
var makers = map[string]struct {
	element int
	make    func(mem []byte) (capacity int, err error)
}{
	"completion": {64, func(mem []byte) (int, error) {
		q, err := NewCQ(mem, &cq.Endpoints{}, &cq.State{})
		if err != nil {
			return 0, err
		}
		return int(q.Capacity()), nil
	}},
	"send": {512, func(mem []byte) (int, error) {
		q, err := NewSQ(mem, 19, 304)
		if err != nil {
			return 0, err
		}
		return q.Capacity(), nil
	}},
	"receive": {128, func(mem []byte) (int, error) {
		q, err := NewRQ(mem, 5)
		if err != nil {
			return 0, err
		}
		return q.Capacity(), nil
	}},
}

func TestHeader(t *testing.T) {
	for kind, m := range makers {
		for _, slots := range []int{2, 4, 1024} {
			for _, element := range []int{m.element, 2 * m.element, 4096} {
				if got, err := m.make(heapRing(slots, element, 1)); err != nil || got != slots-1 {
					t.Errorf("%s: %d slots of %d bytes: capacity %d, %v", kind, slots, element, got, err)
				}
			}
		}
		for name, c := range map[string]struct {
			spoil func(mem []byte) []byte
			says  []string
		}{
			"no memory":       {func(mem []byte) []byte { return nil }, []string{" 0 bytes", "384"}},
			"half a header":   {func(mem []byte) []byte { return mem[:383] }, []string{"383", "384"}},
			"no last byte":    {func(mem []byte) []byte { return mem[:len(mem)-1] }, []string{"8 elements", "bytes of memory"}},
			"unaligned":       {func(mem []byte) []byte { return mem[4:] }, []string{"4 bytes past"}},
			"small elements":  {func(mem []byte) []byte { native.PutUint32(mem, 5); return mem }, []string{"32 bytes"}},
			"one-byte ones":   {func(mem []byte) []byte { native.PutUint32(mem, 0); return mem }, []string{" 1 bytes"}},
			"huge elements":   {func(mem []byte) []byte { native.PutUint32(mem, 31); return mem }, []string{"2^31"}},
			"absurd elements": {func(mem []byte) []byte { native.PutUint32(mem, 1<<31+6); return mem }, []string{"2^2147483654"}},
			"one slot":        {func(mem []byte) []byte { native.PutUint32(mem[4:], 0); return mem }, []string{"mask 0x0"}},
			"odd mask":        {func(mem []byte) []byte { native.PutUint32(mem[4:], 5); return mem }, []string{"mask 0x5"}},
			"greatest mask":   {func(mem []byte) []byte { native.PutUint32(mem[4:], ^uint32(0)); return mem }, []string{"4294967296 elements"}},
			"one lap too far": {func(mem []byte) []byte { native.PutUint32(mem[4:], 15); return mem }, []string{"16 elements"}},
			"zero pages":      {func(mem []byte) []byte { clear(mem); return mem }, []string{" 1 bytes"}},
		} {
			_, err := m.make(c.spoil(heapRing(8, m.element, 0)))
			if err == nil {
				t.Errorf("%s, %s: accepted", kind, name)
				continue
			}
			for _, part := range append(c.says, kind) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s, %s: %q lacks %q", kind, name, err, part)
				}
			}
		}
	}
}

// A queue must not be made for requests that its slots do not hold.
func TestSlotTooSmall(t *testing.T) {
	for _, c := range []struct{ sges, inline, element int }{
		{3, 0, 256}, {3, 48, 256}, {0, 48, 256}, {4, 0, 512}, {0, 49, 512}, {19, 304, 512}, {20, 0, 1024}, {0, 305, 1024},
	} {
		for element := 64; element <= 2048; element *= 2 {
			_, err := NewSQ(heapRing(4, element, 0), c.sges, c.inline)
			if ok := element >= c.element; ok != (err == nil) {
				t.Errorf("%d elements, %d inline in %d bytes: %v", c.sges, c.inline, element, err)
			}
		}
	}
	for _, c := range []struct{ sges, element int }{{0, 64}, {1, 64}, {2, 128}, {5, 128}, {6, 256}, {32, 1024}} {
		for element := 32; element <= 2048; element *= 2 {
			_, err := NewRQ(heapRing(4, element, 0), c.sges)
			if ok := element >= c.element; ok != (err == nil) {
				t.Errorf("%d elements in %d bytes: %v", c.sges, element, err)
			}
		}
	}
	for _, bad := range []int{-1, 1<<16 + 1, 1 << 28, 1 << 30} {
		if _, err := NewSQ(heapRing(4, 4096, 0), bad, 0); err == nil {
			t.Errorf("a send queue for %d elements", bad)
		}
		if _, err := NewRQ(heapRing(4, 4096, 0), bad); err == nil {
			t.Errorf("a receive queue for %d elements", bad)
		}
	}
	if _, err := NewSQ(heapRing(4, 4096, 0), 0, -1); err == nil {
		t.Error("a send queue for -1 bytes inline")
	}
}
