// Package tty says whether somebody looks at what a program writes.
package tty

import (
	"io"

	"golang.org/x/sys/unix"
)

// Is says whether w is a terminal: an *os.File, or what hands out a file's descriptor as it does.
// On systems other than Linux nothing is: there tools write what they write into files.
func Is(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
