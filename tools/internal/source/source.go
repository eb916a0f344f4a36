// Package source finds and copies the source of a module, for tools that build or change a copy.
//
//	root, err := source.Root(".")
//	if err == nil {
//		err = source.Copy(ctx, filepath.Join(temp, "copy"), root)
//	}
//
// The functions may be called from any goroutine.
package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Root is the folder of the module that dir is in.
func Root(dir string) (string, error) {
	start, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := start; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is in no module: run this in the source of goverbs", start)
		}
	}
}

// Copy copies a folder, without what version control keeps in it: files, whether they can be run,
// links and folders. What others remove meanwhile is not in the copy.
func Copy(ctx context.Context, to, from string) error {
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
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
