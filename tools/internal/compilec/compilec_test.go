package compilec

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program of plain C is built and runs; a compiler or a header that is not there is missing, and
// an error in the program is not.
func TestBuild(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := Program{Sources: []string{write("good.c", "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", ANSWER); return 0; }\n")}, Flags: []string{"-DANSWER=42"}}
	out := filepath.Join(dir, "out")
	var missing *MissingError
	err := good.Build(t.Context(), out)
	if errors.As(err, &missing) {
		t.Skip("declared skip: ", missing)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command(out).CombinedOutput(); err != nil || string(b) != "42\n" {
		t.Errorf("%v: %s", err, b)
	}
	bad := good
	bad.Flags = nil // it does not know ANSWER
	if err := bad.Build(t.Context(), out); err == nil || errors.As(err, &missing) {
		t.Errorf("a program with an error: %v", err)
	}
	lacks := good
	lacks.Headers, lacks.Or = []Header{{"no/such/header.h", "libnone-dev"}}, ", or look elsewhere"
	err = lacks.Build(t.Context(), out)
	if !errors.As(err, &missing) || missing.Name != "no/such/header.h" || !strings.Contains(err.Error(), "install the package libnone-dev, or look elsewhere") {
		t.Errorf("without a header: %v", err)
	}
}

func TestNoCompiler(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	var missing *MissingError
	if err := (Program{}).Build(t.Context(), filepath.Join(t.TempDir(), "out")); !errors.As(err, &missing) || missing.Name != "no-such-compiler" {
		t.Errorf("without a compiler: %v", err)
	}
}

// The folders of an unpacked tree are found, and none without a tree.
func TestLibraries(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"usr/lib/x86_64-linux-gnu/libibverbs", "usr/share"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got := Libraries(root)
	if len(got) != 2 || got[0] != filepath.Join(root, "usr/lib/x86_64-linux-gnu/libibverbs") || got[1] != filepath.Join(root, "usr/lib/x86_64-linux-gnu") {
		t.Errorf("%q", got)
	}
	if got := Libraries(""); got != nil {
		t.Errorf("without a tree: %q", got)
	}
}
