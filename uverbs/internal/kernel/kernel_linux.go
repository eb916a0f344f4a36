//go:build linux

package kernel

import (
	"io/fs"
	"math"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host returns the Linux kernel that this program runs on.
func Host() Kernel { return linux{} }

type linux struct{}

// Open implements [Kernel].
func (linux) Open(path string, rdev uint64) (File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	})
	if err != nil {
		return nil, err
	}
	if err := checkDevice(fd, rdev); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &file{fd: fd}, nil
}

// checkDevice refuses an open file that is not the character device rdev. The
// check is made on the open file, not on its name: udev may rename a node, and
// a container may have put something else in its place.
func checkDevice(fd int, rdev uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return syscall.ENXIO
	}
	// The kernel reports st_rdev in the encoding that it also uses in
	// netlink's RDMA_NLDEV_ATTR_CHARDEV (huge_encode_dev).
	if rdev != 0 && uint64(st.Rdev) != rdev {
		return syscall.ENXIO
	}
	return nil
}

// Sysfs implements [Kernel].
func (linux) Sysfs() fs.FS { return sysfs{} }

// sysfs is what os.DirFS would return for /sys, without the methods that nobody calls:
// what is reached through an interface stays in every program.
type sysfs struct{}

func (sysfs) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := os.Open("/sys/" + name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ReadLink implements [fs.ReadLinkFS].
func (sysfs) ReadLink(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return os.Readlink("/sys/" + name)
}

// Lstat implements [fs.ReadLinkFS].
func (sysfs) Lstat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrInvalid}
	}
	return os.Lstat("/sys/" + name)
}

// PageSize implements [Kernel].
func (linux) PageSize() int { return os.Getpagesize() }

// Release implements [Kernel].
func (linux) Release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil { // it cannot fail
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// Memlock implements [Kernel].
func (linux) Memlock() (limit uint64, exempt bool) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		// getrlimit cannot fail for a resource that exists. Zero would
		// blame the limit for every failed registration.
		return math.MaxUint64, hasIPCLock()
	}
	if r.Cur == unix.RLIM_INFINITY {
		return math.MaxUint64, hasIPCLock()
	}
	return r.Cur, hasIPCLock()
}

// hasIPCLock tells whether the kernel lets this process pin beyond the limit.
// The RDMA core asks for CAP_IPC_LOCK in the initial user namespace, so root
// inside a user namespace does not have it whatever its capability set says.
func hasIPCLock() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	if data[0].Effective&(1<<unix.CAP_IPC_LOCK) == 0 {
		return false
	}
	b, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || initialUserNamespace(string(b))
}

// initialUserNamespace tells from /proc/self/uid_map whether every user id is
// mapped to itself, which only the initial user namespace has.
func initialUserNamespace(uidMap string) bool {
	f := strings.Fields(uidMap)
	return len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
}

// retry repeats a system call that a signal interrupted. The Go runtime
// preempts with signals, so this is an everyday event.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
