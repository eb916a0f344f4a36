//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tools/conformance"
	"github.com/goverbs/goverbs/tools/readme"
)

// A guestTest is a package whose tests must run in the guest, with its compiled test binary.
type guestTest struct {
	pkg string // relative to the module, such as ./uverbs
	run testRun
	// probing says that some tests attach probes, others that some do not.
	probing, others bool
}

// bootPatience is how long a guest may take to come up, on a busy machine and with packages to
// fetch.
const bootPatience = 10 * time.Minute

// guestMarker is what makes a package one for the guest: a test of its own that only proves
// something on a real kernel.
var guestMarker = regexp.MustCompile(`func TestGuest|needs kernel >=|GOVERBS_GUEST`)

// guestPart boots one kernel once and runs in it the packages' tests, the tools, and the games with
// rdma-core.
func (s *suite) guestPart(ctx context.Context, kernel string) {
	where := "guest " + kernel
	bins, err := s.host.scratch()
	if err != nil {
		s.step(where, "build", func() (string, error) { return "", err })
		return
	}
	defer os.RemoveAll(bins)
	var tests, probing []guestTest
	s.step(where, "build the packages' tests", func() (string, error) {
		tests, err = s.compileGuestTests(ctx, bins)
		tests, probing = apartProbing(tests)
		return fmt.Sprintf("%d packages", len(tests)), err
	})
	c := guestConfig{kernel: kernel, arch: "amd64", cpus: 2, memMiB: 1536, rdmaCore: true, verbs: true, modules: []string{"mlx5_ib"}}
	for _, t := range tests {
		c.files = append(c.files, t.run.inputs()...)
	}
	if kernel == numaKernel {
		c.nodes = 2
	}
	program := filepath.Join(bins, "readme")
	built := s.step(where, "build the README's program", func() (string, error) {
		return "", readme.Build(ctx, s.root, program)
	})
	if built {
		c.files = append(c.files, fileArg{program, readmeInGuest})
	}
	s.inGuest(ctx, where, c, func(v *vm) {
		s.devinfo(ctx, where, v)
		if built {
			s.readme(ctx, where, v)
		}
		for _, t := range tests {
			if t.pkg == "./uverbs" {
				t.run.judge = s.conforms(conformance.Place(kernel))
			}
			s.step(where, "go test "+t.pkg, func() (string, error) {
				out, err := v.guestTest(ctx, t)
				if out = strings.TrimSpace(strings.TrimSuffix(out, "PASS\n")); out != "" {
					fmt.Fprintf(s.out, "%s: %s prints:%s\n", where, t.pkg, indented(out))
				}
				return "", err
			})
		}
		if kernel == harshKernel {
			s.harshGuest(ctx, where, v, tests)
		}
		s.selftestGuest(ctx, where, kernel, v)
		s.games(ctx, where, v, interop(kernel))
	})
	s.probesPart(ctx, kernel, probing)
}

// numaKernel is the series whose guest has two NUMA nodes. The others have one, as most machines.
const numaKernel = "6.12"

// readmeInGuest is where the README's program is in the guest.
const readmeInGuest = "/bin/readme"

// readme runs the README's program and looks for what it says of itself.
func (s *suite) readme(ctx context.Context, where string, v *vm) {
	s.step(where, "the README's program", func() (string, error) {
		limit, cancel := withDeadline(ctx, 3*time.Minute)
		defer cancel()
		var out bytes.Buffer
		code, err := v.run(limit, job{Args: []string{readmeInGuest}, Env: v.environ()}, jobIO{stdout: &out, stderr: &out})
		if err == nil && code != 0 {
			err = fmt.Errorf("ended with status %d", code)
		}
		if want := "1 completion: request 1, success; hello from the other side\n"; err == nil && out.String() != want {
			err = fmt.Errorf("does not print %q", want)
		}
		if err != nil {
			return "", fmt.Errorf("%w%s", err, indented(out.String()))
		}
		return "", nil
	})
}

// smokePart boots a kernel that gets only a short look, and what more there is to do in it.
func (s *suite) smokePart(ctx context.Context, kernel, arch string, more ...guestTest) {
	where := "guest " + kernel
	if arch != "amd64" {
		where += " " + arch
	}
	c := guestConfig{kernel: kernel, arch: arch, cpus: 2, memMiB: 1024, verbs: true}
	for _, t := range more {
		c.files = append(c.files, t.run.inputs()...)
	}
	s.inGuest(ctx, where, c, func(v *vm) {
		s.devinfo(ctx, where, v)
		for _, t := range more {
			s.step(where, "go test "+t.pkg, func() (string, error) {
				_, err := v.guestTest(ctx, t)
				return "", err
			})
		}
		var games []game
		for _, events := range []bool{false, true} {
			games = append(games, game{server: playVerbs, client: playVerbs, events: events, size: 4096, iters: 100, check: true, timeout: 2 * time.Minute})
		}
		s.games(ctx, where, v, games)
		s.perf(ctx, where, v)
	})
}

// inGuest boots a guest, uses it and judges its end.
func (s *suite) inGuest(ctx context.Context, where string, c guestConfig, use func(*vm)) {
	if c.verbs && !s.withRelease(ctx, where, &c) {
		return
	}
	var v *vm
	if !s.step(where, "boot", func() (detail string, err error) {
		limit, cancel := withDeadline(ctx, bootPatience)
		defer cancel()
		v, err = s.host.boot(limit, c)
		if died := (exitError{}); errors.As(err, &died) && died.code == exitBroken && limit.Err() == nil {
			// Under emulation a kernel sometimes falls over its own patching of code.
			fmt.Fprintf(s.out, "%s: boots once more: %v\n", where, err)
			detail = "at the second try, "
			v, err = s.host.boot(limit, c)
		}
		if err != nil {
			return "", err
		}
		return detail + v.release + ", " + v.accel(), nil
	}) {
		return
	}
	use(v)
	s.step(where, "no kernel complaint, no leaked object", func() (string, error) {
		err := v.close(ctx)
		if n := len(v.console.stalled()); n > 0 && err == nil {
			return fmt.Sprintf("%d stall lines under emulation", n), nil
		}
		return "", err
	})
}

// devinfo runs verbs devinfo and looks for the device in its output.
func (s *suite) devinfo(ctx context.Context, where string, v *vm) {
	s.step(where, "verbs devinfo -v", func() (string, error) {
		var out bytes.Buffer
		code, err := v.run(ctx, job{Args: []string{"verbs", "devinfo", "-v"}, Env: v.environ()}, jobIO{stdout: &out, stderr: &out})
		if err == nil && code != 0 {
			err = fmt.Errorf("ended with status %d", code)
		}
		if err == nil && (!strings.Contains(out.String(), "rxe0") || !strings.Contains(out.String(), "PORT_ACTIVE")) {
			err = errors.New("does not show rxe0 with an active port")
		}
		if err != nil {
			return "", fmt.Errorf("%w%s", err, indented(out.String()))
		}
		return "", nil
	})
}

// games plays ping-pongs, one row each.
func (s *suite) games(ctx context.Context, where string, v *vm, games []game) {
	for i, g := range games {
		s.step(where, g.String(), func() (string, error) {
			got, err := v.play(ctx, g, uint16(18515+i))
			return fmt.Sprintf("%.0f usec/iteration, %d packets (at least %d)", got.usecPerIter, got.sent, g.packets()), err
		})
	}
}

// interop is the matrix of games between verbs and rdma-core. 6.12 takes milliseconds per iteration
// under emulation, so it plays fewer.
func interop(kernel string) []game {
	iters := map[int]int{1: 500, 4096: 500, 65536: 100}
	if !olderThan(kernel, "6.2") {
		iters = map[int]int{1: 100, 4096: 100, 65536: 20}
	}
	var all []game
	for _, roles := range [][2]player{{playRDMA, playVerbs}, {playVerbs, playRDMA}} {
		for _, events := range []bool{false, true} {
			for _, size := range []int{1, 4096, 65536} {
				all = append(all, game{server: roles[0], client: roles[1], events: events, size: size, iters: iters[size], check: true, timeout: 2 * time.Minute})
			}
		}
	}
	return all
}

// guestTest runs one package's tests and returns what they print; after a failure that is part of
// the error.
func (v *vm) guestTest(ctx context.Context, t guestTest) (string, error) {
	limit, cancel := withDeadline(ctx, t.run.timeout+time.Minute)
	defer cancel()
	var out bytes.Buffer
	code, err := t.run.run(limit, v, passedEnv(os.Environ()), &out, &out)
	if err == nil && code != 0 {
		err = fmt.Errorf("ended with status %d", code)
	}
	if err != nil {
		return "", fmt.Errorf("%w%s", err, indented(out.String()))
	}
	return out.String(), nil
}

// compileGuestTests finds the packages with tests for the guest and compiles them.
func (s *suite) compileGuestTests(ctx context.Context, bins string) ([]guestTest, error) {
	out, err := s.goTool(ctx, nil, "list", "-f", `{{.Dir}}{{range .TestGoFiles}} {{.}}{{end}}{{range .XTestGoFiles}} {{.}}{{end}}`, "./...")
	if err != nil {
		return nil, err
	}
	self, apart := filepath.Join(s.root, "tools", "rxevm"), filepath.Join(s.root, plantedPackage)
	var all []guestTest
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] == self || f[0] == apart { // Our own tests are about the host's side.
			continue
		}
		dir, marked, named, probing, others := f[0], false, false, false, false
		for _, name := range f[1:] {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			marked = marked || guestMarker.Match(b)
			named = named || bytes.Contains(b, []byte("func TestGuest"))
			for _, name := range guestTestName.FindAll(b, -1) {
				probes := probingTest.Match(name)
				probing, others = probing || probes, others || !probes
			}
		}
		if !marked {
			continue
		}
		rel, err := filepath.Rel(s.root, dir)
		if err != nil {
			return nil, err
		}
		bin := filepath.Join(bins, strings.ReplaceAll(rel, "/", "_")+".test")
		if _, err := s.goTool(ctx, []string{"GOARCH=amd64"}, "test", "-c", "-o", bin, "./"+rel); err != nil {
			return nil, err
		}
		args := []string{"-test.paniconexit0", "-test.timeout=15m"}
		if named {
			// The others need no guest, and have run on the host, where
			// they are faster.
			args = append(args, "-test.run=^TestGuest")
		}
		all = append(all, guestTest{pkg: "./" + rel, run: newTestRun(bin, dir, args), probing: probing, others: others || !named})
	}
	if len(all) == 0 {
		return nil, errors.New("no package has a test for the guest")
	}
	return all, nil
}
