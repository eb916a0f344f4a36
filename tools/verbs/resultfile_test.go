package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

// A file that cannot be written is wrong use, and known before anything is measured.
func TestResultFileRefused(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "no", "such", "folder")
	for _, args := range []string{"perf send_bw -d sim0 -svg ", "waiting -d sim0 -svg ", "selftest -d sim0 -record "} {
		var out, errs strings.Builder
		if code := run(t.Context(), strings.Fields(args+nowhere), &out, &errs); code != 2 || out.Len() > 0 || !strings.Contains(errs.String(), nowhere) {
			t.Errorf("%s: status %d, %q, %q", args, code, out.String(), errs.String())
		}
	}
}

// What was in the file stays until there is a result; a new one that gets none goes away.
func TestResultFile(t *testing.T) {
	old, made := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")
	if err := os.WriteFile(old, []byte("what was in it"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{old, made} {
		f, err := openResult("svg", name)
		if err != nil {
			t.Fatal(err)
		}
		f.discard()
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "what was in it" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Stat(made); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	for _, name := range []string{old, made} {
		f, err := openResult("svg", name)
		if err != nil {
			t.Fatal(err)
		}
		err = f.keep(func(w io.Writer) error {
			_, err := io.WriteString(w, "new")
			return err
		})
		f.discard()
		if b, err2 := os.ReadFile(name); err != nil || err2 != nil || string(b) != "new" {
			t.Errorf("%q, %v, %v", b, err, err2)
		}
	}
	none, err := openResult("svg", "")
	if err != nil || none.keep(func(io.Writer) error { return errors.New("not to be called") }) != nil {
		t.Error("no file was asked for")
	}
	none.discard()
	var wrong *usage.Error
	if _, err := openResult("svg", t.TempDir()); !errors.As(err, &wrong) {
		t.Errorf("a folder: %v", err)
	}
}
