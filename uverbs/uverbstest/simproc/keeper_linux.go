//go:build amd64 || arm64

package simproc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// keep is the keeper of a program: it starts it, and when it or the server ends, it
// kills all that is left. All descendants that lose their parent become its children.
func keep() int {
	runtime.LockOSThread() // a program is to die with this thread
	unix.CloseOnExec(socketFD)
	unix.CloseOnExec(jobFD)
	// The terminal's signals are for the program. Caught ones, unlike ignored ones, are as
	// ever in a child.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGUSR1, unix.SIGUSR2)
	folder := ""
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	var j *job
	if err == nil {
		j, err = readJob()
	}
	if err == nil && j.NoMount {
		folder, err = makeTree(j)
	}
	if folder != "" {
		defer os.RemoveAll(folder)
	}
	var child int
	if err == nil {
		child, err = startProgram(j)
	}
	if err != nil {
		say(sayFailed, err.Error())
		return 1
	}
	var mu sync.Mutex // held to end or to kill the program, whose number may then be another's
	over := false
	go func() {
		// Nothing is sent here: it returns when the server is gone.
		var b [1]byte
		for {
			if _, _, err := unix.Recvfrom(socketFD, b[:], 0); err != unix.EINTR {
				break
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if !over {
			_ = unix.Kill(child, unix.SIGKILL)
		}
	}()
	for unix.Waitid(unix.P_PID, child, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	mu.Lock()
	over = true
	var ws unix.WaitStatus
	_, err = unix.Wait4(child, &ws, 0, nil)
	mu.Unlock()
	killChildren()
	if err != nil {
		say(sayFailed, "waiting for the program: "+err.Error())
		return 1
	}
	say(sayEnd, strconv.Itoa(int(ws)))
	return 0
}

// makeTree writes /sys for a program.
func makeTree(j *job) (string, error) {
	folder, err := os.MkdirTemp("", "goverbs-simproc-")
	if err != nil {
		return "", err
	}
	say(sayTree, folder)
	return folder, write(j.Tree, folder)
}

// startProgram starts the process that becomes the program.
func startProgram(j *job) (int, error) {
	sys := &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if !j.NoMount {
		sys.Cloneflags = unix.CLONE_NEWNS
	}
	if j.UserNS {
		sys.Cloneflags |= unix.CLONE_NEWUSER
		// The program is who it was. Without being root it has the right to mount only if it
		// is kept over exec.
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	pid, err := syscall.ForkExec("/proc/self/exe", append([]string{programName}, j.Args[1:]...), &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2, socketFD, jobFD}, Sys: sys,
	})
	if err != nil {
		return 0, fmt.Errorf("starting a process in %s: %w%s", spaces(sys.Cloneflags), err, spaceHint(err))
	}
	return pid, nil
}

func spaces(flags uintptr) string {
	switch {
	case flags&unix.CLONE_NEWUSER != 0:
		return "a user and a mount namespace"
	case flags != 0:
		return "a mount namespace"
	}
	return "the same namespaces"
}

func spaceHint(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return " (this user or container may not make namespaces and mounts; kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns may say so; the form without mounts needs none)"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return " (no more namespaces may be made: user.max_user_namespaces, user.max_mnt_namespaces; the form without mounts needs none)"
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return " (the kernel has no user namespaces; the form without mounts needs none)"
	}
	return ""
}

// killChildren kills all descendants: those whose parents die become children.
func killChildren() {
	for {
		lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is right
		options := unix.WNOHANG
		for _, l := range lists {
			b, _ := os.ReadFile(l) // a thread that ended has none
			for _, f := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil {
					_ = unix.Kill(pid, unix.SIGKILL)
					options = 0 // it ends
				}
			}
		}
		if pid, err := unix.Wait4(-1, nil, options, nil); err == unix.ECHILD || pid == 0 {
			return
		}
	}
}
