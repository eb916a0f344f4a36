package fakekernel

import (
	"syscall"

	"github.com/goverbs/goverbs/abi"
)

// Op is a kind of call across the seam.
type Op int

// The calls that can fail. Closing cannot.
const (
	AnyOp Op = iota
	Open
	Ioctl
	Write
	Map
	Events
	Detach
	Alloc
	Nodes
	Watch
)

// String names the call.
func (o Op) String() string {
	return [...]string{"any call", "open", "ioctl", "write", "map", "events", "detach", "alloc", "nodes", "watch"}[o]
}

// A Call is one call across the seam.
type Call struct {
	Op Op
	// N counts the calls since New, from 1.
	N int
	// Path is what Open opens.
	Path string
	// Method is what Ioctl asks for, Command the write command if that is
	// INVOKE_WRITE. They are zero when the request is malformed.
	Method  Method
	Command uint32
}

// String says what is called.
func (c Call) String() string {
	switch {
	case c.Op == Open:
		return "open " + c.Path
	case c.Op != Ioctl, c.Method == Method{} && c.Command == 0:
		return c.Op.String()
	}
	if cmd, ok := abi.LookupCommand(c.Command); ok && c.Method == (Method{}) {
		return "ioctl " + cmd.Name
	}
	if m, ok := abi.LookupMethod(0, c.Method.Object, c.Method.Method); ok {
		return "ioctl " + m.Name
	}
	return "ioctl"
}

// faults decides which calls fail.
type faults struct {
	n      int
	hook   func(Call) error
	tamper func(c Call, attr uint16, out []byte) []byte
}

// check counts a call and returns the error that it is to fail with. EINTR
// never leaves the seam: the call is made again, and counts again.
func (f *faults) check(c Call) error {
	for {
		f.n++
		c.N = f.n
		if f.hook == nil {
			return nil
		}
		if err := f.hook(c); err != syscall.EINTR {
			return err
		}
	}
}

// Fail calls hook before every call, from within it; a call fails with the error
// that hook returns, and does nothing. hook must not call the Kernel. A nil
// hook ends it.
func (k *Kernel) Fail(hook func(Call) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults.hook = hook
}

// FailAt lets the n-th call of a kind from now on, counted from 1, fail with
// err. It replaces what Fail or FailAt set before.
func (k *Kernel) FailAt(op Op, n int, err error) {
	k.Fail(func(c Call) error {
		if op != AnyOp && c.Op != op {
			return nil
		}
		if n--; n == 0 {
			return err
		}
		return nil
	})
}

// Interrupt lets signals interrupt every call times times before it runs.
func (k *Kernel) Interrupt(times int) {
	left := times
	k.Fail(func(Call) error {
		if left--; left >= 0 {
			return syscall.EINTR
		}
		left = times
		return nil
	})
}

// Calls is how many calls there were.
func (k *Kernel) Calls() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.faults.n
}

// Tamper lets f change, or shorten, the bytes that an ioctl is about to write
// to an output attribute: f returns what is written. It stands for a kernel
// that is older, newer or hostile. f must not call the Kernel.
func (k *Kernel) Tamper(f func(c Call, attr uint16, out []byte) []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults.tamper = f
}
