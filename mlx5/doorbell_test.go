package mlx5

import (
	"bytes"
	"strings"
	"testing"
)

func TestDoorbellErrors(t *testing.T) {
	for name, c := range map[string]struct {
		make func([]byte) (*Doorbell, error)
		mem  []byte
		ok   bool
	}{
		"uncached":                     {UncachedDoorbell, aligned(8), true},
		"uncached, at 8":               {UncachedDoorbell, aligned(16)[8:], true},
		"uncached, short":              {UncachedDoorbell, aligned(7), false},
		"uncached, nothing":            {UncachedDoorbell, nil, false},
		"uncached, crooked":            {UncachedDoorbell, aligned(16)[4:], false},
		"combining, crooked":           {CombiningDoorbell, aligned(16)[1:], false},
		"combining":                    {CombiningDoorbell, aligned(512), true},
		"BlueFlame":                    {BlueFlame, aligned(512), true},
		"BlueFlame, least":             {BlueFlame, aligned(128), true},
		"BlueFlame, most":              {BlueFlame, aligned(4096), true},
		"BlueFlame, one block":         {BlueFlame, aligned(64), false},
		"BlueFlame, nothing":           {BlueFlame, nil, false},
		"BlueFlame, no power of two":   {BlueFlame, aligned(192), false},
		"BlueFlame, more than a page":  {BlueFlame, aligned(8192), false},
		"BlueFlame, not at a block":    {BlueFlame, aligned(520)[8:], false},
		"BlueFlame, half a block off":  {BlueFlame, aligned(544)[32:], false},
		"BlueFlame, a block from page": {BlueFlame, aligned(576)[64:], true},
	} {
		d, err := c.make(c.mem)
		if (err == nil) != c.ok || (d != nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "mlx5: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBlueFlameHalves: every doorbell of a BlueFlame register goes to the half that
// the one before did not.
func TestBlueFlameHalves(t *testing.T) {
	for _, size := range []int{128, 256, 512, 1024} {
		mem := aligned(1024)
		fill(mem)
		d, err := BlueFlame(mem[:size])
		if err != nil {
			t.Fatal(err)
		}
		b := d.bell()
		ring := aligned(1024)
		w := newWQEs(ring)
		for i := range ring {
			ring[i] = byte(i * 7)
		}
		for i, c := range []struct {
			segments byte
			blocks   uint32
			alone    bool
			want     int // bytes in the register
		}{
			{2, 1, true, 64}, {1, 1, true, 8}, {4, 1, true, 64}, {5, 2, true, 128}, {2, 1, false, 8}, {8, 2, false, 8}, {16, 4, true, 256}, {17, 5, true, 320}, {63, 16, true, 1024},
		} {
			const pos = 1024 - 64 // the second block is the first of the ring
			ring[pos+7] = c.segments | 0x40
			wqe := append(bytes.Clone(ring[pos:]), ring[:pos]...)
			want := c.want
			if want > size/2 {
				want = 8
			}
			half := mem[i%2*size/2:]
			b.ring(&w, pos, c.blocks, c.alone)
			if !bytes.Equal(half[:want], wqe[:want]) {
				t.Errorf("register of %d, doorbell %d: %s, want %s", size, i, dump(half[:want]), dump(wqe[:want]))
			}
			fill(half[:want])
			if len(bytes.TrimLeft(mem, "\xdb")) > 0 {
				t.Errorf("register of %d, doorbell %d: other bytes were written", size, i)
				fill(mem)
			}
		}
	}
}

func TestRecords(t *testing.T) {
	page := aligned(4096)
	fill(page)
	for _, line := range []int{8, 32, 64, 128, 4096} {
		r, err := NewRecords(page, line)
		if err != nil {
			t.Fatal(err)
		}
		var offs []int
		for {
			rec, off, ok := r.Take()
			if !ok {
				break
			}
			if len(rec) != 8 || cap(rec) != 8 || &rec[0] != &page[off] || off != len(offs)*line || !bytes.Equal(rec, make([]byte, 8)) {
				t.Fatalf("record %d of lines of %d: %d bytes, % x, at offset %d", len(offs), line, len(rec), rec, off)
			}
			copy(rec, "\xdb\xdb\xdb\xdb\xdb\xdb\xdb\xdb")
			offs = append(offs, off)
		}
		if len(offs) != 4096/line || r.Idle() {
			t.Errorf("%d records of lines of %d, idle %v", len(offs), line, r.Idle())
		}
		for i := range offs {
			r.Give(offs[(i*7)%len(offs)]) // 7 has no factor in common with a power of two
		}
		if !r.Idle() {
			t.Errorf("lines of %d: not idle after all came back", line)
		}
		if _, off, ok := r.Take(); !ok || off != 0 {
			t.Errorf("lines of %d: the first again is at %d, %v", line, off, ok)
		}
		for _, off := range []int{line, -line, 1, 4096, 0} {
			if p := panics(func() { r.Give(off) }); p != (off != 0) {
				t.Errorf("lines of %d: giving back %d: panics %v", line, off, p)
			}
		}
	}
	for name, c := range map[string]struct {
		page []byte
		line int
	}{
		"lines of 4": {page, 4}, "lines of 96": {page, 96}, "lines of more than a page": {page, 8192}, "lines of nothing": {page, 0}, "no page": {nil, 64},
		"a crooked page": {page[4:4092], 64}, "negative lines": {page, -64},
	} {
		if _, err := NewRecords(c.page, c.line); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
