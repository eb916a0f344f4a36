package run

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Served starts the example as a server on a TCP address, runs it twice as a
// client with -n requests, expects what each client says, and interrupts the
// server. It returns what the server said.
func Served(t *testing.T, addr, n, want string) string {
	t.Helper()
	NeedDevice(t)
	server := Program("-listen", addr)
	var out bytes.Buffer
	server.Stdout, server.Stderr = &out, &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Process.Kill()
	for round := range 2 {
		var text []byte
		var err error
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			text, err = Program("-connect", addr, "-n", n).CombinedOutput()
			if !strings.Contains(string(text), "connection refused") {
				break // the server listens
			}
		}
		if err != nil || !strings.Contains(string(text), want) {
			t.Fatalf("client %d: %v:\n%s", round, err, text)
		}
	}
	Interrupt(t, server)
	return out.String()
}
