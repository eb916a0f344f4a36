package check

import (
	"slices"
	"testing"
)

// The command serves metrics without a server's machinery, which would be a third
// of it and speaks protocols that nobody asked for.
func TestVerbsLinksNoHTTP(t *testing.T) {
	all := list(t, "linux", "-deps", "./tools/verbs")
	never := []string{"net/http", "crypto/tls", "net/http/pprof", "expvar"}
	for _, p := range all {
		if slices.Contains(never, p.ImportPath) {
			t.Errorf("verbs links %s", p.ImportPath)
		}
	}
	if len(all) < 50 {
		t.Errorf("verbs links only %d packages", len(all))
	}
}
