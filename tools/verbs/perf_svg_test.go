package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// -svg draws what was measured, beside text and beside JSON; that it
// cannot be written is said before anything is measured.
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
	if code := run(t.Context(), []string{"perf", "send_lat", "-d", "sim0", "-n", "20", "-svg", filepath.Join(dir, "none", "x.svg")}, &out, &errs); code != 2 || out.Len() > 0 || !strings.Contains(errs.String(), "x.svg") {
		t.Errorf("into a folder that is not there: status %d: %s%s", code, out.String(), errs.String())
	}
	// One that was there is left alone until there is something to draw, and so is a name.
	old, new := filepath.Join(dir, "old.svg"), filepath.Join(dir, "new.svg")
	if err := os.WriteFile(old, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{old, new} {
		if code := run(t.Context(), []string{"perf", "send_lat", "-d", "sim0", "-i", "2", "-svg", file}, &out, &errs); code != 2 {
			t.Errorf("port 2: status %d", code)
		}
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "mine" {
		t.Errorf("a file whose drawing came to nothing: %q, %v", b, err)
	}
	if _, err := os.Stat(new); !os.IsNotExist(err) {
		t.Errorf("a file that has nothing: %v", err)
	}
}
