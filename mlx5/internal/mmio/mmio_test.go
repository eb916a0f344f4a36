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

// So is one to a register that is mapped write-combining.
func TestStoreWC(t *testing.T) {
	mem, words := registers(t, 4096)
	for _, off := range []int{0, 8, 2048, 4088} {
		StoreWC(words(off), 0x0102030405060708)
		if got := binary.NativeEndian.Uint64(mem[off:]); got != 0x0102030405060708 {
			t.Fatalf("at %d: %#x", off, got)
		}
		clear(mem[off : off+8])
		for i, b := range mem {
			if b != 0 {
				t.Fatalf("a store at %d changed byte %d", off, i)
			}
		}
	}
}

// Blocks come from the ring in order, round its end, and nothing beside them is stored.
func TestCopyWC(t *testing.T) {
	const ring = 512
	mem, _ := registers(t, 4096)
	from, _ := registers(t, ring)
	for i := range from {
		from[i] = byte(i>>6<<4 | i&15)
	}
	was := [ring]byte(from)
	for n := 1; n <= 4; n++ {
		for pos := 0; pos < 3*ring; pos += 64 {
			off := pos % 2048
			CopyWC((*[64]byte)(mem[off:]), (*[64]byte)(from), uint32(pos), ring-1, uint32(n))
			for i := range 64 * n {
				if got, want := mem[off+i], was[(pos+i)%ring]; got != want {
					t.Fatalf("%d blocks from %d on: byte %d is %#x, want %#x", n, pos, i, got, want)
				}
			}
			clear(mem[off : off+64*n])
			for i, b := range mem {
				if b != 0 {
					t.Fatalf("%d blocks to %d changed byte %d", n, off, i)
				}
			}
		}
	}
	if [ring]byte(from) != was {
		t.Error("the ring changed")
	}
	CopyWC((*[64]byte)(mem), (*[64]byte)(from), ^uint32(63), ring-1, 2) // positions wrap too
	if [64]byte(mem) != [64]byte(was[ring-64:]) || [64]byte(mem[64:]) != [64]byte(was[:]) {
		t.Error("positions do not wrap")
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
		StoreWC(word, 8)
		CopyWC(to, from, 0, 63, 1)
		ReadBarrier()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
