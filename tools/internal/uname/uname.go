// Package uname asks the kernel which one it is. It needs no /proc: in an empty root there is none,
// and a report from there shall still name the kernel.
package uname

import "runtime"

// System is what uname -r says, or the name of a system other than Linux.
func System() string {
	if release, _ := Read(); release != "" {
		return release
	}
	return runtime.GOOS
}
