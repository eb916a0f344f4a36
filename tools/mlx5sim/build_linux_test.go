package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/tools/internal/tied"
)

// patience is how long something may take that is sure to come.
const patience = refereeLimit

// built is the folder of the programs that the tests need, which nobody may read too.
var built = sync.OnceValues(func() (string, error) {
	parent := os.TempDir()
	if st, err := os.Stat(parent); err != nil || st.Mode().Perm()&0o001 == 0 {
		parent = "/tmp" // the other is somebody's alone
	}
	dir, err := os.MkdirTemp(parent, "mlx5sim-test-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return dir, err
	}
	c := exec.Command("go", "build", "-o", dir+"/", "../mlx5sim", "../verbs")
	c.Env = append(os.Environ(), "CGO_ENABLED=0") // static, whatever this test is
	if out, err := c.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	if os.Getenv(rogueVar) != "" {
		if err := rogue(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if dir, _ := built(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// program is the path of a program of this module.
func program(t *testing.T, name string) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// tool finds a program of rdma-core or perftest, and returns how its command begins.
func tool(t *testing.T, name string) []string {
	t.Helper()
	begin, err := findTool(name)
	if err != nil && os.Getenv(coreVar) != "" {
		t.Fatal(err) // who names a folder wants what is in it
	}
	if err != nil {
		t.Skip("declared skip: ", err)
	}
	return begin
}

// user is who runs the programs.
type user struct {
	name string
	id   uint32
}

const nobodyID = 65534

// users are who runs the programs: whoever runs the test, and if that is root an
// ordinary user too.
func users() []user {
	me := user{"", uint32(os.Getuid())}
	if me.id != 0 {
		return []user{me}
	}
	return []user{me, {"nobody", nobodyID}}
}

// simulate makes the command that runs mlx5sim run.
func simulate(ctx context.Context, t *testing.T, u user, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(ctx, program(t, "mlx5sim"), append([]string{"run"}, args...)...)
	c.Env = toolEnvironment()
	if u.id != uint32(os.Getuid()) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.id, Gid: u.id}}
		c.Env = append(c.Env, "TMPDIR=/tmp") // this one's may be the tester's alone
	}
	return c
}

// run runs mlx5sim run to its end. It skips the test where the machine does not let it.
func simulated(t *testing.T, u user, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := simulate(ctx, t, u, args...)
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	err := tied.Run(c)
	if ctx.Err() != nil {
		t.Fatalf("%q hangs:\n%s", args, b.Bytes())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	out, code = b.String(), c.ProcessState.ExitCode()
	if code == exitSystem {
		for _, reason := range []string{"may not make namespaces", "it takes Linux 5.19", "a sandbox that forbids it"} {
			if strings.Contains(out, reason) {
				t.Skip("declared skip: ", out)
			}
		}
	}
	return out, code
}

// reachable says whether a user may read a file.
func reachable(t *testing.T, u user, path string) {
	t.Helper()
	c := exec.Command("head", "-c1", path)
	if u.id != uint32(os.Getuid()) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.id, Gid: u.id}}
	}
	if err := c.Run(); err != nil {
		t.Skipf("declared skip: user %s may not read %s, which is in a folder of another's", u.name, path)
	}
}

// port is a TCP port that is free.
func port(t *testing.T) string {
	t.Helper()
	p, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
