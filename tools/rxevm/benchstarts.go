//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
//	rxevm bench starts TURNS DEVICE PROGRAM...
//
// It prints one start as JSON for each turn and program. The program that begins a turn alternates.

// A start is one program that was started and came to RTS.
type start struct {
	Program int   `json:"program"` // its index
	Exec    int64 `json:"exec_ns"` // from before fork
	Open    int64 `json:"open_ns"` // from before it asked for a device
}

// cmdStarts is rxevm bench starts. The programs are run to be looked at first: they must make the same.
func cmdStarts(args []string, out io.Writer) error {
	if len(args) < 3 {
		return exitError{exitUsage, errors.New("bench starts is for rxevm itself: TURNS DEVICE PROGRAM...")}
	}
	turns, err := strconv.Atoi(args[0])
	if err != nil || turns < 1 {
		return exitError{exitUsage, fmt.Errorf("bench starts: %q is no number of turns", args[0])}
	}
	device, programs := args[1], args[2:]
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
			s, err := startOnce(programs[k], device)
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

// startArgs are the arguments of both programs: of the device port 1, and the index of its IPv4 GID.
func startArgs(device string) []string { return []string{device, "1", "1"} }

// startOnce runs a program to its end.
func startOnce(program, device string) (start, error) {
	var out, errs strings.Builder
	cmd := exec.Command(program, startArgs(device)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	before, err := monotonic()
	if err == nil {
		err = cmd.Run()
	}
	if err != nil {
		return start{}, fmt.Errorf("%s: %w%s", program, err, indented(errs.String()))
	}
	return readStart(out.String(), before)
}

// readStart reads what a program prints; before is when it was started.
func readStart(line string, before int64) (start, error) {
	var open, ready int64
	if _, err := fmt.Sscanf(line, "%d %d\n", &open, &ready); err != nil || open < before || ready <= open {
		return start{}, fmt.Errorf("a program that was started at %d prints %q, not two later times", before, line)
	}
	return start{Exec: ready - before, Open: ready - open}, nil
}

// monotonic is the clock that the programs print.
func monotonic() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano(), err
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
