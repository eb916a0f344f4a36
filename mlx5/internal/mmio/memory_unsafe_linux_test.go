package mmio

import (
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// registers returns n bytes between two pages that nobody may touch, and how to
// name the 8 bytes at a place. n is a divisor or a multiple of a page; fewer are
// at the end of one.
func registers(t *testing.T, n int) (mem []byte, word func(off int) *uint64) {
	t.Helper()
	page := os.Getpagesize()
	room := (n + page - 1) / page * page
	all, err := syscall.Mmap(-1, 0, room+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(all); err != nil {
			t.Error(err)
		}
	})
	for _, guard := range [][]byte{all[:page], all[page+room:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	mem = all[page+room-n : page+room : page+room]
	return mem, func(off int) *uint64 { return (*uint64)(unsafe.Pointer(&mem[off : off+8][0])) }
}
