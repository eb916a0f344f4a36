// Package run lets the test of an example run the example itself, several times
// at once: the test binary is also the program.
package run

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

const program = "GOVERBS_EXAMPLE"

// Main is TestMain: it runs the tests, or the example in a process that Program
// started.
func Main(m *testing.M, main func()) {
	if os.Getenv(program) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Program is the example with arguments, to be started.
func Program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), program+"=1")
	return cmd
}

// NeedDevice skips the test on a machine without RDMA.
func NeedDevice(t *testing.T) {
	t.Helper()
	if _, err := uverbs.Devices(); errors.Is(err, uverbs.ErrNoDevices) {
		t.Skip("declared skip: no RDMA device here; run in the guest: rxevm exec")
	}
}

// Interrupt ends a program that was started, and fails the test unless it ends
// well.
func Interrupt(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%v ended with %v", cmd.Args[1:], err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("%v does not end", cmd.Args[1:])
	}
}
