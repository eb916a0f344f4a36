//go:build amd64 || arm64

package simproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Cmd is a program, as exec.Cmd is: its fields are set, it is started, and it is waited for.
// It is made by [Server.Command] and runs once.
type Cmd struct {
	// Args are the program and its arguments. A name without a slash is looked for in PATH.
	Args []string
	// Env is its environment, this process's if it is nil, and Dir its folder.
	Env []string
	Dir string
	// Stdin, Stdout and Stderr are as those of exec.Cmd.
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	s      *Server
	keeper *exec.Cmd
	tree   string // its folder of /sys

	started  chan struct{} // closed when the program runs, or will not
	gone     chan struct{} // closed when all is over
	startErr error

	mu     sync.Mutex
	pid    int
	pidfd  int // -1 when the program runs no more
	ended  bool
	status unix.WaitStatus
	failed error
	copied error // of Stdin, Stdout and Stderr
	socket int   // to the keeper, -1 when it is gone
}

// Command makes a program to be started.
func (s *Server) Command(name string, args ...string) *Cmd {
	return &Cmd{Args: append([]string{name}, args...), s: s, socket: -1, pidfd: -1}
}

// Start starts the program. It returns when the program is about to run: with an error if
// it was not found, or may not be started as the package comment says. That it cannot be
// executed Wait tells.
func (c *Cmd) Start() error {
	switch {
	case c.s == nil || len(c.Args) == 0:
		return errors.New("simproc: the Cmd was not made by Server.Command")
	case c.keeper != nil:
		return errors.New("simproc: the program was started already")
	}
	path, err := exec.LookPath(c.Args[0])
	if err != nil {
		return fmt.Errorf("simproc: %w", err)
	}
	j := &job{Path: path, Args: c.Args, NoMount: c.s.noMount, UserNS: !c.s.noMount && os.Geteuid() != 0, Devices: len(c.s.model.Devices())}
	j.Tree = sysfs(c.s.model, func(n int) string {
		number := c.s.deviceNumber(n)
		return fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number))
	})
	jf, err := j.file()
	if err != nil {
		return fmt.Errorf("simproc: %w", err)
	}
	defer jf.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("simproc: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "server")
	defer theirs.Close()
	c.socket = pair[0]
	c.keeper = &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{keeperName}, c.Args...), Env: c.Env, Dir: c.Dir,
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, ExtraFiles: []*os.File{theirs, jf},
	}
	c.started, c.gone = make(chan struct{}), make(chan struct{})
	c.s.mu.Lock()
	if c.s.closed {
		err = errClosed
	} else if err = c.keeper.Start(); err == nil {
		c.s.cmds[c] = struct{}{}
	}
	c.s.mu.Unlock()
	if err != nil {
		unix.Close(c.socket)
		c.socket = -1 // which Kill would take for ours
		return fmt.Errorf("simproc: %w", err)
	}
	theirs.Close()
	go c.follow()
	<-c.started
	if c.startErr != nil {
		<-c.gone
	}
	return c.startErr
}

// follow hears what the processes say, until both are gone.
func (c *Cmd) follow() {
	listener, stop := -1, -1
	var serving sync.WaitGroup
	buf, oob := make([]byte, 8192), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(c.socket, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		text := string(buf[1:n])
		switch buf[0] {
		case sayTree:
			c.tree = text // before the program is there
		case sayListener:
			fds := rights(oob[:oobn])
			pid, err := strconv.Atoi(text)
			if len(fds) != 1 || err != nil || listener >= 0 {
				continue
			}
			if stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
				unix.Close(fds[0])
				c.fail(fmt.Errorf("simproc: %w", err))
				continue
			}
			listener = fds[0]
			c.mu.Lock()
			c.pid = pid
			if c.pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
				c.pidfd = -1 // it was killed already
			}
			c.mu.Unlock()
			serving.Go(func() { c.serve(listener, stop) })
			close(c.started)
		case sayFailed:
			c.fail(fmt.Errorf("simproc: %s: %s", c.Args[0], text))
		case sayEnd:
			ws, err := strconv.Atoi(text)
			c.mu.Lock()
			c.ended, c.status = err == nil, unix.WaitStatus(ws)
			c.mu.Unlock()
		}
	}
	copied := c.keeper.Wait()
	var exit *exec.ExitError
	if errors.As(copied, &exit) {
		copied = nil // the keeper said why
	}
	if listener >= 0 {
		_, _ = unix.Write(stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		serving.Wait()
		unix.Close(listener)
		unix.Close(stop)
	}
	c.mu.Lock()
	unix.Close(c.socket)
	c.socket = -1
	if c.pidfd >= 0 {
		unix.Close(c.pidfd)
		c.pidfd = -1
	}
	c.mu.Unlock()
	if c.tree != "" {
		_ = os.RemoveAll(c.tree) // for a keeper that was killed; otherwise it is gone
	}
	c.s.sweep()
	c.mu.Lock()
	c.copied = copied
	if !c.ended && c.failed == nil {
		c.failed = fmt.Errorf("simproc: %s: its keeper, process %d, is gone: %v", c.Args[0], c.keeper.Process.Pid, c.keeper.ProcessState)
	}
	c.mu.Unlock()
	if listener < 0 {
		c.startErr = c.failed
		close(c.started)
	}
	c.s.mu.Lock()
	delete(c.s.cmds, c)
	c.s.mu.Unlock()
	close(c.gone)
}

// fail notes the first thing that went wrong.
func (c *Cmd) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}

// rights are the descriptors that came with a message.
func rights(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if f, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, f...)
		}
	}
	return fds
}

// Wait waits until the program has ended, none of the processes that it started is left, and
// what it printed is copied. The devices that they had open are closed then. The
// error is an [*ExitError] if the program failed.
func (c *Cmd) Wait() error {
	if c.gone == nil {
		return errors.New("simproc: the program was not started")
	}
	<-c.gone
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	switch {
	case c.failed != nil:
		err = c.failed
	case c.status.Signaled():
		err = &ExitError{Code: -1, Signal: c.status.Signal()}
	case c.status.ExitStatus() != 0:
		err = &ExitError{Code: c.status.ExitStatus()}
	default:
		err = c.copied
	}
	if err != nil && c.s.denied.Load() {
		return fmt.Errorf("%w (the memory of a program could not be read: a sandbox may forbid process_vm_readv, or Yama's kernel.yama.ptrace_scope is 2 or 3)", err)
	}
	return err
}

// Run is Start and Wait.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Signal sends the program a signal, not the processes that it started. It fails with
// os.ErrProcessDone when the program has ended.
func (c *Cmd) Signal(sig os.Signal) error {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("simproc: %v is no signal of this system", sig)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd < 0 {
		return os.ErrProcessDone
	}
	if err := unix.PidfdSendSignal(c.pidfd, number, nil, 0); err == unix.ESRCH {
		return os.ErrProcessDone
	} else if err != nil {
		return fmt.Errorf("simproc: signal %v: %w", number, err)
	}
	return nil
}

// Kill kills the program and all that it started. Wait waits for them.
func (c *Cmd) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.socket >= 0 {
		// The keeper sees the end of the connection, and still says how it came.
		_ = unix.Shutdown(c.socket, unix.SHUT_WR)
	}
}
