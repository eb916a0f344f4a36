//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// harshPackages are those whose tests deal with goroutines that wait for one another.
var harshPackages = []string{"./cq", "./poll", "./uverbs", "./uverbs/sim", "./uverbs/uverbstest"}

// A circumstance is one under which programs run in the world, and seldom where they are tested.
type circumstance struct {
	name string
	env  []string
	harsh
}

// circumstances are those that a program cannot choose. The share of a processor is for guests: it
// takes a cgroup.
var circumstances = []circumstance{
	{name: "GOMAXPROCS=1", env: []string{"GOMAXPROCS=1"}},
	{name: "GOMAXPROCS=64", env: []string{"GOMAXPROCS=64"}},
	{name: "GOGC=1", env: []string{"GOGC=1"}},
	{name: "a storm of SIGURG", harsh: harsh{Storm: true}},
	{name: "half a processor", harsh: harsh{CPUs: 0.5}},
}

// harshPart runs tests on this machine under each circumstance but the last.
func (s *suite) harshPart(ctx context.Context) {
	const where = "harsh"
	bins, err := s.host.scratch()
	if err != nil {
		s.step(where, "build", func() (string, error) { return "", err })
		return
	}
	defer os.RemoveAll(bins)
	binary := func(pkg string) string { return filepath.Join(bins, filepath.Base(pkg)+".test") }
	if !s.step(where, "build the packages' tests", func() (string, error) {
		for _, pkg := range harshPackages {
			if _, err := s.goTool(ctx, nil, "test", "-c", "-o", binary(pkg), pkg); err != nil {
				return "", err
			}
		}
		return "", nil
	}) {
		return
	}
	for _, c := range circumstances {
		if c.CPUs != 0 {
			continue
		}
		s.step(where, c.name, func() (string, error) {
			// They wait most of the time, so all may run at once.
			errs := make([]error, len(harshPackages))
			var all sync.WaitGroup
			for i, pkg := range harshPackages {
				all.Go(func() {
					if err := s.underHarsh(ctx, c, pkg, binary(pkg)); err != nil {
						errs[i] = fmt.Errorf("%s: %w", pkg, err)
					}
				})
			}
			all.Wait()
			return fmt.Sprintf("%d packages", len(harshPackages)), errors.Join(errs...)
		})
	}
}

// underHarsh runs one package's tests under a circumstance.
func (s *suite) underHarsh(ctx context.Context, c circumstance, pkg, binary string) error {
	var out strings.Builder
	cmd := exec.CommandContext(ctx, binary, "-test.short", "-test.paniconexit0", "-test.timeout=15m")
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(s.root, pkg), &out, &out
	cmd.Env = append(os.Environ(), c.env...)
	ended := make(chan struct{})
	err := runChildThen(cmd, func() {
		if c.Storm {
			go storm(cmd.Process.Pid, ended)
		}
	})
	close(ended)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out.String())
	}
	return nil
}

// harshGuestTests are the tests on soft-RoCE that run under each circumstance in a guest: those of
// everything that waits.
const harshGuestTests = "^TestGuest(Bug(01|06|08|11|27|41|42|48).*|Datagrams|Drain|Events|Interrupted|Operations|Resize|SRQ|UC|Unsignaled)$"

// harshKernel is the series on which they do: one is enough for the library's side of things.
const harshKernel = "6.1"

// harshGuest runs part of the tests of uverbs in the guest under each circumstance.
func (s *suite) harshGuest(ctx context.Context, where string, v *vm, tests []guestTest) {
	i := slices.IndexFunc(tests, func(t guestTest) bool { return t.pkg == "./uverbs" })
	if i < 0 {
		return // what was built before says so
	}
	t := tests[i]
	for _, c := range circumstances {
		h := t
		h.run.args = append([]string{}, t.run.args...)
		for i, a := range h.run.args {
			if strings.HasPrefix(a, "-test.run=") {
				h.run.args[i] = "-test.run=" + harshGuestTests
			}
		}
		h.run.harsh, h.run.env, h.run.judge = c.harsh, c.env, nil
		s.step(where, t.pkg+" under "+c.name, func() (string, error) {
			_, err := v.guestTest(ctx, h)
			return "", err
		})
	}
}
