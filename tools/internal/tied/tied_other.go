//go:build !linux

package tied

import "os/exec"

// Start is cmd.Start: this system ties no program to a process.
func Start(cmd *exec.Cmd) error { return cmd.Start() }
