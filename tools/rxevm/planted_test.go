package main

import (
	"os"
	"testing"
)

// TestPlanted does what the environment asks for. rxevm test runs it in a guest to see that
// failures there are noticed.
func TestPlanted(t *testing.T) {
	switch what := os.Getenv("GOVERBS_PLANTED"); what {
	case "":
		t.Skip("declared skip: rxevm test plants failures here and sets GOVERBS_PLANTED")
	case "skip":
		t.Skip("no particular reason")
	case "fail":
		t.Error("planted")
	case "pass":
		if _, err := os.Stat("testdata"); err != nil {
			t.Errorf("the package's testdata is not in the guest: %v", err)
		}
	default:
		t.Fatalf("GOVERBS_PLANTED=%s: there are skip, fail and pass", what)
	}
}
