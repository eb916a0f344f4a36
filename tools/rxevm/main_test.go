//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMistakesAreUsageErrors(t *testing.T) {
	t.Setenv("GOVERBS_CACHE", t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		says string
	}{
		{nil, "no command"},
		{[]string{"fly"}, `unknown command "fly"`},
		{[]string{"run", "-wings"}, "-wings"},
		{[]string{"run"}, "no command to run"},
		{[]string{"run", "-kernel", "2.4", "--", "x"}, `-kernel "2.4": there are 5.10, 6.1, 6.12`},
		{[]string{"run", "-arch", "vax", "--", "x"}, "amd64, arm64"},
		{[]string{"run", "-smp", "0", "--", "x"}, "from 1 to 64"},
		{[]string{"run", "-smp", "many", "--", "x"}, "many"},
		{[]string{"run", "-mem", "1", "--", "x"}, "from 256 MiB"},
		{[]string{"run", "-numa", "0", "--", "x"}, "from 1 to 8 nodes"},
		{[]string{"run", "-numa", "3", "-mem", "300", "--", "x"}, "of 128 MiB"},
		{[]string{"run", "-numa", "3", "--", "x"}, "-smp 2 is no multiple"},
		{[]string{"run", "-cpumax", "0.001", "--", "x"}, "of 0.01 to 64 processors"},
		{[]string{"run", "-cpumax", "0", "--", "x"}, "of 0.01 to 64 processors"},
		{[]string{"run", "-cpumax", "NaN", "--", "x"}, "of 0.01 to 64 processors"},
		{[]string{"run", "-module", "", "--", "x"}, "a module has a name"},
		{[]string{"run", "-with", "", "--", "x"}, "-with has nothing in it"},
		{[]string{"fetch", "-kernel", "6.1,7"}, "-kernel \"7\": there are "},
		{[]string{"run", "-timeout", "-1s", "--", "x"}, "more than 0"},
		{[]string{"run", "-with", "windows", "--", "x"}, "there is rdma-core"},
		{[]string{"run", "-file", "/no/such/file", "--", "x"}, "/no/such/file"},
		{[]string{"run", "-file", "/etc/passwd:relative", "--", "x"}, "absolute DST"},
		{[]string{"run", "--", "echo a; echo b"}, "-with rdma-core"},
		{[]string{"exec"}, "no binary"},
		{[]string{"exec", "/no/such/binary"}, "/no/such/binary"},
		{[]string{"exec", script}, script + " is no Linux program"},
		{[]string{"exec", "-arch", "arm64", self}, "is for amd64"},
		{[]string{"demo", "now"}, "no arguments"},
		{[]string{"fetch", "now"}, "no arguments"},
		{[]string{"test", "now"}, "no arguments"},
		{[]string{"test", "-parts", "host,moon"}, `"moon"`},
		{[]string{"bench", "now"}, "no arguments"},
		{[]string{"bench", "-pairs", "1"}, "at least 2 pairs"},
		{[]string{"bench", "-waiting", "-n", "0"}, "at least 1 round"},
		{[]string{"test", "-timeout", "0s"}, "more than 0"},
		{[]string{"run", "-timeout", "5", "--", "x"}, "a time with its unit"},
		{[]string{"bench", "-n", "3"}, "only -waiting has these"},
		{[]string{"bench", "-waiting", "-pairs", "3"}, "-waiting has -n"},
		{[]string{"bench", "-svg", "x"}, "only -waiting has these"},
		{[]string{"bench", "-perf", "-waiting"}, "choose one"},
		{[]string{"bench", "-perf", "-svg", "x"}, "only -waiting has these"},
		{[]string{"bench", "-quick"}, "only -perf has these"},
		{[]string{"bench", "-run", "x"}, "only -perf has these"},
		{[]string{"bench", "-instructions"}, "only -perf has these"},
		{[]string{"bench", "-waiting", "-instructions"}, "only -perf has these"},
		{[]string{"bench", "-perf", "-instructions", "-smp", "2"}, "with -instructions the guest has 1 CPU"},
		{[]string{"bench", "-perf", "-instructions", "-numa", "2"}, "-numa 2"},
		{[]string{"bench", "-perf", "-instructions", "-quick"}, "measures rates only"},
		{[]string{"bench", "-perf", "-instructions", "-iters", "2000"}, "measures rates only"},
		{[]string{"bench", "-perf", "-instructions", "-pairs", "1"}, "at least 2 pairs"},
		{[]string{"bench", "-perf", "-instructions", "-run", "send_bw"}, "there are write_bw and read_bw"},
		{[]string{"bench", "-perf", "-instructions", "-run", "starts"}, "there are write_bw and read_bw"},
		{[]string{"bench", "-perf", "-run", "("}, "-run: error parsing regexp"},
		{[]string{"bench", "-perf", "-run", "nosuchrow"}, "no row has such a name"},
		{[]string{"bench", "-perf", "-pairs", "1"}, "at least 2 pairs"},
		{[]string{"bench", "-perf", "now"}, "no arguments"},
		{[]string{"bench", "starts", "0"}, "for rxevm itself"},
	} {
		code, err := dispatch(context.Background(), tt.args)
		var b bytes.Buffer
		if got := report(&b, code, err); got != exitUsage {
			t.Errorf("rxevm %v: status %d, want %d (%s)", tt.args, got, exitUsage, b.String())
		}
		if !strings.Contains(b.String(), tt.says) {
			t.Errorf("rxevm %v says %q, want something with %q", tt.args, b.String(), tt.says)
		}
	}
}

func TestMistakesInFlagsAreSaidInTwoLines(t *testing.T) {
	for _, args := range [][]string{{"run", "-wings"}, {"exec", "-kernel"}, {"test", "-timeout", "soon"}, {"fetch", "-x"}} {
		code, err := dispatch(t.Context(), args)
		var b bytes.Buffer
		report(&b, code, err)
		if said := b.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, "rxevm "+args[0]+" -h lists the flags") {
			t.Errorf("rxevm %v says %q", args, said)
		}
	}
}

// Each command's help begins with how it is called.
func TestUsageOf(t *testing.T) {
	for name := range commands {
		if text := usageOf("rxevm " + name); !strings.HasPrefix(text, "usage: rxevm "+name+" [flags]") || strings.Count(text, "\n") != 3 {
			t.Errorf("%s: %q", name, text)
		}
	}
}

func TestHelpOfACommandThatIsNone(t *testing.T) {
	code, err := dispatch(t.Context(), []string{"help", "fly"})
	if got := report(&bytes.Buffer{}, code, err); got != exitUsage {
		t.Errorf("status %d, want %d (%v)", got, exitUsage, err)
	}
}

func TestExitStatus(t *testing.T) {
	for _, tt := range []struct {
		code int
		err  error
		want int
	}{
		{0, nil, 0},
		{7, nil, 7},
		{7, exitError{exitKernel, errors.New("x")}, 7},
		{0, exitError{exitKernel, errors.New("x")}, exitKernel},
		{0, fmt.Errorf("around: %w", exitError{exitSkip, errors.New("x")}), exitSkip},
		{0, errors.Join(nil, exitError{exitDeadline, errors.New("x")}), exitDeadline},
		{0, fmt.Errorf("%w by SIGINT", errInterrupted), exitInterrupted},
		{0, errors.New("anything else"), exitBroken},
	} {
		var b bytes.Buffer
		if got := report(&b, tt.code, tt.err); got != tt.want {
			t.Errorf("status of %d, %v is %d, want %d", tt.code, tt.err, got, tt.want)
		}
		if tt.err != nil && !strings.Contains(b.String(), tt.err.Error()) {
			t.Errorf("%v is not printed: %q", tt.err, b.String())
		}
	}
}

func TestTestFlags(t *testing.T) {
	r := newTestRun("/tmp/b/x.test", "/src/pkg", strings.Fields("-test.paniconexit0 -test.timeout=3m -test.testlogfile=/tmp/b/log -test.v=true -test.short "+
		"-test.outputdir=/src/pkg -test.coverprofile=c.out --test.cpuprofile /prof/cpu -test.gocoverdir=/cov -test.run=A|B own -flag"))
	wantArgs := strings.Fields("-test.v=test2json -test.paniconexit0 -test.timeout=3m -test.short -test.outputdir=/src/pkg -test.coverprofile=c.out -test.cpuprofile=/prof/cpu -test.gocoverdir=/cov -test.run=A|B own -flag")
	if !slices.Equal(r.args, wantArgs) {
		t.Errorf("arguments\n%q, want\n%q", r.args, wantArgs)
	}
	if !r.isTest || r.mode != verbose || !r.short || r.timeout != 3*time.Minute {
		t.Errorf("test %v, mode %d, short %v, timeout %v", r.isTest, r.mode, r.short, r.timeout)
	}
	if want := []string{"/cov", "/src/pkg/c.out", "/prof/cpu", "/src/pkg/_artifacts"}; !slices.Equal(r.collect, want) {
		t.Errorf("brings back %q, want %q", r.collect, want)
	}
	if r := newTestRun("/b/prog", "/src", []string{"-v", "x"}); r.isTest || !slices.Equal(r.args, []string{"-v", "x"}) {
		t.Errorf("a plain program's arguments became %q (test %v)", r.args, r.isTest)
	}
	if r := newTestRun("/b/x.test", "/src", []string{"-test.v=test2json"}); r.mode != marked {
		t.Errorf("go test -json gives mode %d", r.mode)
	}
}

func TestFilesComeBackOnlyWhereAskedFor(t *testing.T) {
	dir := t.TempDir()
	recv := receiver([]string{filepath.Join(dir, "out"), filepath.Join(dir, "single")})
	for path, ok := range map[string]bool{
		"out/a/b": true, "single": true, "other": false, "out/../other": false, "output": false, "single/../../x": false,
	} {
		w, err := recv(fileHeader{Path: filepath.Clean(dir) + "/" + path, Mode: 0o644})
		if (err == nil) != ok {
			t.Errorf("%s: %v, allowed must be %v", path, err, ok)
		}
		if err == nil {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "other")); err == nil {
		t.Error("a refused file was made")
	}
}

func TestEnvironmentForTheGuest(t *testing.T) {
	got := passedEnv([]string{"GOVERBS_DEBUG=ioctl", "GODEBUG=x=1", "GOMAXPROCS=1", "GOPROXY=secret", "GOVERBS_CACHE=/c", "HOME=/h", "PATH=/p", "CI=true", "LD_PRELOAD=x"})
	if want := []string{"GOVERBS_DEBUG=ioctl", "GODEBUG=x=1", "GOMAXPROCS=1", "CI=true"}; !slices.Equal(got, want) {
		t.Errorf("passes %q, want %q", got, want)
	}
}

func TestPackagesThatAptWouldFetch(t *testing.T) {
	got, err := parseURIs("Reading package lists...\n'http://m.example/pool/l/linux_6.deb' linux-image-6.12+deb13-amd64_6.12.1-1_amd64.deb 108547552 SHA256:57de\n" +
		"'http://m.example/b.deb' busybox_1%3a1.35.0-4+b1_amd64.deb 452120 SHA256:00\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []debFile{
		{"linux-image-6.12+deb13-amd64=6.12.1-1", "linux-image-6.12+deb13-amd64_6.12.1-1_amd64.deb", 108547552},
		{"busybox=1:1.35.0-4+b1", "busybox_1%3a1.35.0-4+b1_amd64.deb", 452120},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, bad := range []string{"'http://x' y", "'http://x' a_b_c.deb many", "'http://x' nounderscores.deb 1"} {
		if _, err := parseURIs(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestInterruptedBuildLeavesNothing(t *testing.T) {
	h := &host{cache: t.TempDir(), say: &bytes.Buffer{}}
	boom := errors.New("boom")
	err := h.build("thing", func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Errorf("error %v, want boom", err)
	}
	if left, err := os.ReadDir(h.cache); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	if err := h.build("thing", func(dir string) error { return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o644) }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.path("thing", "whole")); err != nil {
		t.Error(err)
	}
}

func TestOneAtATimeFillsTheCache(t *testing.T) {
	waits, said := io.Pipe() // whoever says something is heard before it goes on
	h := &host{cache: t.TempDir(), say: said}
	unlock, err := h.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan func())
	go func() {
		defer said.Close()
		u, err := h.lock(t.Context())
		if err != nil {
			t.Error(err)
			u = func() {}
		}
		second <- u
	}()
	heard := make([]byte, 1000)
	n, err := waits.Read(heard)
	if err != nil || !strings.Contains(string(heard[:n]), "waiting") {
		t.Errorf("the one who waits says %q, %v", heard[:n], err)
	}
	select {
	case <-second:
		t.Fatal("two hold the lock")
	case <-time.After(50 * time.Millisecond):
	}
	unlock()
	(<-second)()
}
