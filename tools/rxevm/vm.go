//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// A guestConfig says what guest to boot.
type guestConfig struct {
	kernel   string // a series of kernelSuites
	arch     string
	cpus     int
	memMiB   int
	rdmaCore bool     // add userlandPackages
	verbs    bool     // add the verbs tool
	modules  []string // kernel modules to load besides soft-RoCE's
	files    []fileArg
	console  bool // show the kernel's console
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

// A hostJob is a job in progress, seen from the host.
type hostJob struct {
	stdout, stderr io.Writer
	file           func(fileHeader) (io.WriteCloser, error)
	open           io.WriteCloser
	err            error // the first thing that went wrong on the host's side
	exit           chan exitReport
}

// killPatience is how long a killed job may take to go.
const killPatience = 5 * time.Second

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
	m := machine{arch: c.arch, cpus: c.cpus, memMiB: c.memMiB, kvm: h.kvmWorks(ctx, qemu, k, c.arch)}
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
		return nil, exitError{exitBroken, fmt.Errorf("the guest %s ended before it was ready (QEMU: %v)%s\nconsole:\n%s", v, v.emu.err, indented(v.stderr.String()), v.console.last())}
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
		return nil, exitError{exitBroken, err}
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

// frame handles one frame. An error means that the guest does not keep the protocol.
func (v *vm) frame(f frame) error {
	v.mu.Lock()
	j := v.jobs[f.job]
	v.mu.Unlock()
	switch f.typ {
	case frameHello:
		var hi hello
		if err := json.Unmarshal(f.payload, &hi); err != nil {
			return err
		}
		select {
		case v.hello <- hi:
			return nil
		default:
			return errors.New("the guest said hello twice")
		}
	case frameBye:
		var bye byeReport
		if err := json.Unmarshal(f.payload, &bye); err != nil {
			return err
		}
		v.mu.Lock()
		v.bye = &bye
		v.mu.Unlock()
		return nil
	}
	if j == nil {
		return fmt.Errorf("the guest sent a frame of type %q for job %d, which does not run", f.typ, f.job)
	}
	switch f.typ {
	case frameStdout:
		j.write(j.stdout, f.payload)
	case frameStderr:
		j.write(j.stderr, f.payload)
	case frameFile:
		j.closeFile()
		var fh fileHeader
		if err := json.Unmarshal(f.payload, &fh); err != nil {
			return err
		}
		if j.file == nil {
			return fmt.Errorf("the guest sent %s, which nobody asked for", fh.Path)
		}
		w, err := j.file(fh)
		if err != nil {
			j.fail(err)
			w = discard{}
		}
		j.open = w
	case frameData:
		if j.open == nil {
			return errors.New("the guest sent file content without a file")
		}
		j.write(j.open, f.payload)
	case frameExit:
		j.closeFile()
		var rep exitReport
		if err := json.Unmarshal(f.payload, &rep); err != nil {
			return err
		}
		v.mu.Lock()
		delete(v.jobs, f.job)
		v.mu.Unlock()
		j.exit <- rep
	default:
		return fmt.Errorf("the guest sent a frame of unknown type %q", f.typ)
	}
	return nil
}

// write passes output on and keeps the first error: a broken pipe must not stop the guest's other
// jobs.
func (j *hostJob) write(w io.Writer, p []byte) {
	if w == nil {
		return
	}
	if _, err := w.Write(p); err != nil {
		j.fail(err)
	}
}

// fail keeps the first error.
func (j *hostJob) fail(err error) {
	if j.err == nil {
		j.err = err
	}
}

// closeFile ends the file that is being received.
func (j *hostJob) closeFile() {
	if j.open != nil {
		if err := j.open.Close(); err != nil {
			j.fail(err)
		}
		j.open = nil
	}
}

// A discard swallows a file that cannot be stored.
type discard struct{}

// Write implements io.Writer.
func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Close implements io.Closer.
func (discard) Close() error { return nil }

// A jobIO connects a job with the host. Nil writers drop output.
type jobIO struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	file           func(fileHeader) (io.WriteCloser, error)
}

// A started job can be waited for or killed.
type started struct {
	v  *vm
	id uint32
	j  *hostJob
}

// start sends a job to the guest.
func (v *vm) start(j job, x jobIO) (started, error) {
	hj := &hostJob{stdout: x.stdout, stderr: x.stderr, file: x.file, exit: make(chan exitReport, 1)}
	v.mu.Lock()
	v.next++
	id := v.next
	v.jobs[id] = hj
	v.mu.Unlock()
	j.Now = time.Now().UnixNano()
	j.Stdin = x.stdin != nil
	if err := v.out.writeJSON(frameJob, id, j); err != nil {
		return started{}, fmt.Errorf("the guest does not listen: %w", err)
	}
	if x.stdin != nil {
		go func() {
			_, _ = io.Copy(streamWriter{v.out, frameInput, id}, x.stdin) // An error here shows as end of input there.
			_ = v.out.write(frameInput, id, nil)
		}()
	}
	return started{v, id, hj}, nil
}

// wait waits for the job's end. The error is about the machinery; what the program did is the code.
func (s started) wait(ctx context.Context) (int, error) {
	select {
	case rep := <-s.j.exit:
		if rep.Err != "" {
			return rep.Code, errors.New(rep.Err)
		}
		return rep.Code, s.j.err
	case <-s.v.lost:
		select { // The last frames may have brought both.
		case rep := <-s.j.exit:
			return rep.Code, s.j.err
		default:
		}
		<-s.v.emu.done
		if err := s.v.console.err(); err != nil {
			return 0, exitError{exitKernel, fmt.Errorf("%w\nconsole:\n%s", err, s.v.console.last())}
		}
		return 0, exitError{exitBroken, fmt.Errorf("the guest went away in the middle of a job (QEMU: %v)\nconsole:\n%s", s.v.emu.err, s.v.console.last())}
	case <-ctx.Done():
		return 0, s.v.ended(ctx)
	}
}

// kill ends the job's processes; wait then returns 137.
func (s started) kill() {
	_ = s.v.out.write(frameKill, s.id, nil) // A guest that is gone has no processes.
}

// run runs one job to its end. When the context ends first, the job is killed, so that the guest is
// free for the next one.
func (v *vm) run(ctx context.Context, j job, x jobIO) (int, error) {
	s, err := v.start(j, x)
	if err != nil {
		return 0, err
	}
	code, err := s.wait(ctx)
	if ctx.Err() != nil {
		s.kill()
		select { // Nothing writes to x any more after this, unless the guest is stuck.
		case <-s.j.exit:
		case <-v.lost:
		case <-time.After(killPatience):
		}
	}
	return code, err
}

// readFile returns the content of a file of the guest.
func (v *vm) readFile(ctx context.Context, path string) (string, error) {
	var b strings.Builder
	seen := false
	_, err := v.run(ctx, job{Collect: []string{path}}, jobIO{file: func(fileHeader) (io.WriteCloser, error) {
		seen = true
		return nopCloser{&b}, nil
	}})
	if err == nil && !seen {
		err = fmt.Errorf("the guest has no %s", path)
	}
	return b.String(), err
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
		case <-time.After(60 * time.Second):
			return exitError{exitKernel, fmt.Errorf("the guest %s did not shut down within a minute\nconsole:\n%s", v, v.console.last())}
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
func stdinIsTerminal() bool { return isTerminal(os.Stdin) }
