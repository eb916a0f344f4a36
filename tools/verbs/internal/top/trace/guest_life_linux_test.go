package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// childVariable makes the test binary a child of a test: it opens a tracer, says
// what came of it, and does what the variable names.
const childVariable = "GOVERBS_TRACE_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childVariable); what != "" {
		if err := child(what); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(what string) error {
	tr, err := Open(Options{Events: true, Syscalls: true})
	if errors.Is(err, fs.ErrPermission) {
		fmt.Println("not permitted:", err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, l := range tr.Levels() {
		fmt.Println("level", l.Name, l.Live, l.Why)
	}
	switch what {
	case "hold": // until it is killed
		fmt.Println("holds")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case "look":
		// In a pid namespace of its own, and so without the CQs of others.
		dev, err := uverbs.Open(os.Getenv("GOVERBS_TRACE_DEVICE"), nil)
		if err != nil {
			return err
		}
		defer dev.Close()
		q, err := dev.NewCQ(5, nil)
		if err != nil {
			return err
		}
		all, err := tr.Snapshot(func() error { _, err := listCQs(); return err })
		if err != nil {
			return err
		}
		fmt.Println("pid", os.Getpid(), "process", tr.process)
		for _, c := range all {
			if c.User != nil && c.Ring != nil && c.Entries == uint32(q.Depth()) {
				fmt.Println("own CQ seen")
			}
		}
	}
	return tr.Close()
}

// childCommand is a child, which may be another user in other namespaces.
func childCommand(t *testing.T, what string, attr *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"="+what)
	cmd.Dir = "/"
	cmd.SysProcAttr = attr
	return cmd
}

// runChild runs one to its end and returns what it said.
func runChild(t *testing.T, what string, attr *syscall.SysProcAttr, env ...string) string {
	t.Helper()
	cmd := childCommand(t, what, attr)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

const nobody = 65534

func asNobody(caps ...uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: caps}
}

// probesMustBePossible skips where the kernel has no RDMA to probe.
func probesMustBePossible(t *testing.T) string {
	t.Helper()
	all, err := uverbs.Devices()
	if errors.Is(err, uverbs.ErrNoDevices) {
		t.Skip("declared skip: no RDMA device here; run in the guest: rxevm exec")
	}
	if err != nil {
		t.Fatal(err)
	}
	return all[0].Name
}

// setSysctl sets a number under /proc/sys until the test ends.
func setSysctl(t *testing.T, path, value string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, old, 0); err != nil {
			t.Error(err)
		}
	})
}

// A process without privilege learns what it lacks; one that has just enough
// gets the probes by kprobes alone.
func TestGuestTracePrivileges(t *testing.T) {
	probesMustBePossible(t)
	const paranoid = "/proc/sys/kernel/perf_event_paranoid"
	setSysctl(t, paranoid, "2")
	for _, tt := range []struct {
		name string
		caps []uintptr
		want []string
	}{
		{"no capability", nil, []string{"not permitted:", "need CAP_BPF and CAP_PERFMON", "setcap"}},
		{"CAP_BPF", []uintptr{unix.CAP_BPF}, []string{"not permitted:", "need CAP_PERFMON, which"}},
		{"both", []uintptr{unix.CAP_BPF, unix.CAP_PERFMON}, []string{"level pull true kprobe", "level events true kprobe and kretprobe", "level syscalls true kprobe and kretprobe", "level ring true"}},
		{"CAP_SYS_ADMIN", []uintptr{unix.CAP_SYS_ADMIN}, []string{"level pull true kprobe", "level events true fentry and fexit"}},
	} {
		out := runChild(t, "open", asNobody(tt.caps...))
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in:\n%s", tt.name, want, out)
			}
		}
	}
	if err := os.WriteFile(paranoid, []byte("3"), 0); err != nil {
		t.Fatal(err)
	}
	if out := runChild(t, "open", asNobody(unix.CAP_BPF, unix.CAP_PERFMON)); !strings.Contains(out, "kernel.perf_event_paranoid=2") {
		t.Errorf("at perf_event_paranoid 3:\n%s", out)
	}
}

// Without fentry the levels with exits work by kretprobes, and count the same.
func TestGuestTraceKretprobes(t *testing.T) {
	b := newBench(t, 64, 64, &uverbs.CQOptions{Events: true})
	tr := openAs(t, Options{Events: true, Syscalls: true, EveryCQE: true}, privileges{caps: 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON, paranoid: -1})
	for _, l := range tr.Levels() {
		if !l.Live || strings.Contains(l.Why, "fentry") {
			t.Errorf("%+v", l)
		}
	}
	checkEvents(t, tr, b, 10)
	checkCalls(t, tr, b)
	until(t, tr, b.id, "the posts", func(q CQ) bool { return q.Posts.CQEs == 10+9 && q.Posts.HighWater == 9 })
}

// In a pid namespace the probes know the process by another number than its own.
func TestGuestTracePIDNamespace(t *testing.T) {
	name := probesMustBePossible(t)
	out := runChild(t, "look", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "GOVERBS_TRACE_DEVICE="+name)
	for _, want := range []string{"pid 1 ", "own CQ seen", "process numbers are those of the first pid namespace"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

// objects are the BPF programs and maps of this package in the kernel.
func objects(t *testing.T) (names []string) {
	t.Helper()
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if info, err := p.Info(); err == nil && strings.HasPrefix(info.Name, "verbs_") {
			names = append(names, info.Name)
		}
		p.Close()
	}
	for id := ebpf.MapID(0); ; {
		next, err := ebpf.MapGetNextID(id)
		if errors.Is(err, fs.ErrNotExist) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		id = next
		m, err := ebpf.NewMapFromID(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if info, err := m.Info(); err == nil && strings.HasPrefix(info.Name, "verbs_") {
			names = append(names, info.Name)
		}
		m.Close()
	}
}

// gone waits until the kernel has freed all of them, which it does a grace
// period after nobody holds them.
func gone(t *testing.T) {
	t.Helper()
	var left []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if left = objects(t); len(left) == 0 {
			return
		}
	}
	t.Errorf("left in the kernel: %v", left)
}

// Close takes everything out of the kernel, and so does the death of a process.
func TestGuestTraceLeavesNothing(t *testing.T) {
	probesMustBePossible(t)
	tr := open(t, Options{Events: true, Syscalls: true, EveryCQE: true})
	if n := len(objects(t)); n < 10 {
		t.Errorf("only %d programs and maps while the probes are attached", n)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t)
	if err := tr.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
	if _, err := tr.Snapshot(func() error { return nil }); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a snapshot after Close: %v", err)
	}
	if _, err := tr.Syscalls(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("calls after Close: %v", err)
	}

	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		cmd := childCommand(t, "hold", nil)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		holds := false
		for s := bufio.NewScanner(stdout); !holds && s.Scan(); {
			holds = s.Text() == "holds"
		}
		if !holds || len(objects(t)) == 0 {
			t.Errorf("the child holds: %v, %v", holds, objects(t))
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		stdin.Close()
		if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != sig {
			t.Errorf("after %v: %v", sig, err)
		}
		gone(t)
	}
}

// A level that fails half-way takes back what it had attached, and says which
// function was missing.
func TestGuestTraceHalfway(t *testing.T) {
	probesMustBePossible(t)
	gone(t) // what tests before have closed
	tr := open(t, Options{})
	before := len(objects(t))
	p, err := readPrivileges(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	a := attacher{t: tr, cache: types, resolver: liveResolver(types), privileges: p}
	g := errorsGroup(&tr.offsets)
	probes := g.probes
	g.probes = func(h hook) []probe {
		missing := probes(h)[0]
		missing.name, missing.function = "verbs_missing", "ib_uverbs_no_such_function"
		return append(probes(h), missing)
	}
	for h, want := range map[hook]string{kprobe: "this kernel has no function ib_uverbs_no_such_function", fentry: "ib_uverbs_no_such_function"} {
		g.hooks = []hook{h}
		if how, err := a.attach(g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %q, %v", h, how, err)
		}
	}
	for end := time.Now().Add(patience); len(objects(t)) != before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d objects, %d before: %v", len(objects(t)), before, objects(t))
		}
	}
	if len(snapshotOf(t, tr)) == 0 {
		t.Error("the probe that was attached before sees nothing")
	}
}

// Probes come and go while programs run through them.
func TestGuestTraceCycles(t *testing.T) {
	b := newBench(t, 8, 8, &uverbs.CQOptions{Events: true})
	var stop atomic.Bool
	ended := make(chan error, 1)
	go func() {
		for !stop.Load() {
			if err := b.round(); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	defer func() {
		stop.Store(true)
		if err := <-ended; err != nil {
			t.Errorf("the program that was traced: %v", err)
		}
	}()
	for i := range roundsOr(t, 2) {
		tr := open(t, Options{Events: true, Syscalls: true, EveryCQE: true})
		until(t, tr, b.id, "events go on", func(q CQ) bool { return q.Events.Count > 2 && q.Events.Wake.N > 2 && q.Posts.CQEs > 2 })
		if c := callsOf(t, tr)["write IB_USER_VERBS_CMD_POST_SEND"]; c.Count == 0 {
			t.Errorf("round %d: no calls", i)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	gone(t)
}

// With ftrace off, probes are attached and never fire. That is said, and taken
// back when it is on again.
func TestGuestTraceInert(t *testing.T) {
	probesMustBePossible(t)
	const enabled = "/proc/sys/kernel/ftrace_enabled"
	setSysctl(t, enabled, "0")
	tr := open(t, Options{})
	if all := snapshotOf(t, tr); len(all) != 0 {
		t.Errorf("%d CQs seen with ftrace off", len(all))
	}
	for _, l := range tr.Levels()[:3] {
		if l.Live || !strings.Contains(l.Why, "never fire") || !strings.Contains(l.Why, "echo 1 > "+enabled) {
			t.Errorf("with ftrace off: %+v", l)
		}
	}
	setSysctl(t, enabled, "1")
	all := snapshotOf(t, tr)
	if l := tr.Levels()[0]; l.Live != (len(all) > 0) {
		t.Errorf("with ftrace on again, %d CQs and %+v", len(all), l)
	}
	t.Logf("with ftrace on again, %d CQs", len(all))
}

// roundsOr is how many rounds to make: few, unless somebody asks for more.
func roundsOr(t *testing.T, usual int) int {
	t.Helper()
	s := os.Getenv("GOVERBS_ROUNDS")
	if s == "" {
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("GOVERBS_ROUNDS: %v", err)
	}
	return n
}
