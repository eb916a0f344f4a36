package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/internal/source"
	"golang.org/x/sys/unix"
)

const (
	// heapStep is how much memory the runtime maps at least when the heap grows.
	heapStep = 4 << 20
	// heapBelow is an address below every heap, and above a static program's own variables.
	heapBelow = 4 << 30
)

// The heap of a released binary is in small pages, whatever the kernel's setting is.
func TestSmallPages(t *testing.T) {
	if !slices.Contains(architectures, runtime.GOARCH) {
		t.Skip("declared skip: there is no release for ", runtime.GOARCH)
	}
	own, err := unix.Mmap(-1, 0, heapStep, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(own)
	if err := unix.Madvise(own, unix.MADV_NOHUGEPAGE); err != nil {
		t.Skip("declared skip: a kernel without transparent huge pages: ", err)
	}
	if small, _ := largeMappings(t, os.Getpid()); small == 0 {
		t.Skip("declared skip: the kernel does not tell in smaps which memory has no huge pages")
	}

	root, err := source.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	settings, err := userSettings(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	b := builder{root: root, temp: t.TempDir(), settings: settings}
	a, err := b.build(t.Context(), runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), a.name)
	if err := os.WriteFile(program, a.binary, 0o755); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(program, "decode")
	cmd.Env = []string{"GODEBUG="} // with the link alone
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	// More than the pipe holds: when it is written, the program reads, and goes on reading.
	if _, err := io.WriteString(in, strings.Repeat("nothing\n", 1<<17)); err != nil {
		t.Error(err)
	}
	small, other := largeMappings(t, cmd.Process.Pid)
	if small == 0 || other > 0 {
		t.Errorf("%d large mappings of small pages, %d of any: the runtime of %s does not know what package ldflags links in", small, other, runtime.Version())
	}
	_ = in.Close()
	_ = cmd.Wait() // Its status is that it has found nothing.
}

// largeMappings counts what a process has of writable memory in pieces as large as the heap: those
// that the kernel was told to make no huge pages of, and the others.
func largeMappings(t *testing.T, pid int) (small, other int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	large := false
	for line := range bytes.Lines(text) {
		var from, to, offset, inode uint64
		var mode, device string
		if n, _ := fmt.Sscanf(string(line), "%x-%x %s %x %s %d", &from, &to, &mode, &offset, &device, &inode); n == 6 {
			large = from >= heapBelow && mode == "rw-p" && inode == 0 && to-from >= heapStep
		}
		if flags, found := bytes.CutPrefix(line, []byte("VmFlags:")); found && large {
			if slices.ContainsFunc(bytes.Fields(flags), func(f []byte) bool { return string(f) == "nh" }) {
				small++
			} else {
				other++
			}
		}
	}
	return small, other
}
