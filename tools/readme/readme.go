// Package readme builds the complete program that README.md shows, so that tests
// can hold the README to its word.
package readme

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Program returns the source of the program in the README of the module at root:
// the first block of Go that begins with package main.
func Program(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return "", err
	}
	const begin = "package main\n"
	_, rest, found := strings.Cut(string(text), "```go\n"+begin)
	code, _, ended := strings.Cut(rest, "\n```")
	if !found || !ended {
		return "", errors.New("README.md has no complete program: a go block that begins with package main")
	}
	return begin + code + "\n", nil
}

// Build builds the program as a static Linux binary at out, without putting a
// file into the module: the package exists for the compiler only.
func Build(ctx context.Context, root, out string, flags ...string) error {
	code, err := Program(root)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "readme")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	const pkg = "tools/readme/program"
	file, list := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(root, filepath.FromSlash(pkg), "main.go"): file},
	})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(file, []byte(code), 0o644), os.WriteFile(list, overlay, 0o644)); err != nil {
		return err
	}
	args := append([]string{"build", "-o", out, "-overlay", list}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOTMPDIR="+dir) // go leaves its own files when it is ended.
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the README's program: %w\n%s", err, text)
	}
	return nil
}
