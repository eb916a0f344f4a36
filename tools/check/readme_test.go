package check

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readmeProgram extracts the README's complete program. It returns a package of
// the module that exists only for a build with the returned flag.
func readmeProgram(t *testing.T) (pkg, flag string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```go\npackage main\n")
	code, _, ok2 := strings.Cut(rest, "\n```")
	if !ok || !ok2 {
		t.Fatal("README.md has no complete program (a go block that begins with package main)")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(root(t), "tools", "readme", "main.go"): file},
	})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	for name, content := range map[string]string{file: "package main\n" + code + "\n", list: string(overlay)} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return "./tools/readme", "-overlay=" + list
}
