package kernel

import "math"

// roundUp rounds a positive n up to whole pages of a power-of-two size; ok is
// false for an n that is not positive or has no such multiple.
func roundUp(n, page int) (rounded int, ok bool) {
	if n <= 0 || n > math.MaxInt-page+1 {
		return 0, false
	}
	return (n + page - 1) &^ (page - 1), true
}
