//go:build amd64 || arm64

package simproc

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// pathCall says of a system call that names a file what it does and where its arguments
// are. For those that it has not stands none.
type pathCall struct {
	does                         pathKind
	dirfd, path, flags, out, len int
}

const none = -1

type pathKind int

const (
	opens pathKind = iota
	stats
	lstats // of a link itself
	readsLink
)

// verdict is the answer to a system call.
type verdict struct {
	goOn  bool // the kernel does it
	val   int64
	errno int32
}

var goOn = verdict{goOn: true}

func failed(err error) verdict { return verdict{errno: errnoOf(err)} }

// Absolute paths that begin so are the model's.
const (
	devPrefix   = "/dev/infiniband"
	classFolder = "/sys/class"
	classPrefix = classFolder + "/infiniband" // also infiniband_verbs, infiniband_mad and so on
)

// named answers a system call that names a file. In the form with mounts those with a path
// are the kernel's.
func (c *Cmd) named(from *caller, p pathCall) verdict {
	arg := func(i int) uint64 { return from.Args[i] }
	flags := uint64(0)
	if p.flags != none {
		flags = arg(p.flags)
	}
	name := ""
	if p.path != none {
		name = readString(from, arg(p.path))
	}
	if name == "" {
		if p.does == stats && (p.path == none || flags&unix.AT_EMPTY_PATH != 0) {
			return c.statOpen(from, int32(arg(p.dirfd)), arg(p.out))
		}
		return goOn
	}
	if !c.s.noMount || !path.IsAbs(name) {
		return goOn
	}
	clean := path.Clean(name)
	if clean == devPrefix || strings.HasPrefix(clean, devPrefix+"/") {
		n := c.s.deviceAt(clean)
		switch {
		case n < 0:
			return failed(unix.ENOENT)
		case p.does == opens:
			return c.openDevice(from, n)
		case p.does == readsLink:
			return failed(unix.EINVAL)
		}
		return from.putStat(arg(p.out), c.s.deviceStat(n))
	}
	if !strings.HasPrefix(clean, classPrefix) {
		return goOn
	}
	file := filepath.Join(c.tree, strings.TrimPrefix(clean, classFolder))
	switch p.does {
	case opens:
		return openFile(from, file, int(int32(flags)))
	case readsLink:
		b := make([]byte, min(arg(p.len), 4096))
		n, err := unix.Readlink(file, b)
		if err != nil {
			return failed(err)
		}
		if err := from.memory().Write(arg(p.out), b[:n]); err != nil {
			return failed(err)
		}
		return verdict{val: int64(n)}
	}
	var st unix.Stat_t
	look := unix.Stat
	if p.does == lstats || flags&unix.AT_SYMLINK_NOFOLLOW != 0 {
		look = unix.Lstat
	}
	if err := look(file, &st); err != nil {
		return failed(err)
	}
	return from.putStat(arg(p.out), &st)
}

// statOpen answers fstat: an open device file is one of characters, whatever stands in
// for it.
func (c *Cmd) statOpen(from *caller, fd int32, out uint64) verdict {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", from.PID, fd), &st) != nil {
		return goOn
	}
	x := c.s.find(&st)
	if x == nil {
		return goOn
	}
	return from.putStat(out, c.s.deviceStat(x.device))
}

// openDevice opens a device for the process.
func (c *Cmd) openDevice(from *caller, n int) verdict {
	_, theirs, err := c.s.openFor(from, n)
	if err != nil {
		return failed(err)
	}
	defer unix.Close(theirs)
	return from.send(theirs, unix.O_CLOEXEC)
}

// openFile opens a file of the tree, which cannot be written.
func openFile(from *caller, file string, flags int) verdict {
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		return failed(unix.EACCES)
	}
	fd, err := unix.Open(file, flags&(unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_PATH|unix.O_NONBLOCK)|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed(err)
	}
	defer unix.Close(fd)
	return from.send(fd, flags&unix.O_CLOEXEC)
}

// send answers the call with a descriptor. It does not with SECCOMP_ADDFD_FLAG_SEND, which is
// both in one: a signal that comes before the program has run, as this process's runtime sends
// them, takes the descriptor back and leaves the answer 0, which is another one.
func (c *caller) send(fd, flags int) verdict {
	n, err := addFD(c.listener, &addition{ID: c.ID, SrcFD: uint32(fd), NewFlags: uint32(flags)})
	if err != nil {
		return failed(err)
	}
	return verdict{val: int64(n)}
}

// putStat answers the call with a struct stat.
func (c *caller) putStat(addr uint64, st *unix.Stat_t) verdict {
	if err := c.memory().Write(addr, statBytes(st)); err != nil {
		return failed(err)
	}
	return verdict{}
}

// memory is that of the thread's process.
func (c *caller) memory() *memory { return &memory{pid: int(c.PID), denied: c.denied} }

// readString reads a path, "" where there is none.
func readString(from *caller, addr uint64) string {
	m := from.memory()
	var name []byte
	for len(name) < unix.PathMax {
		// The next page may not be there.
		chunk := make([]byte, pageSize-addr%pageSize)
		if m.Read(addr, chunk) != nil {
			return ""
		}
		if end := bytes.IndexByte(chunk, 0); end >= 0 {
			return string(append(name, chunk[:end]...))
		}
		name = append(name, chunk...)
		addr += uint64(len(chunk))
	}
	return ""
}

// The numbers of uverbs files: IB_UVERBS_MAJOR and IB_UVERBS_BASE_MINOR of
// drivers/infiniband/core/uverbs_main.c.
const (
	verbsMajor = 231
	verbsMinor = 192
)

// deviceNumber is the number of the file of the n-th device, by which libibverbs knows that it
// is the one of /sys.
func (s *Server) deviceNumber(n int) uint64 {
	if s.noMount {
		return unix.Mkdev(verbsMajor, uint32(verbsMinor+n))
	}
	return standIn()
}

// deviceStat is what stat says of the file of the n-th device.
func (s *Server) deviceStat(n int) *unix.Stat_t {
	return &unix.Stat_t{Mode: unix.S_IFCHR | 0o666, Nlink: 1, Blksize: pageSize, Ino: uint64(verbsMinor + n), Rdev: s.deviceNumber(n)}
}

// deviceAt is which device's file is at a path, -1 if none.
func (s *Server) deviceAt(file string) int {
	for n := range s.model.Devices() {
		if file == devPrefix+"/"+uverbsName(n) {
			return n
		}
	}
	return -1
}
