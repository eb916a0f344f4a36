//go:build !linux

package mlx5

import "testing"

// guarded returns n bytes between two stretches that are checked when the test
// ends. Linux has a better one.
func guarded(tb testing.TB, n int, high bool) []byte {
	const margin = 512
	all := aligned(n + 2*margin)
	for i := range all {
		all[i] = 0x5c
	}
	tb.Cleanup(func() {
		for i, b := range all {
			if (i < margin || i >= margin+n) && b != 0x5c {
				tb.Errorf("byte %d beside the memory was overwritten", i-margin)
				break
			}
		}
	})
	return all[margin : margin+n : margin+n]
}
