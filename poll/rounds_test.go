package poll

import (
	"os"
	"strconv"
	"testing"
)

// roundsOr is how many rounds a test makes: GOVERBS_ROUNDS, or n.
func roundsOr(t testing.TB, n int) int {
	s := os.Getenv("GOVERBS_ROUNDS")
	if s == "" {
		return n
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("GOVERBS_ROUNDS=%q is no number of rounds", s)
	}
	return n
}
