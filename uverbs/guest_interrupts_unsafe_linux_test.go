package uverbs_test

import (
	"encoding/binary"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A program of these tests runs with a seccomp filter that asks this process before
// each call of the seam to the kernel. The answer is that the call is to go on, or
// that a signal has interrupted it.

// interruptible are the calls that are asked for: verbs ioctls, doorbells by write,
// mappings of rings and reads of event records.
func interruptible() []unix.SockFilter {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		and   = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
		// Of struct seccomp_data (linux/seccomp.h).
		number   = 0
		argument = 16
	)
	low := 0 // where the low half of an argument is
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		low = 4
	}
	arg := func(n int) uint32 { return uint32(argument + 8*n + low) }
	var program []unix.SockFilter
	// ask adds what asks for a system call if one of its arguments, masked, has
	// one of the values.
	ask := func(call, n int, mask uint32, values ...uint32) {
		// Jumps are counted from the next instruction: to the next call, or
		// to the answer.
		size := uint8(2 + len(values) + 2)
		program = append(program,
			unix.SockFilter{Code: load, K: number},
			unix.SockFilter{Code: equal, K: uint32(call), Jf: size},
			unix.SockFilter{Code: load, K: arg(n)},
			unix.SockFilter{Code: and, K: mask})
		for i, v := range values {
			program = append(program, unix.SockFilter{Code: equal, K: v, Jt: uint8(len(values) - i)})
		}
		program = append(program,
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW},
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	const all, verbsIoctl, doorbell, record, asyncRecord = 1<<32 - 1, 0xc0181b01, 32, 8, 16
	ask(unix.SYS_IOCTL, 1, all, verbsIoctl)
	ask(unix.SYS_WRITE, 2, all, doorbell)
	ask(unix.SYS_MMAP, 3, unix.MAP_SHARED, unix.MAP_SHARED)
	ask(unix.SYS_READ, 2, all, record, asyncRecord)
	return append(program, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
}

// runInterrupted runs a program whose n-th call, the interrupted ones not counted,
// is interrupted times(n) times. It returns how many calls there were, and how many
// were interrupted.
func runInterrupted(t *testing.T, cmd *exec.Cmd, times func(n int) int) (calls, interrupted int) {
	t.Helper()
	program := interruptible()
	listener := make(chan int, 1)
	started := make(chan error, 1)
	go func() {
		// A child has the filter of the thread that starts it. Nothing else is
		// to run on that thread: it ends with this goroutine.
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			started <- err
			return
		}
		prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
		fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
		if errno != 0 {
			started <- errno
			return
		}
		listener <- int(fd)
		started <- cmd.Start()
	}()
	var ended atomic.Bool
	answered := make(chan struct{})
	var fd int
	select {
	case fd = <-listener:
	case err := <-started:
		t.Fatalf("install a filter: %v", err)
	}
	go func() {
		defer close(answered)
		calls, interrupted = answer(t, fd, &ended, times)
	}()
	err := <-started
	if err == nil {
		err = cmd.Wait()
	}
	ended.Store(true)
	<-answered
	unix.Close(fd)
	if err != nil {
		t.Errorf("the program whose calls were interrupted: %v", err)
	}
	return calls, interrupted
}

// notification is struct seccomp_notif, decision struct seccomp_notif_resp
// (linux/seccomp.h).
type notification struct {
	id         uint64
	pid, flags uint32
	number     int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type decision struct {
	id           uint64
	value        int64
	error, flags int32
}

// answer decides about calls until the program has ended.
func answer(t *testing.T, fd int, ended *atomic.Bool, times func(n int) int) (calls, interrupted int) {
	left := map[uint32]int{} // by thread whose call was interrupted
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(p, 100); err != nil && err != unix.EINTR || n == 0 {
			if err != nil {
				t.Errorf("wait for calls: %v", err)
			}
			if err != nil || ended.Load() {
				return calls, interrupted
			}
			continue
		}
		if p[0].Revents&unix.POLLIN == 0 {
			if p[0].Revents != 0 && ended.Load() {
				return calls, interrupted
			}
			continue
		}
		var n notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
			if errno != unix.ENOENT && errno != unix.EINTR { // the caller got a signal
				t.Errorf("take a call: %v", errno)
				return calls, interrupted
			}
			continue
		}
		k, again := left[n.pid]
		if !again {
			calls++
			k = times(calls)
		}
		d := decision{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if k > 0 {
			d.error, d.flags = -int32(unix.EINTR), 0
		}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&d))); errno != 0 {
			left[n.pid] = k // it got a signal, and asks again
			continue
		}
		delete(left, n.pid)
		if k > 0 {
			left[n.pid] = k - 1
			interrupted++
		}
	}
}
