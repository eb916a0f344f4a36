//go:build race

package mmio

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestRelease: who sees a doorbell by sync/atomic sees what was written before,
// and the race detector knows it.
func TestRelease(t *testing.T) {
	var bell uint64
	var flame [8]uint64 // its first word is where a BlueFlame copy is seen
	payload := 0
	done := make(chan int)
	go func() {
		for atomic.LoadUint64(&bell) == 0 {
			runtime.Gosched()
		}
		done <- payload
	}()
	payload = 41
	StoreDoorbell64(&bell, 1)
	if got := <-done; got != 41 {
		t.Errorf("payload %d", got)
	}
	go func() {
		for atomic.LoadUint64(&flame[0]) == 0 {
			runtime.Gosched()
		}
		done <- payload
	}()
	payload = 42
	src := [64]byte{1, 1, 1, 1, 1, 1, 1, 1}
	CopyWC(block(&flame), &src, 0, 63, 1)
	if got := <-done; got != 42 {
		t.Errorf("payload %d", got)
	}
}
