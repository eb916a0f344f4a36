package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// moduleRoot is the folder of the module that dir is in.
func moduleRoot(dir string) (string, error) {
	start, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := start; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "tools", "verbs")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not in the source of goverbs: run release there", start)
		}
	}
}

// copyTree copies the source that Go sees: regular files, outside of folders that begin with a dot.
func copyTree(ctx context.Context, to, from string) error {
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if e.IsDir() {
			if name != from && strings.HasPrefix(e.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(from, name)
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		at := filepath.Join(to, rel)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		return os.WriteFile(at, content, 0o644)
	})
}

// removeAll removes a file or folder, also one in which somebody, such as an ended compiler, wrote
// until now.
func removeAll(name string) error {
	err := os.RemoveAll(name)
	for range 10 {
		if err == nil {
			break
		}
		err = os.RemoveAll(name)
	}
	return err
}
