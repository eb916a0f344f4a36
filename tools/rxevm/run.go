//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// parseFileArg parses SRC[:DST]. A relative SRC is taken from the current folder; without DST it
// keeps its path.
func parseFileArg(s string) (fileArg, error) {
	src, dst, ok := strings.Cut(s, ":")
	if src == "" || ok && !filepath.IsAbs(dst) {
		return fileArg{}, fmt.Errorf("want SRC or SRC:DST with an absolute DST")
	}
	abs, err := filepath.Abs(src)
	if err != nil {
		return fileArg{}, err
	}
	if _, err := os.Stat(abs); err != nil {
		return fileArg{}, err
	}
	if !ok {
		dst = abs
	}
	return fileArg{abs, dst}, nil
}

// cmdRun is rxevm run.
func cmdRun(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("rxevm run", flag.ContinueOnError)
	var g guestFlags
	addGuestFlags(fs, &g)
	if err := parseFlags(fs, args); err != nil {
		return 0, err
	}
	if err := g.check(); err != nil {
		return 0, err
	}
	command := fs.Args()
	interactive := len(command) == 0 && g.rdmaCore && stdinIsTerminal()
	switch {
	case interactive:
		command = []string{"sh", "-i"}
	case len(command) == 0:
		return 0, exitError{exitUsage, errors.New("no command to run: add -- COMMAND ARGS..., or at a terminal -with rdma-core for a shell")}
	case len(command) == 1 && strings.ContainsAny(command[0], " \t\n"):
		// One argument with blanks is a script, as for ssh; no program has such a name here.
		if !g.rdmaCore {
			return 0, exitError{exitUsage, fmt.Errorf("%q is a script and needs a shell: add -with rdma-core, or give a program and its arguments apart", command[0])}
		}
		command = []string{"sh", "-ec", command[0]}
	}
	h, err := newHost(g.install)
	if err != nil {
		return 0, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	g.verbs = true
	if !interactive {
		var cancel context.CancelFunc
		ctx, cancel = withDeadline(ctx, g.timeout)
		defer cancel()
	}
	v, err := h.boot(ctx, g.guestConfig)
	if err != nil {
		return 0, err
	}
	// The current folder exists in the guest too, so that relative names in -file and in the
	// command mean the same.
	j := job{Args: command, Env: append(v.environ(), passedEnv(os.Environ())...), Dir: dir, Mkdirs: []string{dir}, harsh: g.harsh}
	x := jobIO{stdout: os.Stdout, stderr: os.Stderr}
	if interactive {
		size, restore, err := rawTerminal(int(os.Stdin.Fd()))
		if err != nil {
			return 0, errors.Join(err, v.close(ctx))
		}
		defer restore()
		j.Terminal, x.stdin = &size, os.Stdin
		j.Env = append(j.Env, "TERM="+os.Getenv("TERM"), "PS1=rxe# ")
	} else if !stdinIsTerminal() {
		x.stdin = os.Stdin
	}
	code, err := v.run(ctx, j, x)
	return code, errors.Join(err, v.close(ctx))
}

// passedEnv picks the variables that a program in the guest gets from the host: those of Go, of
// this project, and CI's mark. Folders of the host mean nothing there.
func passedEnv(env []string) []string {
	var all []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "GOROOT", "GOPATH", "GOCACHE", "GOMODCACHE", "GOBIN", "GOENV", "GOTMPDIR", "GOPROXY", "GOVERBS_CACHE":
			continue
		}
		if strings.HasPrefix(name, "GO") || name == "CI" || strings.HasPrefix(name, "TEST_") {
			all = append(all, e)
		}
	}
	return all
}

// cmdFetch is rxevm fetch.
func cmdFetch(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("rxevm fetch", flag.ContinueOnError)
	kernels := fs.String("kernel", strings.Join(kernelSeries(), ","), "kernel `series` to fetch, separated by commas")
	arm := fs.Bool("arm64", false, "fetch for arm64 guests, too")
	install := fs.Bool("install", false, "install missing programs (QEMU) with apt-get; needs root")
	if err := parseFlags(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() != 0 {
		return 0, exitError{exitUsage, fmt.Errorf("fetch takes no arguments besides flags, not %q", fs.Args())}
	}
	all := strings.Split(*kernels, ",")
	for _, series := range all {
		if _, ok := kernelSuites[series]; !ok {
			return 0, exitError{exitUsage, fmt.Errorf("-kernel %q: there are %s", series, strings.Join(kernelSeries(), ", "))}
		}
	}
	h, err := newHost(*install)
	if err != nil {
		return 0, err
	}
	h.refresh = true
	archs := []string{"amd64"}
	if *arm {
		archs = append(archs, "arm64")
	}
	for _, arch := range archs {
		if _, err := h.qemu(ctx, arch); err != nil {
			return 0, err
		}
		if _, err := h.userland(ctx, arch); err != nil {
			return 0, err
		}
		for _, series := range all {
			if arch != "amd64" && series != "6.12" {
				continue // The older kernels are run on amd64 only.
			}
			k, err := h.kernel(ctx, series, arch)
			if err != nil {
				return 0, err
			}
			fmt.Printf("%s %s: %s\n", series, arch, k.release)
		}
	}
	return 0, nil
}
