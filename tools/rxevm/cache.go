//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A host is what every command needs of the machine that it runs on.
type host struct {
	// cache is the folder for everything fetched or built; none of it is in the source tree.
	cache string
	// install allows apt-get install, which changes the machine and needs root.
	install bool
	// refresh asks for the mirror's newest packages instead of what the cache has.
	refresh bool
	// say gets progress lines and never a program's output.
	say io.Writer
}

// note prints one progress line.
func (h *host) note(format string, args ...any) {
	fmt.Fprintf(h.say, "rxevm: "+format+"\n", args...)
}

// newHost finds the cache: $GOVERBS_CACHE, or goverbs in the user's cache folder.
func newHost(install bool) (*host, error) {
	dir := os.Getenv("GOVERBS_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, exitError{exitMissing, fmt.Errorf("no cache folder: %w; set GOVERBS_CACHE to a folder for packages and kernels (about 1 GB)", err)}
		}
		dir = filepath.Join(base, "goverbs")
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return nil, unusableCache(err)
	}
	h := &host{cache: dir, install: install, say: os.Stderr}
	return h, h.sweep()
}

// unusableCache says what to do where the cache cannot be written.
func unusableCache(err error) error {
	return exitError{exitMissing, fmt.Errorf("cache: %w; set GOVERBS_CACHE to a folder that can be written", err)}
}

// scratch makes a folder in the cache for one run; its maker removes it.
func (h *host) scratch() (string, error) {
	dir, err := os.MkdirTemp(h.cache, "build-")
	if err != nil {
		return "", unusableCache(err)
	}
	return dir, nil
}

// sweep removes scratch folders that killed runs left behind. No run takes a day.
func (h *host) sweep() error {
	old, err := filepath.Glob(h.path("build-*"))
	if err != nil {
		return err
	}
	for _, d := range old {
		st, err := os.Stat(d)
		if err == nil && time.Since(st.ModTime()) > 24*time.Hour {
			err = os.RemoveAll(d)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cache: %w", err)
		}
	}
	return nil
}

// path joins a name to the cache folder.
func (h *host) path(elem ...string) string {
	return filepath.Join(append([]string{h.cache}, elem...)...)
}

// lockInterval is how often a held lock is tried again.
const lockInterval = 100 * time.Millisecond

// lock keeps other rxevm processes from changing the cache until the function that it returns is
// called. The kernel drops it when the process ends, however it ends. Another process may hold it
// for minutes of fetching, so it is tried again and again: a flock that waits in the kernel would
// not hear of the end of ctx.
func (h *host) lock(ctx context.Context) (func(), error) {
	f, err := os.OpenFile(h.path("lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, unusableCache(err)
	}
	said := false
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		case !said:
			h.note("waiting for another rxevm that is filling the cache")
			said = true
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(lockInterval):
		}
	}
}

// build makes the folder name in the cache whole or not at all: make fills a scratch folder, which
// then takes the name. What an interrupted run left behind is removed first; the caller holds the
// lock.
func (h *host) build(name string, make func(dir string) error) error {
	final := h.path(name)
	scratch := final + ".part"
	if err := os.RemoveAll(scratch); err != nil {
		return err
	}
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return err
	}
	err := make(scratch)
	if err == nil {
		err = os.RemoveAll(final)
	}
	if err == nil {
		err = os.Rename(scratch, final)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(scratch))
	}
	return nil
}
