//go:build amd64 || arm64

package simproc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// serve answers the system calls of a program and its children until none of them is
// left, or stop, an eventfd, is written to.
func (c *Cmd) serve(listener, stop int) {
	var running sync.WaitGroup
	defer running.Wait()
	p := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}, {Fd: int32(stop), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(p, -1); err != nil && err != unix.EINTR {
			return
		}
		switch {
		case p[1].Revents != 0:
			return
		case p[0].Revents&unix.POLLIN == 0:
			if p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
				return
			}
			continue
		}
		from := &caller{listener: listener, denied: &c.s.denied}
		if err := receive(listener, &from.notification); err != nil {
			continue // a process that was killed meanwhile, of which poll told
		}
		c.s.calls.Add(1)
		// Requests may be slow, and those of others go on.
		running.Go(func() {
			v := c.judge(from)
			r := response{ID: from.ID, Val: v.val, Error: -v.errno}
			if v.goOn {
				r.Flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
			}
			_ = answer(listener, &r) // it may have been killed
		})
	}
}

// judge answers one system call.
func (c *Cmd) judge(from *caller) verdict {
	if from.Nr == unix.SYS_IOCTL {
		return c.s.ioctl(from)
	}
	if p, ok := pathCalls[int(from.Nr)]; ok {
		return c.named(from, p)
	}
	return goOn
}

// ioctl answers the ioctl of RDMA. It is the kernel's if the file is none of ours.
func (s *Server) ioctl(from *caller) verdict {
	x, err := s.contextOf(from)
	switch {
	case err != nil:
		return failed(err)
	case x == nil:
		return goOn
	}
	if unix.Access(fmt.Sprintf("/proc/%d/task/%d", x.pid, from.PID), unix.F_OK) != nil {
		return failed(unix.EIO) // another process's memory is not the device's
	}
	if !valid(from.listener, from.ID) {
		return failed(unix.EINTR) // nobody is told
	}
	err = x.ioctl(from)
	// Whatever it did, doorbells are likely to follow.
	s.wake()
	return failed(err)
}

// find finds the open device that a file stands in for.
func (s *Server) find(st *unix.Stat_t) *context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.contexts[st.Ino]; x != nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == fileSize {
		return x
	}
	return nil
}

// contextOf finds the open device that a call is about. In the form with mounts it
// opens it with the first one: until then the process has the file that is mounted there.
func (s *Server) contextOf(from *caller) (*context, error) {
	fd := int(int32(from.Args[0]))
	file := fmt.Sprintf("/proc/%d/fd/%d", from.PID, fd)
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		if err == unix.ENOENT {
			return nil, unix.EBADF
		}
		s.denied.Store(true)
		return nil, err
	}
	if x := s.find(&st); x != nil {
		return x, nil
	}
	if s.noMount || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != standIn() {
		return nil, nil
	}
	s.opening.Lock() // of two first calls only one opens
	defer s.opening.Unlock()
	if err := unix.Stat(file, &st); err != nil {
		return nil, unix.EBADF
	}
	if x := s.find(&st); x != nil {
		return x, nil
	}
	name, err := os.Readlink(file)
	if err != nil {
		return nil, err
	}
	n := s.deviceAt(name)
	if n < 0 {
		return nil, nil
	}
	x, theirs, err := s.openFor(from, n)
	if err != nil {
		return nil, err
	}
	defer unix.Close(theirs)
	if _, err := from.give(theirs, fd); err != nil {
		return nil, err // the device is closed with theirs
	}
	return x, nil
}

// standIn is the number of /dev/zero, which is mounted where device files are: libibverbs
// insists on a file of characters.
func standIn() uint64 { return unix.Mkdev(1, 5) }

// openFor opens the n-th device for the process of a call.
func (s *Server) openFor(from *caller, n int) (*context, int, error) {
	pid, err := processOf(from.PID)
	if err != nil {
		return nil, -1, err
	}
	x, theirs, err := s.newContext(n, pid)
	if err != nil {
		return nil, -1, err
	}
	s.add(x)
	return x, theirs, nil
}

// processOf is the process of a thread.
func processOf(tid uint32) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte("Tgid:")); ok {
			return strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	return 0, unix.ESRCH
}
