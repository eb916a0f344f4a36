//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/tools/internal/tied"
)

// A machine says what to emulate.
type machine struct {
	arch   string
	cpus   int
	memMiB int
	nodes  int // NUMA nodes; 0 is 1
	kvm    bool
	// loud asks for all kernel messages on the console instead of warnings only.
	loud bool
	// oneThread emulates all CPUs on one thread of the host. A kernel that patches
	// its own code under several, as it does to attach a probe, dies of it sooner or
	// later: another CPU goes on with its translation of the old code.
	oneThread bool
	// vdsoClock has programs read the clock without the kernel, as on hardware.
	vdsoClock bool
	// instructions has the guest's clocks count instructions, 1 ns each, whatever the
	// host does besides: rates that programs measure there come out the same on a busy
	// machine. It is for one emulated CPU.
	instructions bool
}

// qemuPackages are the packages with the emulators.
var qemuPackages = map[string]string{"amd64": "qemu-system-x86", "arm64": "qemu-system-arm"}

// qemu finds the emulator for an architecture.
func (h *host) qemu(ctx context.Context, arch string) (hostTool, error) {
	unlock, err := h.lock(ctx)
	if err != nil {
		return hostTool{}, err
	}
	defer unlock()
	return h.tool(ctx, seriesArchs[arch], qemuPackages[arch])
}

// commandLine is the kernel's command line. Mitigations protect nothing here and cost time under
// emulation; a panic ends the emulator at once.
func (m machine) commandLine() string {
	tty := "ttyS0"
	if m.arch == "arm64" {
		tty = "ttyAMA0"
	}
	level := "5"
	if m.loud {
		level = "8"
	}
	line := "console=" + tty + " loglevel=" + level + " panic=-1 mitigations=off random.trust_cpu=on net.ifnames=0 rdinit=/init " + guestMark + "=1"
	if m.arch == "amd64" && !m.kvm {
		line += " " + noTimerCheck
		if m.vdsoClock {
			line += " " + tscClock
		}
	}
	return line
}

// noTimerCheck has the kernel not look whether its timer ticks while it boots: where the emulator
// stands still meanwhile, on a busy machine, it finds that it does not, and panics.
const noTimerCheck = "no_timer_check"

// tscClock has an emulated kernel take the processor's counter for its clock. By itself it finds
// that the counters of two processors differ, since it is interrupted in measuring them, and takes
// an emulated timer instead: then each look at the clock is a system call and an exit to the
// emulator, tens of microseconds, which a real machine does not have. That alone decides who is
// faster, the program that looks at the clock (Go's runtime does when it waits) or the one that
// reads the counter itself (perftest does, and gets the counter's frequency wrong).
const tscClock = "tsc=reliable clocksource=tsc"

// args are the emulator's arguments. initrd is a path; port is the number of an inherited socket.
// No network card, no default devices, no configuration files, no display.
func (m machine) args(t hostTool, kernel, initrd string, port int) []string {
	emulate := "tcg,thread=multi"
	if m.oneThread || m.instructions {
		emulate = "tcg,thread=single"
	}
	a := append(m.nodeArgs(), "-nodefaults", "-no-user-config", "-display", "none", "-nic", "none", "-no-reboot",
		"-kernel", kernel, "-initrd", initrd, "-append", m.commandLine(),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", "socket,id=port,fd="+strconv.Itoa(port),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=port,name="+portName)
	switch {
	case m.arch == "arm64" && m.kvm:
		a = append(a, "-machine", "virt,gic-version=host", "-accel", "kvm", "-cpu", "host")
	case m.arch == "arm64":
		a = append(a, "-machine", "virt", "-accel", emulate, "-cpu", "max,pauth-impdef=on")
	case m.kvm:
		a = append(a, "-machine", "q35", "-accel", "kvm", "-cpu", "host")
	default:
		a = append(a, "-machine", "q35", "-accel", emulate, "-cpu", "max")
	}
	if m.instructions {
		// An idle guest's clock jumps to its next timer: else it keeps to the host's.
		a = append(a, "-icount", "shift=0,sleep=off")
	}
	if t.root != "" {
		for _, d := range []string{"usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"} {
			a = append(a, "-L", filepath.Join(t.root, d))
		}
	}
	return a
}

// nodeArgs are the emulator's arguments for CPUs and memory. Each NUMA node has its part of both: a
// socket, since the kernel warns of nodes that share a cache.
func (m machine) nodeArgs() []string {
	n := max(m.nodes, 1)
	a := []string{"-smp", fmt.Sprintf("%d,sockets=%d", m.cpus, n), "-m", strconv.Itoa(m.memMiB - m.memMiB%n)}
	if n == 1 {
		return a
	}
	for i := range n {
		first, next := m.cpus/n*i, m.cpus/n*(i+1)
		a = append(a, "-object", fmt.Sprintf("memory-backend-ram,id=node%d,size=%dM", i, m.memMiB/n),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=node%d,cpus=%d-%d", i, i, first, next-1))
	}
	return a
}

// An emulator is a running QEMU.
type emulator struct {
	cmd  *exec.Cmd
	port *os.File      // our end of the serial port
	done chan struct{} // closed when the process has ended
	err  error         // how it ended; read after done
}

// startQEMU starts the emulator. The initial file tree lives in memory that dies with the process,
// so nothing is left on disk whatever happens. The guest's console goes to console, the emulator's
// own messages to messages.
func startQEMU(t hostTool, m machine, kernel string, im image, console, messages io.Writer) (*emulator, error) {
	initrd, err := memFile("initrd", im)
	if err != nil {
		return nil, err
	}
	defer initrd.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "port")
	defer theirs.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil { // For Go's poller: reads end when the file is closed.
		unix.Close(pair[0])
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	e := &emulator{port: os.NewFile(uintptr(pair[0]), "port"), done: make(chan struct{})}
	e.cmd = t.command(context.Background(), m.args(t, kernel, "/proc/self/fd/3", 4)...)
	e.cmd.ExtraFiles = []*os.File{initrd, theirs}
	e.cmd.Stdout, e.cmd.Stderr = console, messages
	// Its own process group keeps a terminal's Ctrl-C from it, so that we decide in which order
	// things end.
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := tied.Start(e.cmd); err != nil {
		e.port.Close()
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	go func() {
		defer close(e.done)
		e.err = e.cmd.Wait()
	}()
	return e, nil
}

// kill ends the emulator and waits until it is gone.
func (e *emulator) kill() {
	select {
	case <-e.done:
	default:
		_ = unix.Kill(-e.cmd.Process.Pid, unix.SIGKILL) // It may have ended meanwhile; its process is not reaped before done.
		<-e.done
	}
	e.port.Close()
}

// memFile writes an image into an anonymous file.
func memFile(name string, im image) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := im.writeTo(f); err != nil {
		return nil, errors.Join(fmt.Errorf("initial file tree: %w", err), f.Close())
	}
	return f, nil
}
