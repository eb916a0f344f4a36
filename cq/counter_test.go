package cq

import (
	"sync"
	"testing"
)

// TestCounter reads a counter beside the goroutine that raises it: it never falls.
func TestCounter(t *testing.T) {
	var c Counter
	var wg sync.WaitGroup
	const n = 20_000
	wg.Go(func() {
		for range n {
			c.Add(3)
		}
	})
	for last := uint64(0); last < 3*n; {
		v := c.Load()
		if v < last || v%3 != 0 {
			t.Fatalf("%d after %d", v, last)
		}
		last = v
	}
	wg.Wait()
}
