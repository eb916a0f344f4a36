package uname

import "golang.org/x/sys/unix"

// Read is what uname -r and uname -m say, or empty on systems other than Linux.
func Read() (release, machine string) {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "", ""
	}
	return unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])
}
