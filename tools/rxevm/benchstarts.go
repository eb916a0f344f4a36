//go:build linux

package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/uverbs/nldev"
	"golang.org/x/sys/unix"
)

// In the guest, rxevm starts programs and measures how long they take to have a queue pair in RTS:
// from the host the serial port would be in the way.
//
//	rxevm bench starts TURNS DEVICE HUGEPAGES LAUNCHER PROGRAM...
//
// It prints one start as JSON for each turn and program. The program that begins a turn alternates.
// HUGEPAGES is what the kernel is to make of memory meanwhile, one of the words of thpEnabled.
//
// LAUNCHER reads the clock and becomes the program with its next two system calls. So a start begins
// with execve: what this process takes to make another one, which is a millisecond or two in an
// emulated guest, is no part of it. What they print goes to a file in memory, which wakes nobody up
// while they run.

// A start is one program that was started and came to RTS.
type start struct {
	Program int   `json:"program"` // its index
	Exec    int64 `json:"exec_ns"` // from before execve
	Open    int64 `json:"open_ns"` // from before it asked for a device
}

// cmdStarts is rxevm bench starts. The programs are run to be looked at first: they must make the same.
func cmdStarts(args []string, out io.Writer) error {
	if len(args) < 5 {
		return exitError{exitUsage, errors.New("bench starts is for rxevm itself: TURNS DEVICE HUGEPAGES LAUNCHER PROGRAM...")}
	}
	turns, err := strconv.Atoi(args[0])
	if err != nil || turns < 1 {
		return exitError{exitUsage, fmt.Errorf("bench starts: %q is no number of turns", args[0])}
	}
	device, launcher, programs := args[1], args[3], args[4:]
	restore, err := setHugePages(args[2])
	if err != nil {
		return err
	}
	return errors.Join(starts(turns, device, launcher, programs, out), restore())
}

// starts starts the programs by turns.
func starts(turns int, device, launcher string, programs []string, out io.Writer) error {
	first := ""
	for i, p := range programs {
		made, err := whatItMakes(p, device)
		switch {
		case err != nil:
			return err
		case i == 0:
			first = made
		case made != first:
			return fmt.Errorf("%s makes %s, and %s makes %s: they cannot be compared", p, made, programs[0], first)
		}
	}
	enc := json.NewEncoder(out)
	for turn := range turns {
		for i := range programs {
			k := (i + turn) % len(programs)
			s, err := startOnce(launcher, programs[k], device)
			if err != nil {
				return err
			}
			s.Program = k
			if err := enc.Encode(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// thpEnabled is the kernel's setting of transparent huge pages: always, madvise or never, of which
// the one in brackets holds. Without it a kernel makes none.
const thpEnabled = "/sys/kernel/mm/transparent_hugepage/enabled"

// setHugePages sets thpEnabled, and returns what sets it back.
func setHugePages(to string) (restore func() error, err error) {
	b, err := os.ReadFile(thpEnabled)
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	_, was, _ := strings.Cut(string(b), "[")
	was, _, found := strings.Cut(was, "]")
	if !found {
		return nil, fmt.Errorf("%s says %q", thpEnabled, b)
	}
	set := func(word string) error { return os.WriteFile(thpEnabled, []byte(word), 0) }
	return func() error { return set(was) }, set(to)
}

// startArgs are the arguments of both programs: of the device port 1, and the index of its IPv4 GID.
func startArgs(device string) []string { return []string{device, "1", "1"} }

// startOnce runs a program to its end.
func startOnce(launcher, program, device string) (start, error) {
	out, err := memoryFile("out")
	if err != nil {
		return start{}, err
	}
	defer out.Close()
	errs, err := memoryFile("err")
	if err != nil {
		return start{}, err
	}
	defer errs.Close()
	cmd := exec.Command(launcher, append([]string{program}, startArgs(device)...)...)
	cmd.Stdout, cmd.Stderr = out, errs
	err = cmd.Run()
	printed, err1 := whole(out)
	said, err2 := whole(errs)
	if err = errors.Join(err, err1, err2); err != nil {
		return start{}, fmt.Errorf("%s: %w%s", program, err, indented(string(said)))
	}
	return readStart(printed)
}

// memoryFile makes a file without a name in a file system.
func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// whole reads a file from its beginning.
func whole(f *os.File) ([]byte, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// readStart reads what the launcher and a program print.
func readStart(printed []byte) (start, error) {
	const clock = 8
	if len(printed) < clock {
		return start{}, fmt.Errorf("the launcher prints %q, not a time", printed)
	}
	begin := int64(binary.NativeEndian.Uint64(printed))
	line := string(printed[clock:])
	var open, ready int64
	if _, err := fmt.Sscanf(line, "%d %d\n", &open, &ready); err != nil || open < begin || ready <= open {
		return start{}, fmt.Errorf("a program that was started at %d prints %q, not two later times", begin, line)
	}
	return start{Exec: ready - begin, Open: ready - open}, nil
}

// startPatience is how long a program may take to get ready, on a busy machine under emulation.
const startPatience = time.Minute

// whatItMakes runs a program and describes what the kernel says that it has when it is ready.
func whatItMakes(program, device string) (string, error) {
	cmd := exec.Command(program, append(startArgs(device), "hold")...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	late := time.AfterFunc(startPatience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	made := ""
	if err == nil {
		made, err = objectsOn(device)
	} else {
		err = fmt.Errorf("%s does not get ready: it prints %q (%w)", program, line, err)
	}
	return made, errors.Join(err, in.Close(), cmd.Wait())
}

// objectsOn describes the objects that processes have on a device. One process uses it.
func objectsOn(device string) (string, error) {
	c, err := nldev.Dial()
	if err != nil {
		return "", err
	}
	defer c.Close()
	links, err := c.Links()
	if err != nil {
		return "", err
	}
	var all []string
	for _, l := range links {
		if l.Name != device {
			continue
		}
		mrs, err1 := c.MRs(l.Index)
		cqs, err2 := c.CQs(l.Index)
		qps, err3 := c.QPs(l.Index)
		if err := errors.Join(err1, err2, err3); err != nil {
			return "", err
		}
		for _, o := range mrs {
			if o.Kernel == "" {
				all = append(all, fmt.Sprintf("a region of %d bytes", o.Length))
			}
		}
		for _, o := range cqs {
			if o.Kernel == "" {
				all = append(all, fmt.Sprintf("a CQ of depth %d", o.Depth))
			}
		}
		for _, o := range qps {
			if o.Kernel == "" {
				all = append(all, fmt.Sprintf("a QP, %v in %v, connected to itself: %v", o.Type, o.State, o.Remote == o.Num))
			}
		}
	}
	return strings.Join(all, ", "), nil
}
