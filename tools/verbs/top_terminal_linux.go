package main

import (
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/tools/internal/tty"
)

// terminalScreen shows looks on a terminal, on a screen of its own: what was
// there before is back in the end.
type terminalScreen struct {
	out  screenFile
	in   int // a descriptor that is a terminal, or -1
	was  *unix.Termios
	wake [2]int // a pipe that ends the reader of keys

	changed chan struct{}
	leave   chan struct{}
	left    sync.Once // closes leave
	signals chan os.Signal
	done    sync.WaitGroup
}

// A screenFile is an *os.File that is a terminal, or what stands for one.
type screenFile interface {
	io.Writer
	Fd() uintptr
}

// openTopScreen takes the terminal that stdout is. It returns nil where stdout is
// none, or one that cannot move its cursor.
func openTopScreen(stdout io.Writer) (topScreen, error) {
	term := os.Getenv("TERM")
	if !tty.Is(stdout) || term == "" || term == "dumb" {
		return nil, nil
	}
	return newTerminalScreen(stdout.(screenFile), os.Stdin)
}

func newTerminalScreen(out screenFile, in *os.File) (*terminalScreen, error) {
	s := &terminalScreen{out: out, in: -1, changed: make(chan struct{}, 1), leave: make(chan struct{}), signals: make(chan os.Signal, 1)}
	if was, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS); err == nil {
		if err := unix.Pipe2(s.wake[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			return nil, os.NewSyscallError("pipe2", err)
		}
		s.in, s.was = int(in.Fd()), was
		now := *was
		// Keys come at once and are not shown. Ctrl-C stays a signal; Ctrl-Z
		// and Ctrl-\ would leave the terminal as it is now.
		now.Lflag &^= unix.ICANON | unix.ECHO
		now.Cc[unix.VSUSP], now.Cc[unix.VQUIT] = 0, 0
		now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
		if err := unix.IoctlSetTermios(s.in, unix.TCSETS, &now); err != nil {
			unix.Close(s.wake[0])
			unix.Close(s.wake[1])
			return nil, os.NewSyscallError("tcsetattr", err)
		}
		s.done.Go(s.readKeys)
	}
	signal.Notify(s.signals, syscall.SIGWINCH, syscall.SIGHUP)
	s.done.Go(func() {
		for sig := range s.signals {
			if sig == syscall.SIGHUP {
				s.end()
				continue
			}
			select {
			case s.changed <- struct{}{}:
			default: // one is on its way
			}
		}
	})
	// Another screen, without cursor.
	if _, err := io.WriteString(out, "\x1b[?1049h\x1b[?25l"); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// end lets whoever watches leave.
func (s *terminalScreen) end() { s.left.Do(func() { close(s.leave) }) }

// readKeys waits for the one key that there is.
func (s *terminalScreen) readKeys() {
	for {
		fds := []unix.PollFd{{Fd: int32(s.in), Events: unix.POLLIN}, {Fd: int32(s.wake[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return
		}
		if fds[1].Revents != 0 {
			return
		}
		if fds[0].Revents == 0 {
			continue
		}
		var b [64]byte
		n, err := unix.Read(s.in, b[:])
		if n > 0 && strings.ContainsAny(string(b[:n]), "qQ") || n == 0 && err == nil {
			s.end() // a terminal that is gone ends it too
			return
		}
		if err != nil && err != unix.EINTR && err != unix.EAGAIN {
			return
		}
	}
}

func (s *terminalScreen) size() (width, height int) {
	w, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 80, 24
	}
	return int(w.Col), int(w.Row)
}

func (s *terminalScreen) show(lines []string) error {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err := io.WriteString(s.out, b.String())
	return err
}

func (s *terminalScreen) resized() <-chan struct{} { return s.changed }

func (s *terminalScreen) quit() <-chan struct{} { return s.leave }

func (s *terminalScreen) close() {
	signal.Stop(s.signals)
	close(s.signals)
	io.WriteString(s.out, "\x1b[?25h\x1b[?1049l")
	if s.in >= 0 {
		unix.Write(s.wake[1], []byte{0})
	}
	s.done.Wait()
	if s.in >= 0 {
		unix.IoctlSetTermios(s.in, unix.TCSETS, s.was)
		unix.Close(s.wake[0])
		unix.Close(s.wake[1])
	}
}
