package mmio

import (
	"encoding/binary"
	"testing"
)

// A doorbell is 8 bytes, as they stand in memory, and nothing beside them.
func TestStoreDoorbell64(t *testing.T) {
	mem, words := registers(t, 4096)
	for off := 0; off < 4096; off += 8 {
		if off > 64 && off < 4096-64 && off%504 != 0 {
			continue
		}
		want := [8]byte{1, 2, 3, 4, 5, 6, 7, byte(off >> 3)}
		StoreDoorbell64(words(off), binary.NativeEndian.Uint64(want[:]))
		if got := [8]byte(mem[off:]); got != want {
			t.Fatalf("at %d: % x, want % x", off, got, want)
		}
		clear(mem[off : off+8])
		for i, b := range mem {
			if b != 0 {
				t.Fatalf("a store at %d changed byte %d", off, i)
			}
		}
	}
	StoreDoorbell64(words(0), 1)
	StoreDoorbell64(words(0), 2)
	if binary.NativeEndian.Uint64(mem) != 2 {
		t.Error("the second of two stores is lost")
	}
}

// A BlueFlame block is 64 bytes of one place, in another, and nothing beside them.
func TestCopyBlueFlame(t *testing.T) {
	mem, _ := registers(t, 4096)
	from, _ := registers(t, 64)
	for i := range from {
		from[i] = byte(i + 1)
	}
	src := (*[64]byte)(from)
	was := *src
	for off := 0; off < 4096; off += 64 {
		CopyBlueFlame((*[64]byte)(mem[off:]), src)
		if got := [64]byte(mem[off:]); got != was {
			t.Fatalf("at %d: % x", off, got)
		}
		clear(mem[off : off+64])
		for i, b := range mem {
			if b != 0 {
				t.Fatalf("a copy to %d changed byte %d", off, i)
			}
		}
	}
	if *src != was {
		t.Error("the source changed")
	}
}

// None of it allocates.
func TestNoAllocations(t *testing.T) {
	mem, words := registers(t, 4096)
	word, from, to := words(0), (*[64]byte)(mem[64:]), (*[64]byte)(mem[128:])
	if n := testing.AllocsPerRun(100, func() {
		RequestBarrier()
		RecordBarrier()
		StoreDoorbell64(word, 7)
		StartWC()
		CopyBlueFlame(to, from)
		FlushWC()
		ReadBarrier()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
