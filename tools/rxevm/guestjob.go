//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A jobServer runs the host's jobs in the guest, several at a time when asked to.
type jobServer struct {
	in  io.Reader
	out *frameWriter

	mu      sync.Mutex
	running map[uint32]*guestJob
	all     sync.WaitGroup
	clock   sync.Once
}

// A guestJob is a job in progress.
type guestJob struct {
	input chan []byte // what the host sends for standard input; nil ends it
	kill  chan struct{}
	once  sync.Once
}

// newJobServer serves one port.
func newJobServer(port io.ReadWriter) *jobServer {
	return &jobServer{in: port, out: &frameWriter{w: port}, running: map[uint32]*guestJob{}}
}

// serve reads frames until the host says quit, then waits for jobs in progress after ending them.
func (s *jobServer) serve() error {
	for {
		f, err := readFrame(s.in)
		if err != nil {
			return fmt.Errorf("serial port: %w", err)
		}
		s.mu.Lock()
		g := s.running[f.job]
		s.mu.Unlock()
		switch f.typ {
		case frameJob:
			var j job
			if err := json.Unmarshal(f.payload, &j); err != nil {
				return fmt.Errorf("job %d: %w", f.job, err)
			}
			s.start(f.job, j)
		case frameInput:
			if g != nil {
				select {
				case g.input <- f.payload:
				case <-g.kill:
				}
			}
		case frameKill:
			if g != nil {
				g.once.Do(func() { close(g.kill) })
			}
		case frameQuit:
			s.mu.Lock()
			for _, g := range s.running {
				g.once.Do(func() { close(g.kill) })
			}
			s.mu.Unlock()
			s.all.Wait()
			return nil
		default:
			return fmt.Errorf("the host sent a frame of unknown type %q", f.typ)
		}
	}
}

// start begins a job.
func (s *jobServer) start(id uint32, j job) {
	s.clock.Do(func() {
		if d := time.Until(time.Unix(0, j.Now)); d.Abs() > time.Second {
			tv := unix.NsecToTimeval(j.Now)
			_ = unix.Settimeofday(&tv) // A wrong clock spoils file dates only.
		}
	})
	g := &guestJob{input: make(chan []byte, 16), kill: make(chan struct{})}
	s.mu.Lock()
	s.running[id] = g
	s.mu.Unlock()
	s.all.Go(func() {
		rep := s.run(id, j, g)
		for _, path := range j.Collect {
			if err := s.sendFiles(id, path); err != nil && rep.Err == "" {
				rep.Err = fmt.Sprintf("sending %s back: %v", path, err)
			}
		}
		s.mu.Lock()
		delete(s.running, id)
		s.mu.Unlock()
		g.once.Do(func() { close(g.kill) })
		_ = s.out.writeJSON(frameExit, id, rep) // When the port is gone, so is everybody who could hear of it.
	})
}

// run runs the job's program to its end.
func (s *jobServer) run(id uint32, j job, g *guestJob) exitReport {
	for _, d := range j.Mkdirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return exitReport{Code: 127, Err: err.Error()}
		}
	}
	if len(j.Args) == 0 {
		return exitReport{}
	}
	if j.Listen != 0 {
		if err := waitListen(j.Listen, g.kill, 2*guestPatience); err != nil {
			return exitReport{Code: 127, Err: err.Error()}
		}
	}
	path, err := lookGuest(j.Args[0], j.Dir)
	if err != nil {
		return exitReport{Code: 127, Err: err.Error()}
	}
	cmd := &exec.Cmd{
		Path: path, Args: j.Args, Env: j.Env, Dir: j.Dir,
		Stdout: streamWriter{s.out, frameStdout, id}, Stderr: streamWriter{s.out, frameStderr, id},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		// A grandchild that keeps the pipes open must not keep the job alive. What is in them
		// when the program ends is lost after that, so a busy machine has to get by with it.
		WaitDelay: 10 * time.Second,
	}
	if j.CPUs != 0 {
		group, remove, err := j.limit(fmt.Sprintf("job%d", id))
		if err != nil {
			return exitReport{Code: 127, Err: err.Error()}
		}
		defer remove()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	}
	var after func()
	switch {
	case j.Terminal != nil:
		if after, err = attachTerminal(cmd, *j.Terminal, g.input); err != nil {
			return exitReport{Code: 127, Err: err.Error()}
		}
	case j.Stdin:
		w, err := cmd.StdinPipe()
		if err != nil {
			return exitReport{Code: 127, Err: err.Error()}
		}
		go feed(w, g.input, g.kill)
	}
	if err := cmd.Start(); err != nil {
		return exitReport{Code: 127, Err: fmt.Sprintf("cannot run %s: %v", j.Args[0], startHint(path, err))}
	}
	ended := make(chan struct{})
	go func() {
		select {
		case <-g.kill:
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // The program's session; it may have ended meanwhile.
		case <-ended:
		}
	}()
	if j.Storm {
		go storm(cmd.Process.Pid, ended)
	}
	if after != nil {
		after()
	}
	err = cmd.Wait()
	close(ended)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return exitReport{Code: 127, Err: err.Error()}
	}
	rep := exitReport{CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if rep.Code = ws.ExitStatus(); ws.Signaled() {
		rep.Code = 128 + int(ws.Signal())
	}
	return rep
}

// lookGuest finds a program: by path, relative to dir, or on guestPath.
func lookGuest(name, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if _, err := os.Stat(name); err != nil {
			return "", fmt.Errorf("%s is not in the guest: copy it there with -file", name)
		}
		return name, nil
	}
	for _, d := range filepath.SplitList(guestPath) {
		p := filepath.Join(d, name)
		if st, err := os.Stat(p); err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not in the guest: it has verbs, what -file copies in, and with -with rdma-core a shell and rdma-core's programs", name)
}

// startHint explains the error of a program whose loader is missing, which the kernel reports as if
// the program itself were.
func startHint(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there but its loader or interpreter is not: build it static (CGO_ENABLED=0), or add -with rdma-core (%w)", path, err)
	}
	return err
}

// feed copies the host's input to a program.
func feed(w io.WriteCloser, input <-chan []byte, stop <-chan struct{}) {
	defer w.Close()
	for {
		select {
		case b := <-input:
			if len(b) == 0 {
				return
			}
			if _, err := w.Write(b); err != nil {
				<-stop // The program closed its input: drop the rest.
				return
			}
		case <-stop:
			return
		}
	}
}

// waitListen waits until some socket listens on a TCP port.
func waitListen(port uint16, stop <-chan struct{}, patience time.Duration) error {
	suffix := fmt.Sprintf(":%04X", port)
	for end := time.Now().Add(patience); ; {
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			f, err := os.Open(name)
			if err != nil {
				continue // A kernel without IPv6 has no tcp6.
			}
			found := false
			for sc := bufio.NewScanner(f); sc.Scan() && !found; {
				// Fields: slot, local address, remote address, state; state 0A is LISTEN.
				fields := strings.Fields(sc.Text())
				found = len(fields) > 3 && strings.HasSuffix(fields[1], suffix) && fields[3] == "0A"
			}
			f.Close()
			if found {
				return nil
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("nothing listens on TCP port %d after %v", port, patience)
		}
		select {
		case <-stop:
			return errors.New("ended before it started")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// sendFiles sends a file, or every regular file below a folder. What does not exist is no error: a
// program need not write what it may.
func (s *jobServer) sendFiles(id uint32, root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !d.Type().IsRegular() {
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := s.out.writeJSON(frameFile, id, fileHeader{Path: path, Mode: uint32(st.Mode().Perm())}); err != nil {
			return err
		}
		_, err = io.Copy(streamWriter{s.out, frameData, id}, f)
		return err
	})
}
