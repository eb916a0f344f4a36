//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// refereePackages are those whose programs play on the ConnectX in software, against which
// programs in C of ours are built, and that have rdma-core's own test suite. What they depend on
// comes with them: a C library, and Python.
var refereePackages = []string{"ibverbs-utils", "ibverbs-providers", "perftest", "python3-pyverbs", "rdma-core", "libibverbs-dev"}

// refereeReleases are the releases of Debian that they are of. The first one's are the oldest
// that goverbs is tried with, and its rdma-core has the suite.
var refereeReleases = []string{"bookworm", "trixie"}

// refereeTree returns the unpacked folder of a release's referee packages.
func (h *host) refereeTree(ctx context.Context, release string) (string, error) {
	return h.unpacked(ctx, "referee", release, runtime.GOARCH, "rdma-core and perftest of "+release, refereePackages)
}

// refereeFolder is where programs that play find what they need.
type refereeFolder struct {
	dir  string // to be removed, or ""
	core string // the unpacked packages
}

// refereeFolder finds a release's packages. Root gets a copy that everybody may read, so that
// programs can run as an ordinary user too: root's cache is root's alone.
func (h *host) refereeFolder(ctx context.Context, release string) (refereeFolder, error) {
	core, err := h.refereeTree(ctx, release)
	if err != nil || os.Getuid() != 0 {
		return refereeFolder{core: core}, err
	}
	return publicCopy(core)
}

// publicCopy copies a folder to where everybody may read it.
func publicCopy(folder string) (refereeFolder, error) {
	parent := os.TempDir()
	if st, err := os.Stat(parent); err != nil || st.Mode().Perm()&0o001 == 0 {
		parent = "/tmp" // the other is somebody's alone
	}
	dir, err := os.MkdirTemp(parent, "rxevm-referee-")
	if err != nil {
		return refereeFolder{}, err
	}
	f := refereeFolder{dir, filepath.Join(dir, "core")}
	err = os.CopyFS(f.core, os.DirFS(folder))
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return refereeFolder{}, errors.Join(err, f.remove())
	}
	return f, nil
}

func (f *refereeFolder) remove() error {
	if f.dir == "" {
		return nil
	}
	return os.RemoveAll(f.dir)
}

// environment tells mlx5sim and its tests where the packages are.
func (f *refereeFolder) environment() []string { return []string{"GOVERBS_RDMA_CORE=" + f.core} }

// referee has rdma-core's and perftest's programs run on the ConnectX in software, against one
// another and against ours. They need not be installed here.
func (s *suite) referee(ctx context.Context, where string) {
	for i, release := range refereeReleases {
		what := "mlx5sim referee with the programs of " + release
		if runtime.GOARCH != "amd64" {
			s.notRun(where, what, "the programs are for amd64, and this machine is "+runtime.GOARCH)
			continue
		}
		f, err := s.host.refereeFolder(ctx, release)
		if err != nil {
			s.notRun(where, what, "they cannot be had here: "+firstLine(err.Error()))
			continue
		}
		if i == 0 {
			tests := "go test ./tools/mlx5sim with the programs of " + release
			if hostRelease() == release {
				s.step(where, tests, func() (string, error) { return s.refereeTests(ctx, &f) })
			} else {
				s.notRun(where, tests, "what they build here is for another C library: this machine is not Debian "+release)
			}
		}
		s.step(where, what, func() (string, error) { return s.refereeCases(ctx, &f) })
		if i == 0 {
			s.refereeNobody(ctx, where, what+" as an ordinary user, the short cases", &f)
		}
		if err := f.remove(); err != nil {
			s.step(where, "removing the programs of "+release, func() (string, error) { return "", err })
		}
	}
}

// refereeTests runs the tests that play a few cases, as root as an ordinary user too.
func (s *suite) refereeTests(ctx context.Context, f *refereeFolder) (string, error) {
	out, err := s.goTool(ctx, f.environment(), "test", testPatience, vetted, "-count=1", "-v", "./tools/mlx5sim")
	if err != nil {
		return "", err
	}
	passed, skipped := strings.Count(out, "--- PASS"), strings.Count(out, "--- SKIP")
	if passed == 0 {
		return "", fmt.Errorf("no test ran:\n%s", out)
	}
	return fmt.Sprintf("%d tests, %d skipped as declared", passed, skipped), nil
}

// refereeCases plays all cases.
func (s *suite) refereeCases(ctx context.Context, f *refereeFolder) (string, error) {
	dir, err := s.refereePrograms(ctx, f)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	out, err := s.program(ctx, f.environment(), filepath.Join(dir, "mlx5sim"), "referee")
	if err != nil {
		return "", err
	}
	return refereeResult(out)
}

// refereePrograms builds mlx5sim, and the verbs that it looks for beside itself, into a folder that
// the caller removes.
func (s *suite) refereePrograms(ctx context.Context, f *refereeFolder) (string, error) {
	dir, err := os.MkdirTemp(f.dir, "programs-")
	if err != nil {
		return "", err
	}
	if err = os.Chmod(dir, 0o755); err == nil {
		_, err = s.goTool(ctx, nil, "build", "-o", dir+"/", "./tools/mlx5sim", "./tools/verbs")
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// refereeNobody plays the short cases as nobody, which only root can.
func (s *suite) refereeNobody(ctx context.Context, where, what string, f *refereeFolder) {
	if os.Getuid() != 0 {
		s.notRun(where, what, "who runs this is one, and all cases were played")
		return
	}
	start := time.Now()
	dir, err := s.refereePrograms(ctx, f)
	var detail string
	if err == nil {
		defer os.RemoveAll(dir)
		var out string
		out, err = s.program(ctx, f.environment(), "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
			"env", "TMPDIR=/tmp", filepath.Join(dir, "mlx5sim"), "referee", "-short")
		if err != nil && strings.Contains(err.Error(), "may not make namespaces") {
			s.notRun(where, what, "this machine does not let who is not root make namespaces")
			return
		}
		if err == nil {
			detail, err = refereeResult(out)
		}
	}
	s.step(where, what, func() (string, error) { return fmt.Sprintf("%s in %.1f s", detail, time.Since(start).Seconds()), err })
}

// refereeTotal is the last line of mlx5sim referee.
var refereeTotal = regexp.MustCompile(`(?m)^([1-9]\d* passed, 0 failed) \(\d+ s\)\n\z`)

// refereeResult takes the last line apart. All programs are there, so no case is skipped for want
// of one.
func refereeResult(out string) (string, error) {
	m := refereeTotal.FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("not all cases passed:\n%s", out)
	}
	return m[1], nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
