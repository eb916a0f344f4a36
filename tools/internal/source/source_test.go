package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCopy(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	for name, mode := range map[string]os.FileMode{"go.mod": 0o644, "a/b/c.go": 0o644, "a/run.sh": 0o755, ".git/config": 0o644, ".github/x": 0o644} {
		at := filepath.Join(from, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("go.mod", filepath.Join(from, "link")); err != nil {
		t.Skipf("declared skip: no links here: %v", err)
	}
	if err := Copy(t.Context(), to, from); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "a/b/c.go", "a/run.sh", ".github/x"} {
		if b, err := os.ReadFile(filepath.Join(to, filepath.FromSlash(name))); err != nil || string(b) != name {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if info, err := os.Stat(filepath.Join(to, "a", "run.sh")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("run.sh: %v, %v", info, err)
	}
	if target, err := os.Readlink(filepath.Join(to, "link")); err != nil || target != "go.mod" {
		t.Errorf("link: %q, %v", target, err)
	}
	if _, err := os.Stat(filepath.Join(to, ".git")); err == nil {
		t.Error("the copy has .git")
	}
}

func TestRoot(t *testing.T) {
	root, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "README.md")); err != nil {
		t.Error(err)
	}
	if _, err := Root(t.TempDir()); err == nil || !strings.Contains(err.Error(), "in no module") {
		t.Errorf("%v", err)
	}
}
