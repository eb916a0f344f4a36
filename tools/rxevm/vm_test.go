//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newTestVM joins the host's and the guest's half of the protocol in one process, without an
// emulator. Jobs run on this machine.
func newTestVM(t *testing.T) *vm {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "host"), os.NewFile(uintptr(pair[1]), "guest")
	v := &vm{host: &host{say: io.Discard}, config: guestConfig{kernel: "6.1"}, console: &console{}, jobs: map[uint32]*hostJob{},
		hello: make(chan hello, 1), lost: make(chan struct{}), emu: &emulator{port: ours, done: make(chan struct{})}, out: &frameWriter{w: ours}}
	served := make(chan error, 1)
	go func() {
		s := newJobServer(theirs)
		s.clock.Do(func() {}) // This machine's clock is not ours to set.
		err := s.serve()
		if err == nil {
			err = s.out.writeJSON(frameBye, 0, byeReport{})
		}
		theirs.Close()
		close(v.emu.done)
		served <- err
	}()
	go v.read()
	t.Cleanup(func() {
		if err := v.close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("guest: %v", err)
		}
	})
	return v
}

// sh is a job of this machine's shell.
func sh(script string) job { return job{Args: []string{"/bin/sh", "-c", script}, Env: os.Environ()} }

func TestExitStatusAndOutputComeBack(t *testing.T) {
	v := newTestVM(t)
	var out, errs bytes.Buffer
	code, err := v.run(t.Context(), sh(`printf 'a\000\377x\001\000\000\000'; echo b >&2; exit 7`), jobIO{stdout: &out, stderr: &errs})
	if code != 7 || err != nil {
		t.Errorf("status %d, %v; want 7", code, err)
	}
	if out.String() != "a\x00\xffx\x01\x00\x00\x00" || errs.String() != "b\n" {
		t.Errorf("stdout %q, stderr %q", out.String(), errs.String())
	}
	if code, err := v.run(t.Context(), sh("kill -SEGV $$"), jobIO{}); code != 128+11 || err != nil {
		t.Errorf("a program that a signal ends: %d, %v; want 139", code, err)
	}
}

func TestInputReachesTheProgram(t *testing.T) {
	v := newTestVM(t)
	var out bytes.Buffer
	in := strings.Repeat("some text\n", 50000)
	code, err := v.run(t.Context(), sh("cat"), jobIO{stdin: strings.NewReader(in), stdout: &out})
	if code != 0 || err != nil || out.String() != in {
		t.Errorf("status %d, %v; %d bytes came back of %d", code, err, out.Len(), len(in))
	}
	if code, err := v.run(t.Context(), sh("cat"), jobIO{}); code != 0 || err != nil {
		t.Errorf("a program without input must read its end: %d, %v", code, err)
	}
}

func TestJobsRunSideBySideAndCanBeKilled(t *testing.T) {
	v := newTestVM(t)
	long, err := v.start(sh("sleep 1000 & sleep 1000"), jobIO{})
	if err != nil {
		t.Fatal(err)
	}
	if code, err := v.run(t.Context(), sh("exit 0"), jobIO{}); code != 0 || err != nil {
		t.Errorf("beside a running job: %d, %v", code, err)
	}
	long.kill()
	if code, err := long.wait(t.Context()); code != 137 || err != nil {
		t.Errorf("killed job: %d, %v; want 137, and not after 1000 seconds", code, err)
	}
}

func TestFilesComeBack(t *testing.T) {
	v := newTestVM(t)
	dir := t.TempDir()
	got := map[string]string{}
	j := sh("echo one > one; mkdir sub; head -c 3000000 /dev/zero > sub/big; ln -s one link")
	j.Dir = filepath.Join(dir, "made")
	j.Mkdirs = []string{j.Dir}
	j.Collect = []string{j.Dir, filepath.Join(dir, "missing")}
	code, err := v.run(t.Context(), j, jobIO{file: func(fh fileHeader) (io.WriteCloser, error) {
		return &closeFunc{f: func(s string) { got[strings.TrimPrefix(fh.Path, dir)] = s }}, nil
	}})
	if code != 0 || err != nil {
		t.Fatalf("%d, %v", code, err)
	}
	if len(got) != 2 || got["/made/one"] != "one\n" || len(got["/made/sub/big"]) != 3000000 {
		t.Errorf("%d files came back: one is %q, big has %d bytes", len(got), got["/made/one"], len(got["/made/sub/big"]))
	}
	if text, err := v.readFile(t.Context(), filepath.Join(j.Dir, "one")); text != "one\n" || err != nil {
		t.Errorf("readFile: %q, %v", text, err)
	}
	if _, err := v.readFile(t.Context(), filepath.Join(dir, "missing")); err == nil {
		t.Error("reading a missing file is no error")
	}
}

// A closeFunc collects what is written and hands it over when closed.
type closeFunc struct {
	strings.Builder
	f func(string)
}

// Close implements io.Closer.
func (c *closeFunc) Close() error { c.f(c.String()); return nil }

func TestGuestThatBreaksTheProtocolDoesNotHang(t *testing.T) {
	t.Parallel()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "host"), os.NewFile(uintptr(pair[1]), "guest")
	defer ours.Close()
	defer theirs.Close()
	// The emulator goes on: done stays open.
	v := &vm{host: &host{say: io.Discard}, console: &console{}, jobs: map[uint32]*hostJob{}, lost: make(chan struct{}),
		emu: &emulator{port: ours, done: make(chan struct{})}, out: &frameWriter{w: ours}}
	go v.read()
	s, err := v.start(sh("exit 0"), jobIO{})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&frameWriter{w: theirs}).write(frameStdout, 99, []byte("x")); err != nil {
		t.Fatal(err)
	}
	_, err = s.wait(t.Context())
	if e := (exitError{}); !errors.As(err, &e) || e.code != exitBroken || !strings.Contains(err.Error(), "job 99") {
		t.Errorf("%v, want status %d and what the guest did", err, exitBroken)
	}
}

func TestDamagedKernelInTheCacheSaysWhatToRemove(t *testing.T) {
	h := &host{cache: t.TempDir(), say: io.Discard}
	k := kernelDir{dir: h.path("kernel", "6.1-amd64"), release: "6.1"}
	_, err := h.guestImage(t.Context(), guestConfig{kernel: "6.1", arch: "amd64"}, k)
	if err == nil || !strings.Contains(err.Error(), "remove "+k.dir) {
		t.Errorf("%v, want advice to remove %s", err, k.dir)
	}
}

func TestProgramsThatCannotRunSayWhy(t *testing.T) {
	v := newTestVM(t)
	script := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ program, says string }{
		{"/no/such/program", "-file"}, {"no-such-program-anywhere", "-with rdma-core"}, {script, "CGO_ENABLED=0"},
	} {
		code, err := v.run(t.Context(), job{Args: []string{tt.program}}, jobIO{})
		if code != 127 || err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %d, %v; want 127 and advice with %q", tt.program, code, err, tt.says)
		}
	}
}

func TestGuestThatDoesNotKeepTheProtocol(t *testing.T) {
	for name, f := range map[string]frame{
		"output of no job":  {frameStdout, 9, []byte("x")},
		"unknown type":      {'?', 1, nil},
		"data without file": {frameData, 1, []byte("x")},
		"unwanted file":     {frameFile, 1, []byte(`{"path":"/etc/passwd"}`)},
		"broken exit":       {frameExit, 1, []byte("{")},
	} {
		v := &vm{jobs: map[uint32]*hostJob{1: {exit: make(chan exitReport, 1)}}, hello: make(chan hello, 1)}
		if err := v.frame(f); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestGoodbyeReports(t *testing.T) {
	v := &vm{console: &console{}, config: guestConfig{kernel: "6.1"}}
	if err := (&byeReport{Tainted: 1 << 12}).err(v); err != nil {
		t.Errorf("an out-of-tree module is no fault: %v", err)
	}
	for _, b := range []byeReport{{Tainted: 1 << 9}, {Tainted: 1 << 7}, {Leaks: []string{"qp 2, was 1"}}} {
		err := b.err(v)
		var e exitError
		if !errors.As(err, &e) || e.code != exitKernel {
			t.Errorf("%+v: %v, want exit status %d", b, err, exitKernel)
		}
	}
	if d := resourceDiff(map[string]uint64{"qp": 1, "cq": 1, "pd": 1}, map[string]uint64{"qp": 2, "cq": 1, "pd": 0, "mr": 3}); d != "mr 3, was 0; qp 2, was 1" {
		t.Errorf("difference %q", d)
	}
}

func TestDeadlineHasItsOwnStatus(t *testing.T) {
	v := newTestVM(t)
	ctx, cancel := withDeadline(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := v.run(ctx, sh("sleep 1000"), jobIO{})
	var e exitError
	if !errors.As(err, &e) || e.code != exitDeadline {
		t.Errorf("%v, want exit status %d", err, exitDeadline)
	}
}

// fakeQEMU is an emulator made of a shell script.
func fakeQEMU(t *testing.T, script string) hostTool {
	t.Helper()
	name := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return hostTool{args: []string{name}}
}

func TestKVMNeedsAConsoleLine(t *testing.T) {
	// What comes is waited for, what does not come is not.
	const long, brief = 5 * time.Minute, 200 * time.Millisecond
	for name, tt := range map[string]struct {
		script   string
		patience time.Duration
		want     bool
	}{
		"boots":         {"echo '[    0.000000] Linux version'; sleep 1000", long, true},
		"refuses":       {"echo 'Could not access KVM kernel module' >&2; exit 1", long, false},
		"hangs silent":  {"sleep 1000", brief, false},
		"half a line":   {"printf 'SeaBIOS'; sleep 1000", brief, false},
		"prints, exits": {"echo '[    0.000000] Linux version'", long, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := probeKVM(t.Context(), fakeQEMU(t, tt.script), kernelDir{}, "amd64", tt.patience); got != tt.want {
				t.Errorf("KVM works: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestEmulatorIsEndedWithItsChildren(t *testing.T) {
	var out bytes.Buffer
	e, err := startQEMU(fakeQEMU(t, "sleep 1000 & echo $!; wait"), machine{arch: "amd64", cpus: 1, memMiB: 256}, "/vmlinuz", image{}, &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	group := e.cmd.Process.Pid
	time.Sleep(100 * time.Millisecond)
	e.kill()
	e.kill() // A second time does nothing.
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if errors.Is(unix.Kill(-group, 0), unix.ESRCH) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process group %d is still there", group)
		}
	}
}

func TestSuiteSummary(t *testing.T) {
	var b bytes.Buffer
	s := &suite{out: &b}
	s.step("here", "good", func() (string, error) { return "fine", nil })
	s.notRun("there", "race", "no compiler")
	if code := s.summary(); code != 0 || !strings.HasSuffix(b.String(), "\n1 passed, 0 failed\n") {
		t.Errorf("status %d after\n%s", code, b.String())
	}
	s.step("here", "bad", func() (string, error) { return "", errors.New("first line\nsecond line") })
	if code := s.summary(); code != 1 || !strings.HasSuffix(b.String(), "\n1 passed, 1 failed\n") {
		t.Errorf("status %d after\n%s", code, b.String())
	}
	if !strings.Contains(b.String(), "second line") || !strings.Contains(b.String(), "no compiler") {
		t.Errorf("the report lacks the error's text or the reason for what did not run:\n%s", b.String())
	}
	if code := (&suite{out: io.Discard}).summary(); code == 0 {
		t.Error("a suite that ran nothing passes")
	}
}

func TestGamesAskForPackets(t *testing.T) {
	for _, tt := range []struct {
		size, iters int
		want        uint64
	}{{1, 100, 200}, {1024, 10, 20}, {1025, 10, 40}, {65536, 20, 2560}, {0, 5, 10}} {
		if got := (game{size: tt.size, iters: tt.iters}).packets(); got != tt.want {
			t.Errorf("%d bytes, %d iterations: %d packets, want %d", tt.size, tt.iters, got, tt.want)
		}
	}
	for _, kernel := range []string{"6.1", "6.12"} {
		seen := map[string]bool{}
		for _, g := range interop(kernel) {
			seen[g.String()] = true
		}
		if len(seen) != 12 {
			t.Errorf("%s plays %d different games, want 2 roles x 2 modes x 3 sizes", kernel, len(seen))
		}
	}
}

func TestBootConfigSurvivesItsFile(t *testing.T) {
	b, err := json.Marshal(bootConfig{PortModules: []string{"a"}, Modules: []string{"b", "c"}})
	if err != nil {
		t.Fatal(err)
	}
	var c bootConfig
	if err := json.Unmarshal(b, &c); err != nil || len(c.PortModules) != 1 || len(c.Modules) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}
