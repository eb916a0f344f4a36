//go:build linux && (amd64 || arm64)

package simproc_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs/uverbstest/simproc"
)

// forms runs a test in both forms.
func forms(t *testing.T, f func(t *testing.T, noMount bool)) {
	t.Run("mounts", func(t *testing.T) { f(t, false) })
	t.Run("no mounts", func(t *testing.T) { f(t, true) })
}

// serve makes a model and a server, which ends with the test. Where the machine does not let a
// program start so, the test is skipped.
func serve(t *testing.T, noMount bool, devices ...model.DeviceConfig) (*model.Model, *simproc.Server) {
	t.Helper()
	if len(devices) == 0 {
		devices = []model.DeviceConfig{{Name: "mlx5_0"}}
	}
	m, err := model.New(devices...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := simproc.Serve(m, &simproc.Options{NoMount: noMount})
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("declared skip: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for _, d := range m.Devices() {
			if o := d.Objects(); len(o) > 0 {
				t.Errorf("%s: still there: %v", d.Name(), o)
			}
		}
		if v := m.Violations(); len(v) > 0 {
			t.Errorf("violations: %v", v)
		}
	})
	if err := s.Command("true").Run(); err != nil && strings.Contains(err.Error(), "may not make namespaces") {
		t.Skip("declared skip: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return m, s
}

// program is one of the programs of this executable.
func program(s *simproc.Server, name string, args ...string) *simproc.Cmd {
	c := s.Command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), programVar+"="+name)
	return c
}

// output runs a program that is to succeed.
func output(t *testing.T, c *simproc.Cmd) string {
	t.Helper()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		t.Fatalf("%v:\n%s", err, out.Bytes())
	}
	return out.String()
}

func TestDiscovery(t *testing.T) {
	forms(t, func(t *testing.T, noMount bool) {
		m, s := serve(t, noMount,
			model.DeviceConfig{Name: "mlx5_0", Ports: make([]model.PortConfig, 2)},
			model.DeviceConfig{Name: "old", StaticUARs: true, Ports: []model.PortConfig{{InfiniBand: true}}},
			model.DeviceConfig{Name: "down", Ports: []model.PortConfig{{Down: true}}})
		fw := m.Device("old").Firmware()
		want := []string{
			"uverbs2 down mlx5 firmware " + fw + ": Ethernet PORT_DOWN",
			"uverbs0 mlx5_0 mlx5 firmware " + fw + ": Ethernet PORT_ACTIVE Ethernet PORT_ACTIVE",
			"uverbs1 old mlx5 firmware " + fw + ": InfiniBand PORT_ACTIVE",
		}
		if got := strings.TrimSpace(output(t, program(s, "list"))); got != strings.Join(want, "\n") {
			t.Errorf("the program says\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
		if st := s.Stats(); st.Open != 0 || st.Opens < 3 || st.Calls == 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestHidden(t *testing.T) {
	forms(t, func(t *testing.T, noMount bool) {
		_, s := serve(t, noMount)
		output(t, program(s, "hidden"))
	})
}

// Messages of a program with events, over all kinds of registers and links.
func TestLoopback(t *testing.T) {
	forms(t, func(t *testing.T, noMount bool) {
		m, s := serve(t, noMount,
			model.DeviceConfig{Name: "roce"},
			model.DeviceConfig{Name: "ib", Ports: []model.PortConfig{{InfiniBand: true}}},
			model.DeviceConfig{Name: "static", StaticUARs: true},
			model.DeviceConfig{Name: "plain", NoBlueFlame: true, NoClockPage: true},
			model.DeviceConfig{Name: "plainstatic", StaticUARs: true, NoBlueFlame: true})
		for _, d := range m.Devices() {
			if got := output(t, program(s, "loopback", d.Name())); got != "20 rounds\n" {
				t.Errorf("%s: %q", d.Name(), got)
			}
		}
		if st := s.Stats(); st.Doorbells == 0 || st.Events == 0 || st.Looks < st.Doorbells {
			t.Errorf("%+v", st)
		}
	})
}

// Doorbells are seen before the requests that come after them. That none is taken for one of
// a queue that is gone, serve asks at the end.
func TestDoorbellBeforeDestroy(t *testing.T) {
	_, s := serve(t, true)
	output(t, program(s, "armed"))
}

// Signals to the server, as its runtime sends them to its own threads, take back no answer
// that is under way.
func TestServerInterrupted(t *testing.T) {
	_, s := serve(t, true)
	var over atomic.Bool
	var storm sync.WaitGroup
	defer storm.Wait()
	defer over.Store(true)
	storm.Go(func() {
		for !over.Load() {
			threads, err := os.ReadDir("/proc/self/task")
			if err != nil {
				t.Error(err)
				return
			}
			for _, thread := range threads {
				if tid, err := strconv.Atoi(thread.Name()); err == nil {
					_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG) // it may have ended
				}
			}
			time.Sleep(20 * time.Microsecond)
		}
	})
	output(t, program(s, "reopen"))
}

// Programs at the same time do not disturb one another, and each has the device for itself.
func TestSeveralPrograms(t *testing.T) {
	forms(t, func(t *testing.T, noMount bool) {
		_, s := serve(t, noMount)
		var cmds [3]*simproc.Cmd
		var outs [len(cmds)]bytes.Buffer
		for i := range cmds {
			cmds[i] = program(s, "loopback", "mlx5_0")
			cmds[i].Stdout, cmds[i].Stderr = &outs[i], &outs[i]
			if err := cmds[i].Start(); err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range cmds {
			if err := c.Wait(); err != nil || outs[i].String() != "20 rounds\n" {
				t.Errorf("%v: %s", err, outs[i].Bytes())
			}
		}
	})
}

func TestStatus(t *testing.T) {
	forms(t, func(t *testing.T, noMount bool) {
		_, s := serve(t, noMount)
		for script, want := range map[string]simproc.ExitError{
			"exit 7":        {Code: 7},
			"kill -TERM $$": {Code: -1, Signal: syscall.SIGTERM},
		} {
			var exit *simproc.ExitError
			if err := s.Command("sh", "-c", script).Run(); !errors.As(err, &exit) || *exit != want {
				t.Errorf("%s: %v", script, err)
			}
		}
		c := s.Command("sh", "-c", `read a; echo "$a $B $PWD $0"`, "zero")
		c.Stdin, c.Env, c.Dir = strings.NewReader("in\n"), []string{"B=env"}, "/"
		if got := output(t, c); got != "in env / zero\n" {
			t.Errorf("%q", got)
		}
		if err := s.Command("no-such-program").Run(); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("no such program: %v", err)
		}
		if err := c.Start(); err == nil {
			t.Error("a program started twice")
		}
		if err := c.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("a signal to one that ended: %v", err)
		}
		c.Kill()
		script := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(script, []byte("true\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := s.Command(script).Run(); err == nil || !strings.Contains(err.Error(), "exec format error") {
			t.Errorf("a script without a shell: %v", err)
		}
	})
}

// A program that is killed leaves nothing, neither on the device nor otherwise.
func TestKilledProgram(t *testing.T) {
	forms(t, func(t *testing.T, noMount bool) {
		t.Setenv("TMPDIR", t.TempDir())
		m, s := serve(t, noMount)
		for how, end := range map[string]func(*simproc.Cmd, int){
			"kill -9":            func(_ *simproc.Cmd, pid int) { _ = unix.Kill(pid, unix.SIGKILL) },
			"Signal":             func(c *simproc.Cmd, _ int) { _ = c.Signal(unix.SIGKILL) },
			"Kill":               func(c *simproc.Cmd, _ int) { c.Kill() },
			"kill of the keeper": nil,
		} {
			c := program(s, "hold")
			in, inw, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			out, outw, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			c.Stdin, c.Stdout, c.Stderr = in, outw, os.Stderr
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			in.Close()
			outw.Close()
			pid, keeper := pids(t, bufio.NewReader(out))
			if o := m.Device("mlx5_0").Objects(); o["PD"] == 0 {
				t.Errorf("%s: on the device are %v", how, o)
			}
			if end != nil {
				end(c, pid)
			} else {
				_ = unix.Kill(keeper, unix.SIGKILL)
			}
			var exit *simproc.ExitError
			switch err := c.Wait(); {
			case end == nil && (err == nil || !strings.Contains(err.Error(), "keeper")):
				t.Errorf("%s: %v", how, err)
			case end != nil && (!errors.As(err, &exit) || exit.Signal != unix.SIGKILL):
				t.Errorf("%s: %v", how, err)
			}
			gone(t, pid)
			gone(t, keeper)
			until(t, how+": the device is closed", func() bool { return len(m.Device("mlx5_0").Objects()) == 0 && s.Stats().Open == 0 })
			noFiles(t, os.Getenv("TMPDIR"))
			inw.Close()
			out.Close()
		}
	})
}

// What a program started ends with it, also in a session of its own.
func TestChildren(t *testing.T) {
	forms(t, func(t *testing.T, noMount bool) {
		_, s := serve(t, noMount)
		out := output(t, s.Command("sh", "-c", "sleep 1000 >&- 2>&- & echo $!; setsid sh -c 'sleep 1000 >&- 2>&- & echo $!' "))
		n := 0
		for _, f := range strings.Fields(out) {
			var pid int
			if _, err := fmt.Sscan(f, &pid); err != nil {
				t.Fatal(err)
			}
			gone(t, pid)
			n++
		}
		if n != 2 {
			t.Errorf("the program says %q", out)
		}
	})
}

// When the server's process is killed, its programs and their folders go.
func TestKilledServer(t *testing.T) {
	forms(t, func(t *testing.T, noMount bool) {
		serve(t, noMount) // skips if need be
		t.Setenv("TMPDIR", t.TempDir())
		c := exec.Command("/proc/self/exe")
		if noMount {
			c.Args = append(c.Args, "nomount")
		}
		c.Env = append(os.Environ(), programVar+"=supervise")
		c.Stderr = os.Stderr
		// Not StdinPipe, which Wait closes.
		in, inw, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		defer inw.Close()
		c.Stdin = in
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		pid, keeper := pids(t, bufio.NewReader(out))
		if err := c.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := c.Wait(); err == nil {
			t.Error("the server was not killed")
		}
		gone(t, pid)
		gone(t, keeper)
		noFiles(t, os.Getenv("TMPDIR"))
	})
}

// The device of a parent is not its child's.
func TestForeignProcess(t *testing.T) {
	forms(t, func(t *testing.T, noMount bool) {
		_, s := serve(t, noMount)
		c := program(s, "foreign")
		var out bytes.Buffer
		c.Stderr = &out
		if err := c.Run(); err != nil || out.String() != syscall.EIO.Error()+"\n" {
			t.Errorf("%v, and the child says %q", err, out.String())
		}
	})
}

func TestListening(t *testing.T) {
	_, s := serve(t, true)
	c := s.Command("sleep", "1000")
	if c.Listening() {
		t.Error("it has not begun")
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if c.Listening() {
		t.Error("sleep listens")
	}
	c.Kill()
	if err := c.Wait(); err == nil || c.Listening() {
		t.Error("it was not killed")
	}
}

func TestClosedServer(t *testing.T) {
	m, err := model.New(model.DeviceConfig{Name: "mlx5_0"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := simproc.Serve(m, nil)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("declared skip: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err == nil {
		t.Error("closed twice")
	}
	if err := s.Command("true").Run(); err == nil {
		t.Error("a closed server starts programs")
	}
	if err := new(simproc.Cmd).Start(); err == nil {
		t.Error("a Cmd of no server starts")
	}
	if err := s.Command("true").Wait(); err == nil {
		t.Error("waited for a program that was not started")
	}
}

// gone waits until a process is none any more.
func gone(t *testing.T, pid int) {
	t.Helper()
	until(t, fmt.Sprintf("process %d is gone", pid), func() bool {
		st, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		// Dead, it may wait for whoever is process 1 here.
		return err != nil || bytes.Contains(st, []byte(") Z "))
	})
}

// noFiles waits until a folder is empty.
func noFiles(t *testing.T, dir string) {
	t.Helper()
	until(t, dir+" is empty", func() bool {
		e, err := os.ReadDir(dir)
		return err == nil && len(e) == 0
	})
}

// until waits for what is sure to come.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}
