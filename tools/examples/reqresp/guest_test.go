package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// The test binary is also the program, so that the test can run several.
func TestMain(m *testing.M) {
	if os.Getenv("GOVERBS_EXAMPLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "GOVERBS_EXAMPLE=1")
	return cmd
}

func TestGuestRequestResponse(t *testing.T) {
	if _, err := uverbs.Devices(); errors.Is(err, uverbs.ErrNoDevices) {
		t.Skip("declared skip: no RDMA device here; run in the guest: rxevm exec")
	}
	const addr = "127.0.0.1:7471"
	server := program("-listen", addr)
	var out bytes.Buffer
	server.Stdout, server.Stderr = &out, &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Process.Kill()
	for round := range 2 {
		var text []byte
		var err error
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			text, err = program("-connect", addr, "-n", "200").CombinedOutput()
			if !strings.Contains(string(text), "connection refused") {
				break // the server listens
			}
		}
		if err != nil || !strings.Contains(string(text), "200 requests answered") {
			t.Fatalf("round %d: %v:\n%s\nserver:\n%s", round, err, text, &out)
		}
	}
	// An interrupt ends the server in good order.
	if err := server.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the server ended with %v:\n%s", err, &out)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the server does not end")
	}
	if n := strings.Count(out.String(), "sent 200 requests"); n != 2 {
		t.Errorf("the server says:\n%s", &out)
	}
}
