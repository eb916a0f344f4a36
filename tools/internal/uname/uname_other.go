//go:build !linux

package uname

// Read is what uname -r and uname -m say, or empty on systems other than Linux.
func Read() (release, machine string) { return "", "" }
