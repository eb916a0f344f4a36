//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/tools/internal/tty"
)

// A guestConfig says what guest to boot.
type guestConfig struct {
	kernel string // a series of kernelSuites
	arch   string
	cpus   int
	memMiB int
	nodes  int // NUMA nodes; 0 is 1
	// oneThread is for guests whose kernel patches its code: see machine.
	oneThread bool
	rdmaCore  bool     // add userlandPackages
	verbs     bool     // add the verbs tool
	modules   []string // kernel modules to load besides soft-RoCE's
	files     []fileArg
	console   bool // show the kernel's console
	// vdsoClock is machine.vdsoClock: for measurements.
	vdsoClock bool
	// instructions is machine.instructions: such a guest is emulated, with KVM at hand, too.
	instructions bool
}

// A fileArg is a host file or folder for the guest.
type fileArg struct{ src, dst string }

// A vm is a running guest.
type vm struct {
	host    *host
	config  guestConfig
	machine machine
	release string
	emu     *emulator
	console *console
	stderr  bytes.Buffer // the emulator's own messages; read after it ended
	out     *frameWriter

	mu    sync.Mutex
	next  uint32
	jobs  map[uint32]*hostJob
	hello chan hello
	bye   *byeReport
	// lost is closed when the guest can send no more; lostErr says why.
	lost    chan struct{}
	lostErr error
}

// errDeadline is the cause of contexts whose time is over.
var errDeadline = errors.New("deadline")

// boot prepares and starts a guest and waits until it can run jobs. ctx ends the guest at any time.
func (h *host) boot(ctx context.Context, c guestConfig) (*vm, error) {
	k, err := h.kernel(ctx, c.kernel, c.arch)
	if err != nil {
		return nil, err
	}
	qemu, err := h.qemu(ctx, c.arch)
	if err != nil {
		return nil, err
	}
	im, err := h.guestImage(ctx, c, k)
	if err != nil {
		return nil, err
	}
	m := machine{arch: c.arch, cpus: c.cpus, memMiB: c.memMiB, nodes: c.nodes, oneThread: c.oneThread, vdsoClock: c.vdsoClock,
		instructions: c.instructions, kvm: !c.instructions && h.kvmWorks(ctx, qemu, k, c.arch)}
	v := &vm{host: h, config: c, machine: m, console: &console{emulated: !m.kvm}, jobs: map[uint32]*hostJob{}, hello: make(chan hello, 1), lost: make(chan struct{})}
	if c.console {
		v.console.echo = func(line string) { fmt.Fprintf(h.say, "[%s] %s\n", c.kernel, line) }
	}
	start := time.Now()
	if v.emu, err = startQEMU(qemu, m, k.vmlinuz(), im, v.console, &v.stderr); err != nil {
		return nil, exitError{exitBroken, err}
	}
	v.out = &frameWriter{w: v.emu.port}
	go v.read()
	select {
	case hi := <-v.hello:
		v.release = hi.Release
		h.note("guest %s up in %.1f s (%s)", v, time.Since(start).Seconds(), v.accel())
		return v, nil
	case <-v.emu.done:
		v.emu.kill()
		<-v.lost
		return nil, exitError{exitBroken, fmt.Errorf("the guest %s ended before it was ready (QEMU: %v)%s\nconsole:\n%s\nif it does so each time, the kernel in the cache may be damaged: remove %s, and rxevm fetches it anew",
			v, v.emu.err, indented(v.stderr.String()), v.console.last(), k.dir)}
	case <-ctx.Done():
		v.emu.kill()
		<-v.lost
		return nil, v.ended(ctx)
	}
}

// guestImage packs the guest's initial file tree.
func (h *host) guestImage(ctx context.Context, c guestConfig, k kernelDir) (image, error) {
	im := image{}
	init, err := h.guestInit(ctx, c.arch)
	if err != nil {
		return nil, err
	}
	im.file("/init", 0o755, init)
	for name, target := range map[string]string{"/bin": "usr/bin", "/sbin": "usr/sbin", "/lib": "usr/lib", "/lib64": "usr/lib64"} {
		im.link(name, target)
		im.dir("/"+target, 0o755)
	}
	im.dir("/root", 0o700)
	im.dir("/tmp", 0o1777)
	boot, err := k.addModules(im, c.modules)
	if err != nil {
		return nil, exitError{exitBroken, fmt.Errorf("%w\nif the kernel in the cache is damaged, remove %s, and rxevm fetches it anew", err, k.dir)}
	}
	b, err := json.Marshal(boot)
	if err != nil {
		return nil, err
	}
	im.file(bootPath, 0o644, b)
	im.file("/etc/hosts", 0o644, []byte("127.0.0.1 localhost\n"+guestAddr+" rxevm\n"))
	if c.rdmaCore {
		root, err := h.userland(ctx, c.arch)
		if err != nil {
			return nil, err
		}
		if err := addUserland(im, root); err != nil {
			return nil, exitError{exitBroken, err}
		}
	}
	if c.verbs {
		if err := h.addVerbs(ctx, im, c.arch); err != nil {
			return nil, err
		}
	}
	for _, f := range c.files {
		if err := addTree(im, f.src, f.dst); err != nil {
			return nil, exitError{exitUsage, fmt.Errorf("-file: %w", err)}
		}
	}
	return im, nil
}

// String names the guest.
func (v *vm) String() string {
	if v.release != "" {
		return v.release
	}
	return v.config.kernel + " " + v.config.arch
}

// accel says how the guest runs.
func (v *vm) accel() string {
	if v.machine.kvm {
		return "KVM"
	}
	return "software emulation"
}

// environ is the environment of every job: what identifies the guest to tests, and the usual
// variables.
func (v *vm) environ() []string {
	accel := "tcg"
	if v.machine.kvm {
		accel = "kvm"
	}
	return []string{"PATH=" + guestPath, "HOME=/root", "USER=root", "TMPDIR=/tmp", "LANG=C.UTF-8",
		"GOVERBS_GUEST=" + v.config.kernel, "GOVERBS_GUEST_ACCEL=" + accel}
}

// read takes frames from the guest until there are no more.
func (v *vm) read() {
	var err error
	for err == nil {
		var f frame
		if f, err = readFrame(v.emu.port); err == nil {
			err = v.frame(f)
		}
	}
	v.mu.Lock()
	v.lostErr = err
	v.mu.Unlock()
	close(v.lost)
}

// close ends the guest and returns what was wrong with it: kernel complaints, leaked objects, a
// guest that did not end by itself. A guest whose context has ended is only killed: the job that
// was running has reported that already.
func (v *vm) close(ctx context.Context) error {
	defer v.emu.kill()
	if ctx.Err() != nil {
		return nil
	}
	if err := v.out.write(frameQuit, 0, nil); err == nil {
		select {
		case <-v.emu.done:
		case <-time.After(3 * guestPatience):
			return exitError{exitKernel, fmt.Errorf("the guest %s did not shut down within %v\nconsole:\n%s", v, 3*guestPatience, v.console.last())}
		case <-ctx.Done():
			return v.ended(ctx)
		}
	}
	<-v.emu.done
	<-v.lost
	for _, s := range v.console.stalled() {
		v.host.note("reported only, since the guest is emulated: %s", s)
	}
	if err := v.console.err(); err != nil {
		return exitError{exitKernel, fmt.Errorf("%w\nconsole:\n%s", err, v.console.last())}
	}
	if v.bye == nil {
		return exitError{exitBroken, fmt.Errorf("the guest %s ended without a good-bye (%v)\nconsole:\n%s", v, v.lostErr, v.console.last())}
	}
	return v.bye.err(v)
}

// Bits of /proc/sys/kernel/tainted that mean a failure: an Oops, a bad page, a warning.
const taintFaults = 1<<7 | 1<<5 | 1<<9

// err says what a good-bye complains about.
func (b *byeReport) err(v *vm) error {
	var all []string
	if t := b.Tainted & taintFaults; t != 0 {
		all = append(all, fmt.Sprintf("kernel taint word is %#x: bit 5 is a bad page, 7 an Oops, 9 a warning", b.Tainted))
	}
	all = append(all, b.Leaks...)
	if len(all) == 0 {
		return nil
	}
	return exitError{exitKernel, fmt.Errorf("the guest %s leaves this behind:\n    %s\nconsole:\n%s", v, strings.Join(all, "\n    "), v.console.last())}
}

// ended describes the end of a context.
func (v *vm) ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errDeadline) {
		return exitError{exitDeadline, fmt.Errorf("the guest %s was ended: %w\nconsole:\n%s", v, cause, v.console.last())}
	}
	return cause
}

// indented prefixes non-empty text for an error message.
func indented(s string) string {
	if s = strings.TrimSpace(s); s == "" {
		return ""
	}
	return "\n    " + strings.ReplaceAll(s, "\n", "\n    ")
}

// withDeadline bounds a context by a duration; the cause says how to get more.
func withDeadline(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%w of %v is over (-timeout)", errDeadline, d))
}

// stdinIsTerminal reports whether a person sits at standard input.
func stdinIsTerminal() bool { return tty.Is(os.Stdin) }
