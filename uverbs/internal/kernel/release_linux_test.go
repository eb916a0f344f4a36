package kernel

import (
	"os"
	"strings"
	"testing"
)

func TestRelease(t *testing.T) {
	want, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if got := Host().Release(); got != strings.TrimSpace(string(want)) || got == "" {
		t.Errorf("release %q, want %q", got, want)
	}
}
