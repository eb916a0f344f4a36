//go:build linux

package kernel

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestEvents(t *testing.T) {
	r, w := packetPipe(t)
	left := leftOpen(t)
	e, err := newEvents(r)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if open := left(); len(open) != 0 {
		t.Errorf("taking over a descriptor opened %q", open)
	}
	var buf [16]byte
	if _, err := e.Read(buf[:]); err != syscall.EAGAIN {
		t.Errorf("Read of an empty channel: %v", err)
	}
	e.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := e.ReadWait(buf[:]); err != os.ErrDeadlineExceeded {
		t.Errorf("ReadWait past the deadline: %v", err)
	}
	e.SetReadDeadline(time.Time{})

	read := make(chan int)
	go func() {
		var buf [16]byte
		n, err := e.ReadWait(buf[:])
		if err != nil {
			t.Error(err)
		}
		read <- n
	}()
	time.Sleep(5 * time.Millisecond)
	unix.Write(w, []byte("12345678"))
	if n := <-read; n != 8 {
		t.Errorf("ReadWait read %d bytes", n)
	}
	unix.Write(w, []byte("12345678"))
	if n, err := e.Read(buf[:]); n != 8 || err != nil {
		t.Errorf("Read: %d, %v", n, err)
	}
	if flags, err := unix.FcntlInt(uintptr(e.FD()), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("FD %d is not close-on-exec (%v)", e.FD(), err)
	}
}

func TestEventsCloseWakesReader(t *testing.T) {
	r, _ := packetPipe(t)
	e, err := newEvents(r)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		var buf [8]byte
		if _, err := e.ReadWait(buf[:]); err != os.ErrClosed {
			t.Errorf("parked ReadWait after Close: %v", err)
		}
	})
	time.Sleep(5 * time.Millisecond)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	var buf [8]byte
	for what, call := range map[string]func() error{
		"Read":            func() error { _, err := e.Read(buf[:]); return err },
		"ReadWait":        func() error { _, err := e.ReadWait(buf[:]); return err },
		"SetReadDeadline": func() error { return e.SetReadDeadline(time.Time{}) },
		"Close":           e.Close,
	} {
		if err := call(); err != os.ErrClosed {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

// A completion channel's records are waited for without the Go runtime's poller,
// which would wake a thread of its own for each.
func TestEventsJoinTheRuntimesPollerLate(t *testing.T) {
	leftOpen(t) // the runtime's poller stands
	r, _ := packetPipe(t)
	e, err := newEvents(r)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var buf [8]byte
	if _, err := e.Read(buf[:]); err != syscall.EAGAIN {
		t.Fatal(err)
	}
	if polled(t, e.FD()) {
		t.Error("the runtime polls the descriptor though nobody parked")
	}
	if err := e.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.ReadWait(buf[:]); err != os.ErrDeadlineExceeded {
		t.Fatal(err)
	}
	if !polled(t, e.FD()) {
		t.Error("the runtime does not poll the descriptor though somebody parked")
	}
}

// polled says whether fd is in an epoll set of this process.
func polled(t *testing.T, fd int) bool {
	t.Helper()
	for _, d := range descriptors(t) {
		n, target, _ := strings.Cut(d, " ")
		if target != "anon_inode:[eventpoll]" {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + n)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(info)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "tfd:" && f[1] == strconv.Itoa(fd) {
				return true
			}
		}
	}
	return false
}

// A descriptor that the program forgot is closed by the garbage collector,
// whether or not somebody parked on it.
func TestForgottenEvents(t *testing.T) {
	left := leftOpen(t)
	for _, parked := range []bool{false, true} {
		func() {
			r, _ := packetPipe(t)
			e, err := newEvents(r)
			if err != nil {
				t.Fatal(err)
			}
			if parked {
				e.SetReadDeadline(time.Time{})
			}
		}()
	}
	// Of each pipe the write end stays.
	if !eventually(func() bool { runtime.GC(); return len(left()) == 2 }) {
		t.Errorf("left open: %q", left())
	}
}

func TestEventsRefusesPlainFile(t *testing.T) {
	left := leftOpen(t)
	fd, err := unix.Open(t.TempDir(), unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := openZero(t)
	if e, err := f.Events(fd); !errors.Is(err, ErrNotPollable) {
		t.Errorf("Events of a folder: %v, %v", e, err)
	}
	if err := f.CloseFD(fd); err != nil {
		t.Errorf("the caller lost a descriptor that Events refused: %v", err)
	}
	if _, err := f.Events(1 << 20); err != syscall.EBADF {
		t.Errorf("Events of no descriptor: %v", err)
	}
	f.Close()
	if open := left(); len(open) != 0 {
		t.Errorf("left open: %q", open)
	}
}
