package tied

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start is cmd.Start for a program that is tied to this process. It sets
// SysProcAttr.Pdeathsig, and leaves the rest of cmd as it is. The program runs on the
// processors, and with the priority, that this process had at its first Start, whatever the
// caller's thread has.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	s := start{cmd, make(chan error, 1)}
	starter() <- s
	return <-s.err
}

type start struct {
	cmd *exec.Cmd
	err chan error
}

// starter is where commands are taken that are to be started. The kernel kills the children of
// a thread that ends, not of its process, and a thread of Go's ends with a goroutine that was
// locked to it. So all are the children of one thread, which stays.
var starter = sync.OnceValue(func() chan<- start {
	commands := make(chan start)
	go func() {
		runtime.LockOSThread()
		for s := range commands {
			s.err <- s.cmd.Start()
		}
	}()
	return commands
})
