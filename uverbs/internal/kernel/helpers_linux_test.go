//go:build linux

package kernel

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// headerOf makes an ioctl request of n bytes whose header says so.
func headerOf(n int) []byte {
	b := make([]byte, n)
	binary.NativeEndian.PutUint16(b, uint16(n))
	return b
}

// packetPipe makes a pipe that keeps records apart, as event files do. The
// write end is closed at the end of the test.
func packetPipe(t *testing.T) (r, w int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_DIRECT); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[1]) })
	return p[0], p[1]
}

// leftOpen notes the open descriptors. The function that it returns names those
// opened since then: a count would also move when an earlier test's descriptor
// closes late.
func leftOpen(t *testing.T) func() []string {
	t.Helper()
	// The runtime opens two of its own for the first file that it polls.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	before := descriptors(t)
	return func() []string {
		return slices.DeleteFunc(descriptors(t), func(d string) bool { return slices.Contains(before, d) })
	}
}

// descriptors lists the open descriptors, each with what it is open on.
func descriptors(t *testing.T) []string {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, n := range names {
		// That of the reading itself is closed by now.
		if target, err := os.Readlink("/proc/self/fd/" + n.Name()); err == nil {
			open = append(open, n.Name()+" "+target)
		}
	}
	return open
}

// mappedFiles counts the mappings of path in this process.
func mappedFiles(t *testing.T, path string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), path)
}

// eventually waits for cond, which a finalizing goroutine brings about.
func eventually(cond func() bool) bool {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if cond() {
			return true
		}
	}
	return false
}
