//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/uverbs/nldev"
	"golang.org/x/sys/unix"
)

// In the guest this program is the first process. It mounts the kernel's file systems, loads
// modules, makes rxe0, and then runs jobs for the host until it is told to quit.

const (
	// guestMark is the environment variable that the kernel's command line hands to the first
	// process.
	guestMark = "RXEVM_GUEST"
	// bootPath is where the initial file tree has the guest's bootConfig.
	bootPath = "/etc/rxevm.json"
	// portName is the name of the virtio serial port.
	portName = "rxevm"
	// guestAddr is the address of the interface below rxe0.
	guestAddr = "10.0.0.1"
	// guestPath is PATH for jobs.
	guestPath = "/usr/local/bin:/usr/sbin:/usr/bin"
)

// A bootConfig is what the host tells the guest through the initial file tree.
type bootConfig struct {
	// PortModules make the serial port, Modules the rest; files in loading order.
	PortModules, Modules []string
}

// inGuest reports whether this process is the guest's first.
func inGuest() bool { return os.Getpid() == 1 && os.Getenv(guestMark) == "1" }

// guestMain is the whole life of the guest. It does not return.
func guestMain() {
	err := guestRun()
	if err != nil {
		// The port may be what failed: the console is the one way that always works.
		fmt.Fprintf(os.Stderr, "rxevm guest: %v\n", err)
	}
	unix.Sync()
	// The emulator runs with -no-reboot, so this ends it on every machine type, also on those
	// without a power button.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}

// guestPatience is how long something may take in the guest that is sure to come: under emulation
// the guest stands still when its host does.
const guestPatience = time.Minute

// guestRun sets the guest up, serves the host and takes soft-RoCE down again.
func guestRun() error {
	if err := guestMounts(); err != nil {
		return err
	}
	b, err := os.ReadFile(bootPath)
	if err != nil {
		return err
	}
	var cfg bootConfig
	if err := json.Unmarshal(b, &cfg); err != nil {
		return fmt.Errorf("%s: %w", bootPath, err)
	}
	if err := loadModules(cfg.PortModules); err != nil {
		return err
	}
	port, err := openPort(guestPatience)
	if err != nil {
		return err
	}
	if err := loadModules(cfg.Modules); err != nil {
		return err
	}
	if err := linkUp("lo", "127.0.0.1", 8); err != nil {
		return err
	}
	if err := linkUp("dummy0", guestAddr, 24); err != nil {
		return err
	}
	if err := addRXE("rxe0", "dummy0"); err != nil {
		return err
	}
	if err := waitGID("rxe0", "::ffff:"+guestAddr, guestPatience); err != nil {
		return err
	}
	before, err := resources("rxe0")
	if err != nil {
		return err
	}

	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	s := newJobServer(port)
	if err := s.out.writeJSON(frameHello, 0, hello{Release: unix.ByteSliceToString(uts.Release[:]), Uptime: uptime()}); err != nil {
		return err
	}
	if err := s.serve(); err != nil {
		return err
	}
	return s.out.writeJSON(frameBye, 0, guestTeardown(before))
}

// guestMounts mounts what programs expect.
func guestMounts() error {
	for _, m := range []struct{ source, target, fstype, data string }{
		{"proc", "/proc", "proc", ""},
		{"sysfs", "/sys", "sysfs", ""},
		{"devtmpfs", "/dev", "devtmpfs", ""},
		{"devpts", "/dev/pts", "devpts", "mode=0620,ptmxmode=0666"},
		{"tmpfs", "/dev/shm", "tmpfs", "mode=1777"},
		{"tmpfs", "/run", "tmpfs", "mode=0755"},
		{"debugfs", "/sys/kernel/debug", "debugfs", ""},
		{"bpf", "/sys/fs/bpf", "bpf", ""},
		{"cgroup2", cgroups, "cgroup2", ""},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.fstype, 0, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for link, target := range map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return unix.Sethostname([]byte("rxevm"))
}

// loadModules loads module files in order. One that is there already is no error.
func loadModules(files []string) error {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", filepath.Base(name), err)
		}
	}
	return nil
}

// openPort waits for the serial port that the emulator named for us and opens it.
func openPort(patience time.Duration) (*os.File, error) {
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name") // The pattern is constant and valid.
		for _, n := range names {
			if b, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(b)) == portName {
				return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(n))), os.O_RDWR|unix.O_CLOEXEC, 0)
			}
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("no virtio serial port named %q after %v", portName, patience)
		}
	}
}

// uptime is the kernel's age in seconds; zero when it cannot be read, which only costs a line of
// the report.
func uptime() float64 {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	f, _ := strconv.ParseFloat(first, 64)
	return f
}

// guestTeardown ends every process, takes soft-RoCE down, and reports what stayed behind.
func guestTeardown(before nldev.ResourceCounts) byeReport {
	var bye byeReport
	leak := func(format string, args ...any) { bye.Leaks = append(bye.Leaks, fmt.Sprintf(format, args...)) }

	if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		leak("killing what still ran: %v", err)
	}
	// Newer kernels free objects from a work queue: give them time before calling it a leak.
	var diff string
	for end := time.Now().Add(guestPatience); ; time.Sleep(20 * time.Millisecond) {
		reap()
		after, err := resources("rxe0")
		if errors.Is(err, os.ErrNotExist) {
			break // A job removed the device, and with it everything on it.
		}
		if err != nil {
			leak("counting RDMA objects: %v", err)
			break
		}
		if diff = resourceDiff(before, after); diff == "" {
			break
		}
		if time.Now().After(end) {
			leak("RDMA objects of rxe0 outlived every process: %s", diff)
			break
		}
	}
	// A link whose objects are still held would block its removal for ever; the kernel's own leak
	// report needs it gone.
	removed := make(chan error, 1)
	go func() { removed <- removeRDMA("rxe0") }()
	select {
	case err := <-removed:
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			leak("removing rxe0: %v", err)
		} else if err := unix.DeleteModule("rdma_rxe", unix.O_NONBLOCK); err != nil && !errors.Is(err, unix.ENOENT) {
			leak("removing the module rdma_rxe: %v", err)
		}
	case <-time.After(guestPatience):
		leak("removing rxe0 blocks: something still holds it")
	}
	b, err := os.ReadFile("/proc/sys/kernel/tainted")
	if err == nil {
		bye.Tainted, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	}
	if err != nil {
		leak("reading the taint word: %v", err)
	}
	return bye
}

// reap collects the exit status of orphans; as the first process nobody else does.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
	}
}
