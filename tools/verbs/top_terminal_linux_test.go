package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal makes a pair of a terminal and what a terminal program holds of it.
func terminal(t *testing.T) (outside, inside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("declared skip: no terminals here: %v", err)
	}
	t.Cleanup(func() { outside.Close() })
	if err := unix.IoctlSetPointerInt(int(outside.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(outside.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("declared skip: no terminals here: %v", err)
	}
	t.Cleanup(func() { inside.Close() })
	return outside, inside
}

// A shown is what was shown on a terminal so far.
type shown struct {
	outside *os.File
	text    string
}

// until reads until a text has come.
func (s *shown) until(t *testing.T, text string) {
	t.Helper()
	found := make(chan string, 1)
	go func(all string) {
		b := make([]byte, 4096)
		for !strings.Contains(all, text) {
			n, err := s.outside.Read(b)
			all += string(b[:n])
			if err != nil {
				break
			}
		}
		found <- all
	}(s.text)
	if s.text = waitFor(t, found); !strings.Contains(s.text, text) {
		t.Fatalf("%q has not come: %q", text, s.text)
	}
}

// The terminal fits, hears q, and is afterwards what it was.
func TestTopTerminal(t *testing.T) {
	for _, way := range []string{"q", "Ctrl-C", "count", "hangup"} {
		outside, inside := terminal(t)
		before, err := unix.IoctlGetTermios(int(inside.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.IoctlSetWinsize(int(outside.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 12, Col: 60}); err != nil {
			t.Fatal(err)
		}
		p := newTopFakePlace()
		p.screen = func(w io.Writer) (topScreen, error) { return newTerminalScreen(w.(*os.File), inside) }
		ctx, cancel := context.WithCancel(t.Context())
		code := make(chan int, 1)
		args := []string{"-i", "0.1"}
		if way == "count" {
			args = append(args, "-n", "2")
		}
		go func() { code <- p.run(ctx, args, inside, io.Discard) }()
		s := shown{outside: outside}
		s.until(t, "rates over")
		if !strings.HasPrefix(s.text, "\x1b[?1049h\x1b[?25l\x1b[H") {
			t.Errorf("%q", s.text)
		}
		const end = "\x1b[?25h\x1b[?1049l"
		frames, _, _ := strings.Cut(s.text, end) // after a count it may have come to its end by now
		for _, frame := range strings.Split(strings.TrimPrefix(frames, "\x1b[?1049h\x1b[?25l\x1b[H"), "\x1b[J") {
			lines := strings.Split(strings.TrimPrefix(frame, "\x1b[H"), "\r\n")
			if len(lines) > 12 {
				t.Errorf("%d lines on a terminal of 12", len(lines))
			}
			for _, l := range lines {
				// The terminal has put a return of its own before each end of a line.
				l = strings.TrimSuffix(strings.TrimRight(l, "\r"), "\x1b[K")
				if len(l) > 59 || strings.Contains(l, "\x1b") {
					t.Errorf("%d characters: %q", len(l), l)
				}
			}
		}
		if now, err := unix.IoctlGetTermios(int(inside.Fd()), unix.TCGETS); way != "count" && (err != nil || now.Cc[unix.VQUIT] != 0 || now.Cc[unix.VSUSP] != 0 || now.Cc[unix.VINTR] == 0) {
			t.Errorf("keys that end or stop it: %+v, %v", now, err)
		}
		switch way {
		case "q":
			outside.WriteString("xq")
		case "Ctrl-C":
			cancel()
		case "hangup":
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
		s.until(t, end)
		if c := waitFor(t, code); c != 0 {
			t.Errorf("%s: status %d", way, c)
		}
		cancel()
		after, err := unix.IoctlGetTermios(int(inside.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		if *before != *after {
			t.Errorf("%s: the terminal was %+v and is %+v", way, before, after)
		}
	}
}

// A resize shows the look anew, in the new size.
func TestTopTerminalResized(t *testing.T) {
	outside, inside := terminal(t)
	unix.IoctlSetWinsize(int(outside.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 12, Col: 60})
	s, err := newTerminalScreen(inside, inside)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	unix.IoctlSetWinsize(int(outside.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 90})
	// The terminal is not this process's own, so the kernel tells somebody
	// else.
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.resized():
	case <-time.After(topPatience):
		t.Fatal("nobody hears of the resize")
	}
	if w, h := s.size(); w != 90 || h != 30 {
		t.Errorf("%dx%d", w, h)
	}
	// A size that is none gets the old standard.
	unix.IoctlSetWinsize(int(outside.Fd()), unix.TIOCSWINSZ, &unix.Winsize{})
	if w, h := s.size(); w != 80 || h != 24 {
		t.Errorf("%dx%d", w, h)
	}
}

// What is no terminal, or one that cannot move its cursor, gets text.
func TestTopNoTerminal(t *testing.T) {
	_, inside := terminal(t)
	t.Setenv("TERM", "dumb")
	if s, err := openTopScreen(inside); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
	t.Setenv("TERM", "xterm")
	if s, err := openTopScreen(io.Discard); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
}
