//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// environment386 makes go build programs of 32 bits.
var environment386 = []string{"GOARCH=386"}

// read386 are the folders whose source a test of package rxe reads.
var read386 = []string{"cq", "poll", "rxe", "uverbs"}

// as386 runs the packages' tests as programs of 32 bits: on this machine, or where it runs no such
// programs in a guest. QEMU's emulation of a processor alone does not carry Go's threads of 386:
// there all have the thread-local storage of one.
func (s *suite) as386(ctx context.Context, where string, packages []string) {
	what := "go test as 386 " + strings.Join(packages, " ")
	bins, err := s.host.scratch()
	if err == nil {
		defer os.RemoveAll(bins)
	}
	var tests []guestTest
	if err == nil {
		tests, err = s.compile386(ctx, bins, packages)
	}
	switch {
	case err != nil:
		s.step(where, what, func() (string, error) { return "", err })
	case runtime.GOARCH == "amd64" && runs(ctx, tests[0].run.bin, "-test.run=^$"):
		s.step(where, what, func() (string, error) { return s.goTest(ctx, environment386, packages...) })
	default:
		s.guest386(ctx, tests)
	}
}

// compile386 compiles the tests of those packages that have some.
func (s *suite) compile386(ctx context.Context, bins string, packages []string) ([]guestTest, error) {
	list := []string{"list", "-f", `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}`}
	out, err := s.goTool(ctx, environment386, append(list, packages...)...)
	if err != nil {
		return nil, err
	}
	if _, err := s.goTool(ctx, environment386, append([]string{"test", "-c", "-o", bins + "/"}, packages...)...); err != nil {
		return nil, err
	}
	var all []guestTest
	for line := range strings.Lines(out) {
		pkg, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		rel, err := filepath.Rel(s.root, dir)
		if err != nil {
			return nil, err
		}
		args := []string{"-test.paniconexit0", "-test.timeout=15m", "-test.short"}
		all = append(all, guestTest{pkg: "./" + rel, run: newTestRun(filepath.Join(bins, path.Base(pkg)+".test"), dir, args)})
	}
	if len(all) == 0 {
		return nil, errors.New("no package has tests")
	}
	return all, nil
}

// runs says whether this machine's kernel runs a program. A processor of amd64 runs those of 386; a
// kernel may be built, or told, not to. What else goes wrong the program's tests will tell.
func runs(ctx context.Context, program string, args ...string) bool {
	return !errors.Is(exec.CommandContext(ctx, program, args...).Run(), syscall.ENOEXEC)
}

// guest386 runs compiled tests in one guest.
func (s *suite) guest386(ctx context.Context, tests []guestTest) {
	const where = "guest 6.1, 386"
	c := guestConfig{kernel: "6.1", arch: "amd64", cpus: 2, memMiB: 1024}
	for _, t := range tests {
		c.files = append(c.files, t.run.inputs()...)
	}
	for _, dir := range read386 {
		names, err := filepath.Glob(filepath.Join(s.root, dir, "*.go"))
		if err != nil || len(names) == 0 {
			s.step(where, "boot", func() (string, error) { return "", errors.New("there is no source in " + dir) })
			return
		}
		for _, name := range names {
			c.files = append(c.files, fileArg{name, name})
		}
	}
	s.inGuest(ctx, where, c, func(v *vm) {
		for _, t := range tests {
			s.step(where, "go test as 386 "+t.pkg, func() (string, error) {
				_, err := v.guestTest(ctx, t)
				return "", err
			})
		}
	})
}
