package uname

import (
	"os"
	"strings"
	"testing"
)

func TestSystem(t *testing.T) {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Skip("declared skip: no /proc here to compare with")
	}
	if want := strings.TrimSpace(string(b)); System() != want {
		t.Errorf("%q, and /proc says %q", System(), want)
	}
}
