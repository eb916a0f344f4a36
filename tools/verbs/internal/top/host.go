package top

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/printable"
)

// A Host is where a collector looks besides netlink: the roots of /proc and
// /sys.
type Host struct {
	Proc, Sys fs.FS

	// PID is this process's number. Where /proc has another for it, /proc
	// is of another PID namespace than the socket, as in a container that has
	// the host's, and its numbers mean nothing here. 0 takes any /proc.
	PID int
}

// ThisHost is the machine that the program runs on.
func ThisHost() Host { return Host{Proc: os.DirFS("/proc"), Sys: os.DirFS("/sys"), PID: os.Getpid()} }

// useless says why /proc has no names for the numbers of threads, and what to do; "" where it
// has.
func (h Host) useless() string {
	if h.PID == 0 {
		return ""
	}
	b, err := readSome(h.Proc, "self/stat", maxStatus)
	number, _, _ := strings.Cut(string(b), " ")
	if err == nil && number == strconv.Itoa(h.PID) {
		return ""
	}
	if entries, err := fs.ReadDir(h.Proc, "."); err != nil || len(entries) == 0 {
		return "/proc is not mounted (mount -t proc proc /proc)"
	}
	return "/proc is not of this PID namespace (run verbs top in the one that it is of, as with docker run --pid=host)"
}

// Limits of what files of /proc and /sys can mean.
const (
	maxStatus   = 64 << 10
	maxComm     = 64
	maxCounter  = 64
	maxCounters = 1024 // of one port and source
)

// A process is what a thread id led to. The zero value is of none.
type process struct {
	pid  uint32
	name string
}

// process finds the process of a thread. A thread that /proc does not show, as it
// is gone or hidden, has none.
func (h Host) process(tid uint32) process {
	dir := strconv.FormatUint(uint64(tid), 10)
	status, err := readSome(h.Proc, dir+"/status", maxStatus)
	if err != nil {
		return process{}
	}
	var p process
	for line := range bytes.Lines(status) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		switch key {
		case "Name":
			p.name = printable.Escape(strings.TrimSpace(value))
		case "Tgid":
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			if err != nil {
				return process{}
			}
			p.pid = uint32(n)
		}
	}
	if p.pid == 0 {
		return process{}
	}
	// The status was of the thread, which may have a name of its own.
	if b, err := readSome(h.Proc, strconv.FormatUint(uint64(p.pid), 10)+"/comm", maxComm); err == nil {
		p.name = printable.Escape(strings.TrimSuffix(string(b), "\n"))
	}
	return p
}

// counters reads the counters below one folder of a port. What is no number,
// as the text that stands for a counter which the hardware lacks, is left out.
func (h Host) counters(device string, port uint32, folder string) map[string]uint64 {
	dir := path.Join("class/infiniband", device, "ports", strconv.FormatUint(uint64(port), 10), folder)
	entries, err := fs.ReadDir(h.Sys, dir)
	if err != nil {
		return nil
	}
	all := make(map[string]uint64)
	for _, e := range entries[:min(len(entries), maxCounters)] {
		if e.Name() == "lifespan" { // how old the numbers may be, in milliseconds
			continue
		}
		b, err := readSome(h.Sys, path.Join(dir, e.Name()), maxCounter)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 0, 64); err == nil {
			all[printable.Escape(e.Name())] = n
		}
	}
	return all
}

// readSome reads the beginning of a file.
func readSome(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
