//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// attachTerminal gives cmd a new pseudo terminal as its controlling terminal, in the guest. The
// function that it returns is to be called once the program runs: it closes our end of the
// program's side and returns when the program's output has ended.
func attachTerminal(cmd *exec.Cmd, size termSize, input <-chan []byte) (func(), error) {
	// The terminal's own output path is the job's standard output; a terminal has no second one.
	out := cmd.Stdout
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	}
	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, fmt.Errorf("pseudo terminal: %w", err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setctty = true
	return func() {
		slave.Close()
		done := make(chan struct{})
		go feed(nopCloser{master}, input, done)
		_, _ = io.Copy(out, master) // Ends with EIO when the last program has closed the terminal.
		close(done)
		master.Close()
	}, nil
}

// A nopCloser keeps the terminal open when the host's input ends: its user said good-bye by the
// terminal's own means.
type nopCloser struct{ io.Writer }

// Close does nothing.
func (nopCloser) Close() error { return nil }

// rawTerminal switches the host's terminal to raw mode, so that the guest's does the editing, and
// returns its size and the way back.
func rawTerminal(fd int) (termSize, func(), error) {
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return termSize{}, nil, err
	}
	raw := *old
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return termSize{}, nil, err
	}
	size := termSize{Rows: 24, Cols: 80}
	if ws, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil && ws.Row > 0 {
		size = termSize{ws.Row, ws.Col}
	}
	return size, func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, old) }, nil
}
