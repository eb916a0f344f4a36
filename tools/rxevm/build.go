//go:build linux

package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/ldflags"
)

// modulePath is the import path of the project when the build information does not tell.
const modulePath = "github.com/goverbs/goverbs"

// mainModule is the import path of the module that this program was built from.
func mainModule() string {
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Path != "" {
		return bi.Main.Path
	}
	return modulePath
}

// moduleRoot is the folder of the module's source, found from the current folder. The error says
// what to do where there is no source.
func moduleRoot(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", exitError{exitMissing, fmt.Errorf("building for the guest needs Go: %w", err)}
	}
	out, err := runTool(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", mainModule())
	if err != nil {
		return "", exitError{exitMissing, fmt.Errorf("the source of %s is needed to build for the guest; run rxevm inside a module that uses it: %w", mainModule(), err)}
	}
	return strings.TrimSpace(out), nil
}

// goBuild builds a package of the module as a static program for a guest, told so for the linker
// (package ldflags), and returns the file's content.
func (h *host) goBuild(ctx context.Context, root, pkg, arch, linked string) ([]byte, error) {
	dir, err := h.scratch()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "out")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags="+linked, "-o", out, pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr = &errs, &errs
	if err := runChild(cmd); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("go build %s for %s: %w\n%s", pkg, arch, err, errs.String())
	}
	return os.ReadFile(out)
}

// guestInit returns this program for the guest: itself where it is static and of the right
// architecture, else built anew.
func (h *host) guestInit(ctx context.Context, arch string) ([]byte, error) {
	if arch == runtime.GOARCH {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		static, err := isStatic(self)
		if err != nil {
			return nil, err
		}
		if static {
			return os.ReadFile(self)
		}
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	return h.goBuild(ctx, root, "./tools/rxevm", arch, ldflags.Program)
}

// isStatic reports whether a program asks for no loader.
func isStatic(path string) (bool, error) {
	f, err := elf.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return false, nil
		}
	}
	return true, nil
}

// addVerbs builds the verbs tool into an image. Where its source is not at hand there is none,
// which is no error: other programs run all the same.
func (h *host) addVerbs(ctx context.Context, im image, arch string) error {
	root, err := moduleRoot(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		h.note("the guest goes without verbs: the source of %s is not at hand here", mainModule())
		return nil
	}
	if _, err := os.Stat(filepath.Join(root, "tools/verbs")); errors.Is(err, os.ErrNotExist) {
		h.note("the module has no tools/verbs: the guest goes without it")
		return nil
	}
	b, err := h.goBuild(ctx, root, "./tools/verbs", arch, ldflags.Program)
	if err != nil {
		return err
	}
	im.file("/usr/bin/verbs", 0o755, b)
	return nil
}
