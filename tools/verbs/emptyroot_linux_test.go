package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/tools/internal/uname"
)

// emptyRoot is a folder with the binary verbs, /dev/infiniband and nothing else: no /sys, no /proc,
// no C library, no user of any name.
func emptyRoot(t *testing.T) string {
	t.Helper()
	guestOnly(t)
	if os.Getenv("GOVERBS_GUEST") == "" || os.Getuid() != 0 {
		t.Skip("declared skip: it mounts file systems, which only root of a guest should; run in the guest: rxevm exec")
	}
	verbs, err := exec.LookPath("verbs")
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir, above which there may be folders that are not for everybody.
	root, err := os.MkdirTemp("/", "emptyroot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(root); err != nil {
			t.Error(err)
		}
	})
	mount := func(source, target, kind string, flags uintptr, data string) {
		if err := unix.Mount(source, target, kind, flags, data); err != nil {
			t.Fatalf("mount %s: %v", target, err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", target, err)
			}
		})
	}
	mount("tmpfs", root, "tmpfs", 0, "mode=0755")
	content, err := os.ReadFile(verbs)
	devices := filepath.Join(root, "dev", "infiniband")
	if err = errors.Join(err, os.WriteFile(filepath.Join(root, "verbs"), content, 0o755), os.MkdirAll(devices, 0o755)); err != nil {
		t.Fatal(err)
	}
	mount("/dev/infiniband", devices, "", unix.MS_BIND, "")
	// Kernels before 5.16 let an ordinary user lock 64 kB, and a container for RDMA has to be given
	// more; the later ones' 8 MB are enough here.
	const enough = 8 << 20
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < enough {
		raised := unix.Rlimit{Cur: enough, Max: max(enough, limit.Max)}
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &raised); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// nobody is the user and group of that name, nearly everywhere.
const nobody = 65534

// inEmptyRoot is a command of verbs there, by an ordinary user.
func inEmptyRoot(ctx context.Context, root string, out *bytes.Buffer, args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path: "/verbs", Args: append([]string{"verbs"}, args...), Env: []string{}, Dir: "/", Stdout: out, Stderr: out,
		SysProcAttr: &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL},
	}
}

// With the binary and the device files alone, everything works that a container needs to talk:
// devices are found by netlink, opened and played on.
func TestGuestEmptyRoot(t *testing.T) {
	root := emptyRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"version"}, []string{"linux/"}},
		{[]string{"devinfo", "-v"}, []string{"rxe0", "PORT_ACTIVE", "10.0.0.1"}},
		{[]string{"doctor"}, []string{"/proc is not mounted", "/sys is not mounted", "\n2 notes; "}},
		{[]string{"top", "-once", "-i", "0.1"}, []string{"/proc is not mounted", "rxe0"}},
		{[]string{"demo", "-d", "rxe0", "-n", "20"}, []string{"busy ping-pong", "event ping-pong", "injected error"}},
		{[]string{"selftest", "-quick", "-only", "RC: send of no bytes"}, []string{"kernel " + uname.System(), "1 passed"}},
	} {
		var out bytes.Buffer
		if err := inEmptyRoot(ctx, root, &out, c.args...).Run(); err != nil {
			t.Errorf("verbs %v: %v\n%s", c.args, err, out.String())
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("verbs %v prints no %q:\n%s", c.args, want, out.String())
			}
		}
	}
	port := freePort(t)
	args := []string{"pingpong", "-c", "-e", "-n", strconv.Itoa(guestIters()), "-p", strconv.Itoa(port)}
	var server, client bytes.Buffer
	answers := inEmptyRoot(ctx, root, &server, args...)
	if err := answers.Start(); err != nil {
		t.Fatal(err)
	}
	waitForServer(t, port)
	err := inEmptyRoot(ctx, root, &client, append(args, "127.0.0.1")...).Run()
	if err != nil {
		cancel()
	}
	if err = errors.Join(err, answers.Wait()); err != nil {
		t.Errorf("%v\nserver:\n%s\nclient:\n%s", err, server.String(), client.String())
	}
}
