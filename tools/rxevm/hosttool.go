//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// A hostTool is a program of the host: installed, or unpacked into the cache with all its
// libraries.
type hostTool struct {
	args []string // the program, or its loader with the arguments that start the program
	env  []string
	// root is the cache folder of an unpacked program, or "".
	root string
}

// command makes a command of the tool.
func (t hostTool) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.args[0], append(t.args[1:len(t.args):len(t.args)], args...)...)
	if t.env != nil {
		cmd.Env = append(os.Environ(), t.env...)
	}
	return cmd
}

// tool finds a program, installs its package when that is allowed, or unpacks it into the cache.
// The caller holds the cache lock.
func (h *host) tool(ctx context.Context, name, pkg string) (hostTool, error) {
	if p, err := exec.LookPath(name); err == nil {
		return hostTool{args: []string{p}}, nil
	}
	if h.install {
		if err := h.installPackage(ctx, pkg); err != nil {
			return hostTool{}, err
		}
		p, err := exec.LookPath(name)
		if err != nil {
			return hostTool{}, exitError{exitMissing, fmt.Errorf("package %s is installed, but: %w", pkg, err)}
		}
		return hostTool{args: []string{p}}, nil
	}
	where := filepath.Join("tools", pkg)
	if _, err := os.Stat(h.path(where)); err != nil {
		if err := h.fetchTool(ctx, where, pkg); err != nil {
			return hostTool{}, fmt.Errorf("%s is not installed (package %s; with -install and as root rxevm installs it) and could not be fetched: %w", name, pkg, err)
		}
	}
	return unpackedTool(h.path(where), name)
}

// installPackage installs a package on this machine.
func (h *host) installPackage(ctx context.Context, pkg string) error {
	if os.Geteuid() != 0 {
		return exitError{exitMissing, fmt.Errorf("-install needs root: install the package %s, or leave -install away and rxevm unpacks it into %s", pkg, h.cache)}
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return exitError{exitMissing, fmt.Errorf("-install works with apt-get only, which this machine does not have: install %s by its own means", pkg)}
	}
	h.note("installing the package %s on this machine", pkg)
	if _, err := runTool(ctx, "/", "apt-get", "-q", "update"); err != nil {
		return err
	}
	_, err := runTool(ctx, "/", "apt-get", "-q", "install", "-y", "--no-install-recommends", pkg)
	return err
}

// fetchTool unpacks a package and what it depends on into the cache, from the release that this
// machine runs, or the one of the 6.1 kernel.
func (h *host) fetchTool(ctx context.Context, where, pkg string) error {
	var errs []error
	for _, suite := range []string{hostRelease(), "bookworm"} {
		if suite == "" {
			continue
		}
		a, err := h.openApt(ctx, runtime.GOARCH, suite)
		if e := (exitError{}); errors.As(err, &e) {
			return err // No other suite helps.
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		debs, err := a.closure(ctx, pkg)
		if err != nil {
			return err
		}
		return h.build(where, func(dir string) error {
			return a.unpackInto(ctx, dir, pkg+" and its libraries, to be run from the cache", debs)
		})
	}
	return errors.Join(errs...)
}

// unpackInto downloads packages and unpacks them into a folder.
func (a *aptState) unpackInto(ctx context.Context, dir, why string, debs []debFile) error {
	files, err := a.download(ctx, dir, why, debs)
	if err != nil {
		return err
	}
	if err := unpackAll(ctx, dir, files); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	return nil
}

// hostRelease is the Debian code name of this machine, or "".
func hostRelease() string {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return ""
	}
	id, code := "", ""
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch v = strings.Trim(v, `"`); k {
		case "ID":
			id = v
		case "VERSION_CODENAME":
			code = v
		}
	}
	if id != "debian" {
		return ""
	}
	return code
}

// unpackedTool starts a program of an unpacked root through that root's own loader, so that host
// and root may differ in their C library.
func unpackedTool(root, name string) (hostTool, error) {
	bin := filepath.Join(root, "usr/bin", name)
	if _, err := os.Stat(bin); err != nil {
		return hostTool{}, exitError{exitMissing, fmt.Errorf("the unpacked package has no %s: %w", name, err)}
	}
	loaders, err := filepath.Glob(filepath.Join(root, "usr/lib*/ld-linux-*.so.*"))
	if err == nil && len(loaders) == 0 {
		loaders, err = filepath.Glob(filepath.Join(root, "usr/lib/*/ld-linux-*.so.*"))
	}
	if err != nil || len(loaders) == 0 {
		return hostTool{}, exitError{exitMissing, fmt.Errorf("the unpacked package has no loader (ld-linux) below %s", root)}
	}
	libs, err := libraryDirs(root)
	if err != nil {
		return hostTool{}, err
	}
	modules, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*/qemu"))
	if err != nil {
		return hostTool{}, err
	}
	t := hostTool{args: []string{loaders[0], "--library-path", strings.Join(libs, ":"), bin}, root: root}
	if len(modules) > 0 {
		t.env = []string{"QEMU_MODULE_DIR=" + modules[0]}
	}
	return t, nil
}

// libraryDirs are the folders of an unpacked root in which the loader would look, and those that
// packages add below them.
func libraryDirs(root string) ([]string, error) {
	multi, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*"))
	if err != nil {
		return nil, err
	}
	dirs := append(multi, filepath.Join(root, "usr/lib"))
	for _, m := range multi {
		sub, err := filepath.Glob(filepath.Join(m, "*", "*.so.*"))
		if err != nil {
			return nil, err
		}
		seen := map[string]bool{}
		for _, s := range sub {
			if d := filepath.Dir(s); !seen[d] {
				seen[d] = true
				dirs = append(dirs, d)
			}
		}
	}
	return dirs, nil
}
