//go:build amd64 || arm64

package simproc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The processes of this executable between the server and a program: a keeper, which
// kills what is left when the program or the server ends, and the one that becomes the
// program. Argument zero says which it is.
const (
	keeperName  = "goverbs-simproc-keeper"
	programName = "goverbs-simproc-program"
)

// Descriptors of both: a socket to the server, and the job.
const (
	socketFD = 3
	jobFD    = 4
)

// job is what they are told.
type job struct {
	Path    string
	Args    []string
	NoMount bool
	UserNS  bool
	Tree    []entry
	Devices int
}

// Messages to the server are a letter and a text.
const (
	sayTree     = 'T' // the folder of the tree, in the form without mounts
	sayListener = 'L' // the program's number, with the listener
	sayFailed   = 'F' // what went wrong
	sayEnd      = 'E' // how the program ended
)

func init() {
	// Without os.Exit, which has a race detector wait for what is not there.
	switch os.Args[0] {
	case keeperName:
		unix.Exit(keep())
	case programName:
		if err := become(); err != nil {
			say(sayFailed, err.Error())
		}
		unix.Exit(127)
	}
}

// say sends a message to the server.
func say(kind byte, text string) {
	// With nobody there to hear it the keeper is about to learn so.
	_ = unix.Sendto(socketFD, append([]byte{kind}, text...), unix.MSG_NOSIGNAL, nil)
}

// readJob reads the job, which may be read again.
func readJob() (*job, error) {
	f := os.NewFile(jobFD, "job")
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, st.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, err
	}
	j := new(job)
	return j, json.Unmarshal(b, j)
}

// file is the job as a file.
func (j *job) file() (*os.File, error) {
	b, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("goverbs-simproc-job", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "job")
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// become becomes the program. It runs on the process's first thread, which init functions do.
func become() error {
	unix.CloseOnExec(socketFD)
	unix.CloseOnExec(jobFD)
	j, err := readJob()
	if err != nil {
		return err
	}
	var calls []int
	if j.NoMount {
		for nr := range pathCalls {
			calls = append(calls, nr)
		}
	} else if err := mount(j); err != nil {
		return fmt.Errorf("%w%s", err, spaceHint(err))
	}
	// What the user namespace gave is for the mounts.
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && err != unix.EINVAL {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// From here to exec the thread makes no call that the filter hands over.
	env := os.Environ()
	fd, err := install(filter(calls))
	if err != nil {
		return fmt.Errorf("installing the seccomp filter: %w%s", err, installHint(err))
	}
	text := append([]byte{sayListener}, fmt.Sprint(os.Getpid())...)
	if err := unix.Sendmsg(socketFD, text, unix.UnixRights(fd), nil, 0); err != nil {
		return err
	}
	unix.Close(fd)
	if err := unix.Exec(j.Path, j.Args, env); err != nil {
		return fmt.Errorf("%s: %w%s", j.Path, err, execHint(err))
	}
	return nil
}

func installHint(err error) string {
	if err == unix.EBUSY {
		return " (this process is already under a filter with a listener, and there can be only one)"
	}
	return ""
}

func execHint(err error) string {
	if errors.Is(err, unix.ENOEXEC) {
		return " (a script without #! needs a shell before it)"
	}
	return ""
}
