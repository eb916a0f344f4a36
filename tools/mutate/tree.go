package main

import (
	"bytes"
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
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is in no module: mutate runs in the source of one", start)
		}
	}
}

// copyTree copies a folder, without what version control keeps in it.
func copyTree(ctx context.Context, to, from string) error {
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			// Others may work in the folder. What they removed in between is not there.
			if errors.Is(err, fs.ErrNotExist) && name != from {
				return nil
			}
			return err
		}
		if e.Name() == ".git" {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		return copyEntry(filepath.Join(to, rel), name, e)
	})
}

// copyEntry copies a file, a link or an empty folder.
func copyEntry(to, from string, e fs.DirEntry) error {
	switch {
	case e.IsDir():
		return os.MkdirAll(to, 0o777)
	case e.Type() == fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !e.Type().IsRegular():
		return nil // no source
	}
	text, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o666)
	if info, err := e.Info(); err == nil && info.Mode()&0o100 != 0 {
		mode = 0o777
	}
	return os.WriteFile(to, text, mode)
}

// apply applies a patch to the source in dir, or with checkOnly sees whether that can be
// done. The error has the hunk that does not apply.
func apply(ctx context.Context, dir string, m *mutation, checkOnly bool) error {
	args := []string{"apply", "-v", "--whitespace=nowarn"}
	if checkOnly {
		args = append(args, "--check")
	}
	patch, err := filepath.Abs(m.path)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	err = run(ctx, dir, gitEnvironment(dir), &out, "git", append(args, patch)...)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(out.String()))
	}
	return nil
}

// gitEnvironment has git take dir for what it is, whatever is around it and whatever
// somebody likes: in a folder of a checkout git apply passes over the files outside of it,
// in silence.
func gitEnvironment(dir string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			env = append(env, v)
		}
	}
	return append(env, "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "LC_ALL=C")
}
