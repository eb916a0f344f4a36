package mlx5

import (
	"os"
	"syscall"
	"testing"
)

// guarded returns n bytes that touch an inaccessible page: at their start, or
// with high at their end. What is left of the first or last page is filled, and
// checked when the test ends.
func guarded(tb testing.TB, n int, high bool) []byte {
	page := os.Getpagesize()
	room := (n + page - 1) / page * page
	all, err := syscall.Mmap(-1, 0, room+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		tb.Fatalf("mmap of %d bytes: %v", room+2*page, err)
	}
	for _, guard := range [][]byte{all[:page], all[page+room:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			tb.Fatalf("mprotect: %v", err)
		}
	}
	mem, slack := all[page:page+n:page+n], all[page+n:page+room]
	if high {
		mem, slack = all[page+room-n:page+room:page+room], all[page:page+room-n]
	}
	for i := range slack {
		slack[i] = 0x5c
	}
	tb.Cleanup(func() {
		for i := range slack {
			if slack[i] != 0x5c {
				tb.Errorf("byte %d of %d beside the memory was overwritten", i, len(slack))
				break
			}
		}
		if err := syscall.Munmap(all); err != nil {
			tb.Errorf("munmap: %v", err)
		}
	})
	return mem
}
