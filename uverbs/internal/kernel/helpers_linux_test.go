//go:build linux

package kernel

import (
	"encoding/binary"
	"os"
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

// descriptors counts the open descriptors of the test.
func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
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
	for range 200 {
		if cond() {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}
