//go:build amd64 || arm64

package simproc

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/abi/request"
)

// memory is the memory of a process: a model.Memory. The page that translates
// time stamps is not there but here, at clockAt, where no process has memory.
type memory struct {
	pid    int
	clock  []byte // one page, which programs map
	denied *atomic.Bool
}

const clockAt = 1 << 63

// Read implements [model.Memory].
func (m *memory) Read(addr uint64, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	n, err := unix.ProcessVMReadv(m.pid, local(p), remote(addr, len(p)), 0)
	return m.result(n, len(p), err)
}

// Load32 implements [model.Memory]. The kernel may copy byte by byte while the program
// writes, so the word is read twice, until both are the same.
func (m *memory) Load32(addr uint64) (uint32, error) {
	var b [8]byte
	twice := []unix.RemoteIovec{{Base: uintptr(addr), Len: 4}, {Base: uintptr(addr), Len: 4}}
	for {
		n, err := unix.ProcessVMReadv(m.pid, local(b[:]), twice, 0)
		if err := m.result(n, len(b), err); err != nil {
			return 0, err
		}
		if v := binary.BigEndian.Uint32(b[:]); v == binary.BigEndian.Uint32(b[4:]) {
			return v, nil
		}
	}
}

// Write implements [model.Memory].
func (m *memory) Write(addr uint64, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if off := addr - clockAt; addr >= clockAt && off <= uint64(len(m.clock)) && uint64(len(p)) <= uint64(len(m.clock))-off {
		m.writeClock(int(off), p)
		return nil
	}
	n, err := unix.ProcessVMWritev(m.pid, local(p), remote(addr, len(p)), 0)
	return m.written(n, len(p), err)
}

// writeClock writes to the page of the clock. Its sign, a word that says whether the
// rest may be read, is stored in one step.
func (m *memory) writeClock(off int, p []byte) {
	if len(p) == 4 && off%4 == 0 {
		atomic.StoreUint32(wordAt(m.clock, off), binary.NativeEndian.Uint32(p))
		return
	}
	copy(m.clock[off:], p)
}

// Publish implements [model.Memory]. The last byte, by which the owner of a completion
// is told, is a piece of its own, which the kernel copies after the other.
func (m *memory) Publish(addr uint64, p []byte) error {
	last := len(p) - 1
	if last < 1 {
		return request.EFAULT
	}
	pieces := []unix.RemoteIovec{{Base: uintptr(addr), Len: last}, {Base: uintptr(addr) + uintptr(last), Len: 1}}
	n, err := unix.ProcessVMWritev(m.pid, local(p), pieces, 0)
	return m.written(n, len(p), err)
}

// written is result for a write. One to a process that has ended, whose device is about to be
// closed, is none that failed: a card has the pages until then, and nobody sees them.
func (m *memory) written(n, want int, err error) error {
	if err == unix.ESRCH {
		return nil
	}
	return m.result(n, want, err)
}

// result is what a copy of n of want bytes means.
func (m *memory) result(n, want int, err error) error {
	if err == unix.EPERM || err == unix.ENOSYS {
		m.denied.Store(true)
	}
	if err != nil || n != want {
		return request.EFAULT
	}
	return nil
}

func local(p []byte) []unix.Iovec {
	v := []unix.Iovec{{Base: &p[0]}}
	v[0].SetLen(len(p))
	return v
}

func remote(addr uint64, n int) []unix.RemoteIovec {
	return []unix.RemoteIovec{{Base: uintptr(addr), Len: n}}
}
