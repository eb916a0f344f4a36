// Package compilec builds the programs in C that ours are measured against and compared with.
//
//	err := compilec.Program{Sources: []string{"client.c"}, Flags: []string{"-O2"}, Libraries: []string{"libibverbs.so.1"},
//		Headers: []compilec.Header{{"infiniband/verbs.h", "libibverbs-dev"}}}.Build(ctx, "client")
//
// It takes a compiler on this machine, and headers and libraries of this machine or of a folder.
// The functions may be called from several goroutines. What is not there is a *MissingError, whose
// sentence names the package to install; other errors carry what the compiler says.
package compilec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A MissingError is a program or header that is not there.
type MissingError struct {
	Name     string // of what is missing, such as "gcc"
	Sentence string // what is missing, and what to do
}

// Error is the sentence.
func (e *MissingError) Error() string { return e.Sentence }

// A Header is a header that a program includes, and the Debian package that has it.
type Header struct{ Name, Package string }

// A Program is what to build.
type Program struct {
	Sources []string
	Flags   []string // for the compiler, before all others
	Headers []Header // besides those of C
	// Libraries are the names of the files that the program loads, such as "libibverbs.so.1".
	Libraries []string
	// Root is a folder with Debian packages unpacked, whose headers and libraries are used where
	// this machine has none; or "".
	Root string
	// Or completes the sentence of what is missing: what else than installing a package helps.
	Or string
}

// Build builds the program into the file out, with $CC or gcc.
func (p Program) Build(ctx context.Context, out string) error {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		return &MissingError{cc, fmt.Sprintf("there is no C compiler %s: install the packages gcc and libc6-dev", cc)}
	}
	args := append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror"}, p.Flags...)
	if p.Root != "" {
		// Behind the system's folders, so that of the tree only what the system lacks is used:
		// it may have headers of another C library.
		args = append(args, "-idirafter", filepath.Join(p.Root, "usr/include"))
	}
	if err := p.compiles(ctx, cc, args); err != nil {
		return err
	}
	args = append(append(args, "-o", out), p.Sources...)
	for _, dir := range Libraries(p.Root) {
		args = append(args, "-L"+dir)
	}
	// By the names of the files that programs load: no link of another name is needed. What they
	// need in turn is looked for when the program begins.
	args = append(args, "-Wl,--allow-shlib-undefined")
	for _, l := range p.Libraries {
		args = append(args, "-l:"+l)
	}
	if b, err := exec.CommandContext(ctx, cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, b)
	}
	return nil
}

// compiles says what the compiler lacks: a library of C, or the headers.
func (p Program) compiles(ctx context.Context, cc string, args []string) error {
	for _, need := range append([]Header{{"stdio.h", "libc6-dev"}}, p.Headers...) {
		c := exec.CommandContext(ctx, cc, append(args[:len(args):len(args)], "-E", "-o", os.DevNull, "-")...)
		c.Stdin = strings.NewReader("#include <" + need.Name + ">\n")
		b, err := c.CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil:
		case !errors.As(err, &exit) || ctx.Err() != nil:
			return err
		default:
			first, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
			return &MissingError{need.Name, fmt.Sprintf("there is no %s: install the package %s%s (%s)", need.Name, need.Package, p.Or, first)}
		}
	}
	return nil
}

// Libraries are the folders with libraries of an unpacked folder, none if there is no such folder.
func Libraries(root string) []string {
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
