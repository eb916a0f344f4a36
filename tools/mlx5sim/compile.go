package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// compileC builds a program from sources in C against libibverbs and libmlx5: those of the folder
// that coreVar names, or the machine's. The compiler is $CC or gcc, and flags come before what
// this adds. Without a compiler or headers the error is a missingError. The program runs in the
// environment of coreEnvironment.
func compileC(ctx context.Context, out string, flags []string, sources ...string) error {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		return &missingError{cc, fmt.Sprintf("there is no C compiler %s: install the packages gcc and libc6-dev", cc)}
	}
	root := os.Getenv(coreVar)
	args := append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror"}, flags...)
	if root != "" {
		// Behind the system's folders, so that of the tree only what the system lacks is used:
		// it may have headers of another C library.
		args = append(args, "-idirafter", filepath.Join(root, "usr/include"))
	}
	if err := compiles(ctx, cc, args); err != nil {
		return err
	}
	args = append(append(args, "-o", out), sources...)
	for _, dir := range coreLibraries(root) {
		args = append(args, "-L"+dir)
	}
	// By the names of the files that programs load: no link of another name is needed. What they
	// need in turn is looked for when the program begins.
	args = append(args, "-Wl,--allow-shlib-undefined", "-l:libibverbs.so.1", "-l:libmlx5.so.1")
	if b, err := exec.CommandContext(ctx, cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, b)
	}
	return nil
}

// compiles says what the compiler lacks: a library of C, or the headers.
func compiles(ctx context.Context, cc string, args []string) error {
	for _, need := range []struct{ header, packages string }{
		{"stdio.h", "libc6-dev"},
		{"infiniband/verbs.h", "libibverbs-dev"},
		{"infiniband/mlx5dv.h", "libibverbs-dev"},
	} {
		c := exec.CommandContext(ctx, cc, append(args[:len(args):len(args)], "-E", "-o", os.DevNull, "-")...)
		c.Stdin = strings.NewReader("#include <" + need.header + ">\n")
		b, err := c.CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil:
		case !errors.As(err, &exit) || ctx.Err() != nil:
			return err
		default:
			return &missingError{need.header, fmt.Sprintf("there is no %s: install the package %s, or let %s name a folder with it unpacked (%s)", need.header, need.packages, coreVar, firstLine(b))}
		}
	}
	return nil
}

// coreLibraries are the folders with libraries of an unpacked folder, none if there is no such folder.
func coreLibraries(root string) []string {
	if root == "" {
		return nil
	}
	var dirs []string
	for _, pattern := range []string{"usr/lib/*/libibverbs", "usr/lib/*-linux-gnu", "lib/*-linux-gnu"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is right
		dirs = append(dirs, found...)
	}
	return dirs
}
