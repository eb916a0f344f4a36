package doctor

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// open opens a file for reading and writing, without waiting for anybody.
func open(path string) error {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		return unix.Close(fd)
	}
}

// stat asks for the metadata of a file.
func stat(path string) (Stat, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Stat{}, err
	}
	s := Stat{Mode: info.Mode()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.UID, s.GID, s.Rdev = st.Uid, st.Gid, uint64(st.Rdev)
	}
	return s, nil
}
