//go:build linux

package kernel

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// settle waits for cond longer than any machine is busy.
func settle(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 2 minutes", what)
		}
	}
}

// watching counts the goroutines that watch a device.
func watching() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "kernel.(*watch).run(")
}

// attribute is a file that can be watched, of a device that stays.
func attribute(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dev")
	if err := os.WriteFile(path, []byte("231:192\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A watch that ends takes its goroutine and its descriptors with it, with and without
// uevents, whether it was run or not, however often it is ended.
func TestWatchLeavesNothing(t *testing.T) {
	path := attribute(t)
	for _, blocked := range []bool{false, true} {
		NoUevents.Store(blocked)
		defer NoUevents.Store(false)
		left := leftOpen(t)
		var all []*watch
		const running = 5
		for i := range running + 2 {
			w, err := watchAttr(path, func() { t.Error("a device that is there is said to be gone") })
			if err != nil {
				t.Fatal(err)
			}
			if i < running {
				go w.run()
			}
			all = append(all, w)
		}
		settle(t, "the watches", func() bool { return watching() == running })
		if n := len(left()); n < len(all) {
			t.Errorf("%d descriptors watch %d times", n, len(all))
		}
		for _, w := range all {
			w.stop()
			w.stop()
		}
		all[running].run() // comes late, and returns
		settle(t, "the end of the goroutines", func() bool { return watching() == 0 })
		if open := left(); len(open) > 0 {
			t.Errorf("uevents blocked %v: left open: %v", blocked, open)
		}
	}
}

// A watch that lacks descriptors on the way fails, and holds none.
func TestWatchFailsHalfWay(t *testing.T) {
	path := attribute(t)
	for _, blocked := range []bool{false, true} {
		NoUevents.Store(blocked)
		defer NoUevents.Store(false)
		left := leftOpen(t)
		failures := 0
		for room := 0; ; room++ {
			w, err := withRoom(t, room, func() (*watch, error) { return watchAttr(path, func() {}) })
			if open := left(); err != nil && len(open) > 0 {
				t.Errorf("room for %d: left open: %v", room, open)
			}
			if err == nil {
				w.stop()
				break
			}
			if err != unix.EMFILE {
				t.Fatalf("room for %d: %v, want %v", room, err, unix.EMFILE)
			}
			failures++
		}
		if failures < 2 { // the attribute, and what tells
			t.Errorf("it failed at %d places", failures)
		}
		settle(t, "the end of the goroutines", func() bool { return watching() == 0 })
		if open := left(); len(open) > 0 {
			t.Errorf("left open: %v", open)
		}
	}
}

// withRoom calls f where no more than n descriptors can be opened.
func withRoom(t *testing.T, n int, f func() (*watch, error)) (*watch, error) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		t.Fatal(err)
	}
	// Of the numbers that are free below the limit all but n are taken.
	fill, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	taken := []int{fill}
	defer func() {
		for _, fd := range taken {
			unix.Close(fd)
		}
	}()
	limit := old
	limit.Cur = uint64(fill + 16)
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	defer unix.Prlimit(0, unix.RLIMIT_NOFILE, &old, nil)
	for {
		fd, err := unix.Dup(fill)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	for range n {
		unix.Close(taken[len(taken)-1])
		taken = taken[:len(taken)-1]
	}
	return f()
}

// Watches look after removals, not after other events, and from time to time without
// any. What they look at is a pipe here, of which each look takes a record.
func TestWatchLooks(t *testing.T) {
	looks, looked := packetPipe(t)
	told, tell := packetPipe(t)
	if err := unix.SetNonblock(looks, true); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if _, err := unix.Write(looked, []byte("231:192\n")); err != nil {
			t.Fatal(err)
		}
	}
	pending := func() int {
		n, err := unix.IoctlGetInt(looked, unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		return n / len("231:192\n")
	}
	e, err := newEvents(told)
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{attr: looks, e: e, gone: func() { t.Error("it is said to be gone") }, ended: make(chan struct{})}
	go w.run()
	settle(t, "looks while nothing is told", func() bool { return pending() <= 6 })
	for _, event := range []string{"add@/devices/virtual/infiniband/rxe0", "remove@/devices/virtual/infiniband/rxe0"} {
		if _, err := unix.Write(tell, []byte(event)); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, "more looks", func() bool { return pending() <= 5 })
	w.stop()
	if err := unix.Close(looks); err != unix.EBADF {
		t.Errorf("the attribute is open: %v", err)
	}
}
