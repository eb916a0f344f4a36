package uverbs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// childEnv is set for the children of TestGuestChildren.
const childEnv = "GOVERBS_TEST_CHILD"

// Children that a program starts during traffic do no harm to it, neither as
// os/exec starts them, without a copy of the address space, nor with one, as it
// does for user namespaces and as C code does; not to memory from Alloc, in pages of
// any size, nor to memory of the Go heap. They get no descriptor of ours.
func TestGuestChildren(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		for fd, name := range descriptors() {
			fmt.Printf("%d %s\n", fd, name)
		}
		return
	}
	own := descriptors()
	kinds := []string{"Alloc memory", "huge pages", "heap memory"}
	if simulated() {
		kinds = []string{"Alloc memory", "heap memory"} // it sets no pages of the host aside
	}
	for _, start := range []struct {
		name string
		attr *syscall.SysProcAttr
	}{
		{"exec", nil},
		{"fork", &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}},
	} {
		for _, kind := range kinds {
			t.Run(start.name+" beside "+kind, func(t *testing.T) {
				if start.attr != nil && simulated() {
					t.Skip("declared skip: the device is in software, not soft-RoCE: no kernel has pinned pages that a fork could copy")
				}
				p := newPair(t, true)
				// A waiter of this kind has descriptors of its own.
				w, err := poll.NewWaiter(poll.Event{Thread: !simulated()}, p.q)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				b, mr := p.memoryOf(t, kind)
				defer mr.Close()
				rounds := guestRounds(t, 3)
				moved, stop, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					for range rounds {
						// Each child has bytes moved before it
						// and after it.
						for range 2 {
							select {
							case <-moved:
							case <-stop:
								return
							}
						}
						p.child(t, start.attr, own)
					}
				}()
				defer func() {
					close(stop)
					<-done
				}()
				for n := 0; ; n++ {
					p.move(t, b, mr, n)
					select {
					case <-done:
						t.Logf("%d transfers beside %d children", n, rounds)
						return
					case moved <- struct{}{}:
					default:
					}
				}
			})
		}
	}
}

// memoryOf is a megabyte of memory of a kind, and a region of it.
func (p *pair) memoryOf(t *testing.T, kind string) ([]byte, *uverbs.MR) {
	t.Helper()
	b := make([]byte, 1<<20)
	switch kind {
	case "Alloc memory":
		b = p.mem.Bytes()
	case "huge pages":
		// One only, so that a kernel from 5.12 on that had to copy it for
		// a child would find no other.
		awaitHugePages(t, 0, 1)
		t.Cleanup(func() { setHugePages(t, 0, 0) })
		mem, err := uverbs.Alloc(1<<20, &uverbs.MemoryOptions{HugePages: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := mem.Close(); err != nil {
				t.Error(err)
			}
		})
		b = mem.Bytes()
	}
	mr, err := p.pd.Register(b, allAccess)
	if err != nil {
		t.Fatal(err)
	}
	return b, mr
}

// move writes bytes from one place of memory to another by the device, and
// looks whether they arrived. Both places are written to by the program before:
// a page that a fork had made the child's would differ from the device's.
func (p *pair) move(t *testing.T, b []byte, mr *uverbs.MR, n int) {
	t.Helper()
	const size, from, to = 3*4096 + 17, 8192 + 5, 512<<10 + 9
	want := bytes.Repeat([]byte{byte(n), byte(n >> 8), 0x5a}, size/3+1)[:size]
	copy(b[from:], want)
	for i := range size {
		b[to+i] = ^want[i]
	}
	p.a.SendQueue().Write(1, mr.Remote().At(to), mr.Span(from, size))
	if w := p.flush(t, p.a, 1)[0]; w.Err() != nil {
		t.Fatal(w.Err())
	}
	if !bytes.Equal(b[to:to+size], want) {
		t.Fatalf("transfer %d: other bytes arrived", n)
	}
}

// child starts a child and looks at the descriptors that it has, besides those
// that were open before the device was.
func (p *pair) child(t *testing.T, attr *syscall.SysProcAttr, own map[int]string) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestGuestChildren$")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("PASS")) {
		t.Errorf("the child: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		var fd int
		var name string
		if n, _ := fmt.Sscan(line, &fd, &name); n == 2 && own[fd] != name {
			t.Errorf("the child has descriptor %d, %s", fd, name)
		}
	}
}

// descriptors lists the open descriptors but for the standard ones, without
// opening any.
func descriptors() map[int]string {
	all := make(map[int]string)
	for fd := 3; fd < 1024; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			continue
		}
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			name = err.Error()
		}
		all[fd] = name
	}
	return all
}
