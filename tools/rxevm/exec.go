//go:build linux

package main

import (
	"context"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A testRun is one test binary, or any program, to be run in a guest as if it ran in its folder
// here.
type testRun struct {
	bin  string // absolute path, the same on both sides
	dir  string // the package's folder
	args []string

	mode    verbosity
	isTest  bool
	short   bool
	timeout time.Duration // -test.timeout; 0 means none
	mkdirs  []string
	collect []string

	harsh harsh
	env   []string // besides what is passed on

	// judge, if not nil, says what is wrong with which tests passed and which were skipped, in
	// a run that went well.
	judge func(passed []string, skips []skip) error
}

// boolTestFlags are the flags of test binaries that take no value of their own.
var boolTestFlags = map[string]bool{"v": true, "short": true, "failfast": true, "paniconexit0": true, "benchmem": true, "fullpath": true, "artifacts": true}

// newTestRun reads a test binary's arguments. Flags that ask for files make the run bring them
// back; verbosity is replaced by what testOutput needs.
func newTestRun(bin, dir string, args []string) testRun {
	r := testRun{bin: bin, dir: dir, mkdirs: []string{dir}}
	outputDir := dir
	var files []string
	for i := 0; i < len(args); i++ {
		name, ok := strings.CutPrefix(strings.TrimPrefix(args[i], "-"), "-test.")
		if !ok {
			name, ok = strings.CutPrefix(args[i], "-test.")
		}
		if !ok {
			r.args = append(r.args, args[i])
			continue
		}
		r.isTest = true
		name, value, inline := strings.Cut(name, "=")
		if !inline && !boolTestFlags[name] && i+1 < len(args) {
			i++
			value = args[i]
		}
		on := !inline || value == "true" || value == "1" || value == "t"
		switch name {
		case "v":
			switch {
			case value == "test2json":
				r.mode = marked
			case on:
				r.mode = verbose
			}
			continue
		case "testlogfile":
			continue // It tells go test which files to watch for its cache; a guest's run is not to be cached.
		case "short":
			r.short = on
		case "timeout":
			if d, err := time.ParseDuration(value); err == nil {
				r.timeout = d
			}
		case "outputdir":
			outputDir = value
		case "coverprofile", "cpuprofile", "memprofile", "blockprofile", "mutexprofile", "trace":
			files = append(files, value)
		case "gocoverdir":
			r.mkdirs = append(r.mkdirs, value)
			r.collect = append(r.collect, value)
		}
		if boolTestFlags[name] && !inline {
			r.args = append(r.args, "-test."+name)
		} else {
			r.args = append(r.args, "-test."+name+"="+value)
		}
	}
	if r.isTest {
		// In front, because flags behind the first other argument belong to the test.
		r.args = append([]string{"-test.v=test2json"}, r.args...)
	}
	if !filepath.IsAbs(outputDir) {
		outputDir = filepath.Join(dir, outputDir)
	}
	for _, f := range files {
		if !filepath.IsAbs(f) {
			f = filepath.Join(outputDir, f)
		}
		r.mkdirs = append(r.mkdirs, filepath.Dir(f))
		r.collect = append(r.collect, f)
	}
	r.mkdirs = append(r.mkdirs, outputDir)
	if within(dir, outputDir) {
		// The folder holds what was copied in: bring back what go test itself would look for.
		outputDir = filepath.Join(outputDir, "_artifacts")
	}
	r.collect = append(r.collect, outputDir)
	return r
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// inputs lists what the run needs in the guest: the binary, the package's testdata, and the
// module's testdata and go.mod, which generated-code and golden tests read.
func (r testRun) inputs() []fileArg {
	all := []fileArg{{r.bin, r.bin}}
	add := func(path string) bool {
		_, err := os.Stat(path)
		if err == nil {
			all = append(all, fileArg{path, path})
		}
		return err == nil
	}
	add(filepath.Join(r.dir, "testdata"))
	for d := r.dir; ; d = filepath.Dir(d) {
		if add(filepath.Join(d, "go.mod")) {
			if d != r.dir {
				add(filepath.Join(d, "testdata"))
			}
			return all
		}
		if d == filepath.Dir(d) {
			return all
		}
	}
}

// run runs the binary in a guest, its output to the given writers. Besides the program's status it
// returns what is wrong with its skips.
func (r testRun) run(ctx context.Context, v *vm, env []string, stdout, stderr io.Writer) (int, error) {
	j := job{Args: append([]string{r.bin}, r.args...), Env: append(append(v.environ(), env...), r.env...), Dir: r.dir, Mkdirs: r.mkdirs, Collect: r.collect, harsh: r.harsh}
	for _, e := range env {
		if d, ok := strings.CutPrefix(e, "GOCOVERDIR="); ok && filepath.IsAbs(d) {
			j.Mkdirs, j.Collect = append(j.Mkdirs, d), append(j.Collect, d)
		}
	}
	x := jobIO{stdout: stdout, stderr: stderr, file: receiver(j.Collect)}
	if !r.isTest {
		return v.run(ctx, j, x)
	}
	out := newTestOutput(stdout, r.mode)
	x.stdout = out
	code, err := v.run(ctx, j, x)
	err = errors.Join(err, out.Close())
	var bad []string
	for _, s := range out.skips {
		if why := undeclared(s, v.config.kernel, r.short); why != "" {
			bad = append(bad, why)
		} else {
			v.host.note("%s: skipped as declared: %s", s.test, s.reason)
		}
	}
	if len(bad) > 0 {
		err = errors.Join(err, exitError{exitSkip, errors.New(strings.Join(bad, "\n"))})
	}
	if r.judge != nil && code == 0 && err == nil { // else it would say of each test that never ran what is said already
		err = r.judge(out.passed, out.skips)
	}
	return code, err
}

// receiver stores files that come back under their own paths, and only below what was asked for.
func receiver(roots []string) func(fileHeader) (io.WriteCloser, error) {
	return func(fh fileHeader) (io.WriteCloser, error) {
		path := filepath.Clean(fh.Path)
		for _, root := range roots {
			if within(path, filepath.Clean(root)) {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					return nil, err
				}
				return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, os.FileMode(fh.Mode)&0o777)
			}
		}
		return nil, fmt.Errorf("the guest sent %s, which was not asked for", path)
	}
}

// cmdExec is rxevm exec.
func cmdExec(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("rxevm exec", flag.ContinueOnError)
	var g guestFlags
	addGuestFlags(fs, &g)
	if err := parseFlags(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() == 0 {
		return 0, exitError{exitUsage, errors.New("no binary to run: go test -exec 'rxevm exec [flags]' adds it")}
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	bin, err := filepath.Abs(fs.Arg(0))
	if err != nil {
		return 0, err
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if err := checkBinary(bin, &g, given["arch"]); err != nil {
		return 0, exitError{exitUsage, err}
	}
	if err := g.check(); err != nil {
		return 0, err
	}
	r := newTestRun(bin, dir, fs.Args()[1:])
	r.harsh = g.harsh
	if r.isTest && !given["timeout"] {
		// The test's own alarm tells more than ours, so it goes first.
		g.timeout = r.timeout + 2*time.Minute
		if r.timeout == 0 {
			g.timeout = 24 * time.Hour
		}
	}
	h, err := newHost(g.install)
	if err != nil {
		return 0, err
	}
	g.files = append(r.inputs(), g.files...)
	g.verbs = true
	ctx, cancel := withDeadline(ctx, g.timeout)
	defer cancel()
	v, err := h.boot(ctx, g.guestConfig)
	if err != nil {
		return 0, err
	}
	code, err := r.run(ctx, v, passedEnv(os.Environ()), os.Stdout, os.Stderr)
	return code, errors.Join(err, v.close(ctx))
}

// checkBinary checks that a guest can run a program, and takes the architecture from it unless a
// flag gave one.
func checkBinary(bin string, g *guestFlags, archGiven bool) error {
	f, err := elf.Open(bin)
	if form := (*elf.FormatError)(nil); errors.As(err, &form) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is no Linux program: build it with GOOS=linux CGO_ENABLED=0 (scripts go to rxevm run)", bin)
	}
	if err != nil {
		return err // It names the file.
	}
	defer f.Close()
	arch, ok := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_386: "amd64", elf.EM_AARCH64: "arm64"}[f.Machine]
	switch {
	case !ok:
		return fmt.Errorf("%s is for %v: guests are %s", bin, f.Machine, strings.Join(archNames(), " and "))
	case !archGiven:
		g.arch = arch
	case arch != g.arch:
		return fmt.Errorf("%s is for %s, the guest is %s", bin, arch, g.arch)
	}
	static, err := isStatic(bin)
	if err == nil && !static && g.with == "" {
		err = fmt.Errorf("%s needs a C library, which the guest does not have: build it with CGO_ENABLED=0, or add -with rdma-core", bin)
	}
	return err
}
