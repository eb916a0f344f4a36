//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// crossArchs are the Linux architectures for which everything must build.
var crossArchs = []string{"amd64", "arm64", "386", "arm", "riscv64", "ppc64le", "s390x"}

// narrowPackages are run as programs of other architectures too: they deal with
// memory layouts.
var narrowPackages = []string{"./abi/...", "./cq", "./rxe", "./mlx5/..."}

// hostPart runs what needs no RDMA.
func (s *suite) hostPart(ctx context.Context) {
	const where = "host"
	s.step(where, "go vet ./...", func() (string, error) {
		_, err := s.goTool(ctx, nil, "vet", "./...")
		return "", err
	})
	// Without C; with -race, with it.
	s.step(where, "go test ./...", func() (string, error) { return s.goTest(ctx, nil, vetted, "./...") })
	if why := s.compiler(ctx); why != "" {
		s.notRun(where, "go test -race ./...", why)
	} else {
		s.step(where, "go test -race ./...", func() (string, error) { return s.goTest(ctx, []string{"CGO_ENABLED=1"}, "-race", "./...") })
	}
	s.page(ctx, where)
	s.step(where, "verbs demo", func() (string, error) {
		out, err := s.goTool(ctx, nil, "run", "./tools/verbs", "demo", "-n", "1000")
		first, _, _ := strings.Cut(out, ",")
		return first, err
	})
	s.releaseTwice(ctx, where)
	s.selftestHost(ctx, where)
	// Compilers keep all processors busy, and the games about one: side by side they end sooner.
	var builds sync.WaitGroup
	builds.Go(func() { s.builds(ctx, where) })
	s.referee(ctx, where)
	s.conformance(ctx, where)
	builds.Wait()
	s.mutations(ctx, where)
	var narrow []string
	for _, p := range narrowPackages {
		if _, err := os.Stat(filepath.Join(s.root, strings.TrimSuffix(p, "/..."))); err == nil {
			narrow = append(narrow, p)
		}
	}
	s.as386(ctx, where, narrow)
	for _, arch := range foreignArchs {
		s.foreign(ctx, where, arch, narrow)
	}
}

// builds builds for other architectures and systems.
func (s *suite) builds(ctx context.Context, where string) {
	for _, arch := range crossArchs {
		s.step(where, "build ./... for linux/"+arch, func() (string, error) {
			_, err := s.goTool(ctx, []string{"GOOS=linux", "GOARCH=" + arch}, "build", "./...")
			return "", err
		})
	}
	libraries, err := s.libraries(ctx)
	for _, goos := range []string{"darwin", "windows"} {
		s.step(where, "build the libraries for "+goos+"/amd64", func() (string, error) {
			if err != nil {
				return "", err
			}
			_, err := s.goTool(ctx, []string{"GOOS=" + goos, "GOARCH=amd64"}, append([]string{"build"}, libraries...)...)
			return fmt.Sprintf("%d packages", len(libraries)), err
		})
	}
}

// foreignArchs are architectures whose programs run under emulation here: one
// that is big-endian, and one whose memory order is weak.
var foreignArchs = []string{"s390x", "arm64"}

// foreign runs the packages' tests as programs of another architecture, under
// QEMU's emulation of a processor alone.
func (s *suite) foreign(ctx context.Context, where, arch string, packages []string) {
	qemuArch := arch
	if arch == "arm64" {
		qemuArch = "aarch64"
	}
	s.step(where, "go test as "+arch+" "+strings.Join(packages, " "), func() (string, error) {
		unlock, err := s.host.lock(ctx)
		if err != nil {
			return "", err
		}
		t, err := s.host.tool(ctx, "qemu-"+qemuArch, "qemu-user")
		unlock()
		if err != nil {
			return "", err
		}
		env := []string{"GOARCH=" + arch}
		return s.goTest(ctx, env, append([]string{"-short", "-exec", strings.Join(t.args, " ")}, packages...)...)
	})
}

// page drives the decoder's page in Chromium, which go test ./... does only where there is one.
func (s *suite) page(ctx context.Context, where string) {
	const what = "the decoder's page in Chromium"
	_, err := exec.LookPath("chromium")
	if err != nil && s.host.install {
		err = s.host.installPackage(ctx, "chromium")
	}
	if err != nil {
		s.notRun(where, what, "the package chromium is not installed; -install, as root, installs it")
		return
	}
	s.step(where, what, func() (string, error) { return s.goTest(ctx, nil, vetted, "-run=^TestPage$", "./tools/decodepage") })
}

// testPatience is for machines with much else to do: the ten minutes that go gives the tests of a
// package by default may pass there, while nothing hangs.
const testPatience = "-timeout=30m"

// vetted is for go test where go vet ./... has read the same files already, with more checks.
const vetted = "-vet=off"

// goTest runs go test and counts packages.
func (s *suite) goTest(ctx context.Context, env []string, args ...string) (string, error) {
	out, err := s.goTool(ctx, env, append([]string{"test", testPatience}, args...)...)
	if err != nil {
		return "", err
	}
	n := 0
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "ok") {
			n++
		}
	}
	if n == 0 {
		return "", fmt.Errorf("no package has a test that ran:\n%s", out)
	}
	return fmt.Sprintf("%d packages", n), nil
}

// libraries lists the module's packages that are no tools.
func (s *suite) libraries(ctx context.Context) ([]string, error) {
	out, err := s.goTool(ctx, nil, "list", "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, "./...")
	if err != nil {
		return nil, err
	}
	var all []string
	for p := range strings.FieldsSeq(out) {
		if !strings.Contains(p, "/tools/") {
			all = append(all, p)
		}
	}
	return all, nil
}

// compiler sees to a C compiler, which the race detector needs and with which tests build programs in
// C to compare ours with. It says why there is none, or "".
func (s *suite) compiler(ctx context.Context) string {
	why := noRace(ctx)
	if why == "" || !s.host.install {
		return why
	}
	for _, pkg := range []string{"gcc", "libc6-dev"} {
		if err := s.host.installPackage(ctx, pkg); err != nil {
			return why + ": " + firstLine(err.Error())
		}
	}
	return noRace(ctx)
}

// noRace says why the race detector cannot be used here, or "".
func noRace(ctx context.Context) string {
	out, err := runTool(ctx, "", "go", "env", "CC")
	if err != nil {
		return err.Error()
	}
	cc, _, _ := strings.Cut(strings.TrimSpace(out), " ")
	if _, err := exec.LookPath(cc); err != nil {
		return fmt.Sprintf("it needs a C compiler and %s is not installed (package gcc)", cc)
	}
	return ""
}
