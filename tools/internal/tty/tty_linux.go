// Package tty says whether somebody looks at what a program writes.
package tty

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Is says whether w is a terminal. On systems other than Linux nothing is: there tools
// write what they write into files.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
