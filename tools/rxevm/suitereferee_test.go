//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// All cases are to be played, and to pass.
func TestRefereeResult(t *testing.T) {
	for _, c := range []struct{ out, want string }{
		{"ok    0.41s a\nok    0.52s b\n2 passed, 0 failed (1 s)\n", "2 passed, 0 failed"},
		{"ok    0.41s a\nFAIL  0.52s b: exit status 1\n1 passed, 1 failed (1 s)\n", ""},
		{"ok    0.41s a\nskip       b: no ib_send_bw\n1 passed, 0 failed, 1 skipped for want of ib_send_bw (1 s)\n", ""},
		{"0 passed, 0 failed (1 s)\n", ""},
		{"2 passed, 0 failed (1 s)\nand then it went on\n", ""},
		{"", ""},
	} {
		if got, err := refereeResult(c.out); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q, %v", c.out, got, err)
		}
	}
}

// What root's cache has everybody may read in the copy, and links lead where they led.
func TestRefereeFolder(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("declared skip: only root makes a copy")
	}
	h := &host{cache: t.TempDir()}
	lib := h.path("referee", "bookworm-amd64", "usr/lib")
	if err := os.MkdirAll(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lib, "ld.so"), []byte("loads"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("ld.so", filepath.Join(lib, "ld.so.2")); err != nil {
		t.Fatal(err)
	}
	f, err := publicCopy(h.path("referee", "bookworm-amd64"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{f.dir, f.core, filepath.Join(f.core, "usr/lib"), filepath.Join(f.core, "usr/lib/ld.so.2")} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", path, st, err)
		}
	}
	if err := f.remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(f.dir); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}
