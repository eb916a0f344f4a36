package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/tools/internal/tied"
	"github.com/goverbs/goverbs/uverbs"
)

func me() user { return users()[0] }

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"--", "true"}, 0, ""},
		{[]string{"--", "sh", "-c", "echo to stdout; exit 7"}, 7, "to stdout"},
		{[]string{"--", "sh", "-c", "kill -TERM $$"}, 128 + 15, ""},
		{[]string{"--", "no-such-program"}, 127, "not found"},
		{[]string{"-nomount", "--", "sh", "-c", "exit 5"}, 5, ""},
		{[]string{"--", "true", "--and", "sh", "-c", "exit 6", "--and", "true"}, 6, ""},
		{[]string{"-wait", "10ms", "--", "sleep", "1000", "--and", "false"}, 1, "false failed, so the others are ended"},
		{[]string{"-stat", "--", "true"}, 0, "0 opens"},
		{[]string{"--", program(t, "mlx5sim"), "run", "--", "true"}, exitSystem, "there can be only one"},
	} {
		out, code := simulated(t, me(), c.args...)
		if code != c.code || !strings.Contains(out, c.out) {
			t.Errorf("%q: status %d, want %d, and %q", c.args, code, c.code, out)
		}
	}
}

// A program rings a doorbell of nobody's, which no device minds.
func TestViolations(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(rogueVar, "1")
	const sentence = "a doorbell for QP 0x1234, which the context has not"
	if out, code := simulated(t, me(), "--", self); code != exitViolations || !strings.Contains(out, sentence) {
		t.Errorf("status %d: %s", code, out)
	}
	if out, code := simulated(t, me(), "-allow-violations", "--", self); code != 0 || !strings.Contains(out, sentence) {
		t.Errorf("allowed, status %d: %s", code, out)
	}
}

// rogueVar makes this executable the program that breaks a rule.
const rogueVar = "GOVERBS_MLX5SIM_ROGUE"

// rogue writes to a register of its device, and waits until it was seen.
func rogue() error {
	d, err := uverbs.Open("mlx5_0", nil)
	if err != nil {
		return err
	}
	defer d.Close()
	pd, err := d.NewPD()
	if err != nil {
		return err
	}
	cq, err := d.NewCQ(64, nil)
	if err != nil {
		return err
	}
	if _, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: cq}); err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	page := regexp.MustCompile(`(?m)^([0-9a-f]+)-.*w.*memfd:goverbs-simproc`).FindSubmatch(maps)
	if page == nil {
		return fmt.Errorf("no register is mapped:\n%s", maps)
	}
	addr, err := strconv.ParseInt(string(page[1]), 16, 64)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	const register, doorbell = 0x800, 0x1234_03 // of QP 0x1234, three pieces
	if _, err := mem.WriteAt(binary.BigEndian.AppendUint64(nil, doorbell), addr+register); err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var b [8]byte
		if _, err := mem.ReadAt(b[:], addr+register); err != nil || b == [8]byte{} {
			return err
		}
		if time.Now().After(end) {
			return errors.New("nobody looks at the register")
		}
	}
}

// started starts mlx5sim and waits until its program says that it is ready.
func started(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	if out, code := simulated(t, me(), "--", "true"); code != 0 { // skips if need be
		t.Fatalf("status %d: %s", code, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	c := simulate(ctx, t, me(), args...)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tied.Start(c); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	line(t, r, "ready")
	return c, r
}

func line(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	if got, err := r.ReadString('\n'); err != nil || got != want+"\n" {
		t.Fatalf("the program says %q (%v), want %q", got, err, want)
	}
}

// A signal is the programs', and a second one ends them.
func TestSignals(t *testing.T) {
	loop := "echo ready; while :; do sleep 0.02; done"
	c, _ := started(t, "--", "sh", "-c", `trap "exit 9" TERM; `+loop)
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); c.ProcessState.ExitCode() != 9 {
		t.Errorf("after a signal: %v", err)
	}
	c, r := started(t, "--", "sh", "-c", `trap "echo no" TERM; `+loop)
	for range 2 {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if r != nil {
			line(t, r, "no")
			r = nil
		}
	}
	if err := c.Wait(); c.ProcessState.ExitCode() != exitSignal+int(syscall.SIGKILL) {
		t.Errorf("after two signals: %v", err)
	}
}

// kill -9 in the middle of traffic, of one program or of mlx5sim, ends the others and leaves
// nothing.
func TestKilled(t *testing.T) {
	if out, code := simulated(t, me(), "--", "true"); code != 0 { // skips if need be
		t.Fatalf("status %d: %s", code, out)
	}
	for _, g := range []struct {
		name  string
		begin func(t *testing.T) []string
	}{
		{"verbs", func(t *testing.T) []string { return []string{program(t, "verbs"), "pingpong"} }},
		{"ibv_rc_pingpong", func(t *testing.T) []string { return tool(t, "ibv_rc_pingpong") }},
	} {
		t.Run(g.name, func(t *testing.T) {
			begin := g.begin(t)
			for _, form := range []string{"-nomount=false", "-nomount"} {
				for _, whom := range []string{"server", "client", "mlx5sim"} {
					t.Run(whom+" "+form, func(t *testing.T) { killed(t, form, whom, begin) })
				}
			}
		})
	}
}

// killed has two programs play, and kills one of them or mlx5sim.
func killed(t *testing.T, form, whom string, begin []string) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	p := port(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server := append(slices.Clone(begin), "-e", "-n", "100000000", "-p", p)
	client := append(slices.Clone(server), "localhost")
	c := simulate(ctx, t, me(), slices.Concat([]string{form, "-wait", patience.String(), "--"}, server, []string{"--and"}, client)...)
	if err := tied.Start(c); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	victims := map[string]func() []int{
		"server":  func() []int { return processes(strings.Join(server, " ")) },
		"client":  func() []int { return processes(strings.Join(client, " ")) },
		"mlx5sim": func() []int { return []int{c.Process.Pid} },
	}
	until(t, "both have met", func() bool { return len(victims["server"]()) == 1 && len(victims["client"]()) == 1 && met(t, p) })
	if err := syscall.Kill(victims[whom]()[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || ctx.Err() != nil {
		t.Errorf("mlx5sim: %v", err)
	}
	until(t, "no process is left", func() bool { return len(victims["server"]()) == 0 && len(victims["client"]()) == 0 })
	until(t, "no file is left", func() bool {
		e, err := os.ReadDir(tmp)
		return err == nil && len(e) == 0
	})
}

// processes are those with a command line, keepers among them not.
func processes(command string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, f := range files {
		b, _ := os.ReadFile(f) // it may be gone
		if strings.TrimRight(strings.ReplaceAll(string(b), "\x00", " "), " ") == command {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// met says whether two programs have met at a port and closed their connection, as these
// games do when the queue pairs are connected: one end then waits for stragglers.
func met(t *testing.T, port string) bool {
	t.Helper()
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	const timeWait = "06" // TCP_TIME_WAIT of net/tcp_states.h
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: (\S+:%04[1]X \S+|\S+ \S+:%04[1]X) %[2]s `, n, timeWait))
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if b, err := os.ReadFile(table); err == nil && line.Match(b) {
			return true
		}
	}
	return false
}

// until waits for what is sure to come.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}

// What is to go wrong does.
func TestFaults(t *testing.T) {
	devinfo := tool(t, "ibv_devinfo")
	file := filepath.Join(t.TempDir(), "faults")
	if err := os.WriteFile(file, []byte("# none opens it\nioctl times=forever method=UVERBS_METHOD_GET_CONTEXT: refuse ENOMEM\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := simulated(t, me(), append([]string{"-faults", file, "--"}, devinfo...)...); code == 0 || !strings.Contains(out, "Failed to open device") {
		t.Errorf("status %d: %s", code, out)
	}
}
