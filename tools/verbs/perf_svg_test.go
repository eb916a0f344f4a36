package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// -svg draws what was measured, beside text and beside JSON; that it cannot be written is an error.
func TestPerfDraws(t *testing.T) {
	dir := t.TempDir()
	for i, args := range [][]string{{"send_lat"}, {"write_bw", "-json"}} {
		file := filepath.Join(dir, args[0]+".svg")
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"perf"}, append(args, "-d", "sim0", "-n", "20", "-s", "64", "-svg", file)...), &out, &errs); code != 0 {
			t.Fatalf("%q: status %d: %s", args, code, errs.String())
		}
		b, err := os.ReadFile(file)
		want := []string{"share of messages", "MB/s"}[i]
		if err != nil || !strings.HasPrefix(string(b), "<svg") || !strings.Contains(string(b), want) || !strings.Contains(out.String(), "64") {
			t.Errorf("%q: %v, no %q in %s\n%s", args, err, want, b, out.String())
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"perf", "send_lat", "-d", "sim0", "-n", "20", "-svg", filepath.Join(dir, "none", "x.svg")}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "x.svg") {
		t.Errorf("into a folder that is not there: status %d: %s", code, errs.String())
	}
}
