package model

import (
	"encoding/binary"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/abi/request"
)

// Local is the memory of this process. An address that is not mapped fails with
// EFAULT, and so does a write to one that cannot be written to; but in a build with the
// race detector, which stores words in code that is not Go's, a word for read-only memory
// is the end of the process. Whoever uses it keeps the memory alive that it tells the
// device of.
type Local struct{}

var _ Memory = Local{}

// Read implements [Memory].
func (Local) Read(addr uint64, p []byte) (err error) {
	if len(p) == 0 {
		return nil
	}
	if !addressable(addr, len(p)) {
		return request.EFAULT
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(&err)
	copy(p, bytesAt(addr, len(p)))
	return nil
}

// Write implements [Memory]. Words of four and eight bytes at a multiple of
// their size are stored in one step, because programs look at such words without
// waiting for a completion.
func (Local) Write(addr uint64, p []byte) (err error) {
	if len(p) == 0 {
		return nil
	}
	if !addressable(addr, len(p)) {
		return request.EFAULT
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(&err)
	switch b := bytesAt(addr, len(p)); {
	case len(p) == 8 && addr%8 == 0:
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[0])), binary.NativeEndian.Uint64(p))
	case len(p) == 4 && addr%4 == 0:
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[0])), binary.NativeEndian.Uint32(p))
	default:
		copy(b, p)
	}
	return nil
}

// Load32 implements [Memory].
func (Local) Load32(addr uint64) (v uint32, err error) {
	if !addressable(addr, 4) || addr%4 != 0 {
		return 0, request.EFAULT
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(&err)
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], atomic.LoadUint32((*uint32)(unsafe.Pointer(&bytesAt(addr, 4)[0]))))
	return binary.BigEndian.Uint32(b[:]), nil
}

// Publish implements [Memory].
func (Local) Publish(addr uint64, p []byte) (err error) {
	n := len(p) - 4
	if n < 0 || !addressable(addr, len(p)) || (addr+uint64(n))%4 != 0 {
		return request.EFAULT
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(&err)
	b := bytesAt(addr, len(p))
	copy(b[:n], p)
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[n])), binary.NativeEndian.Uint32(p[n:]))
	return nil
}

// addressable says whether n bytes at addr may be in a process of this system.
func addressable(addr uint64, n int) bool {
	return addr != 0 && addr <= uint64(^uintptr(0)) && uint64(n) <= uint64(^uintptr(0))-addr
}

// recoverFault makes an access that faulted an error.
func recoverFault(err *error) {
	if r := recover(); r != nil {
		if _, ok := r.(runtime.Error); !ok {
			panic(r)
		}
		*err = request.EFAULT
	}
}

// bytesAt is the memory at an address. The address is turned into a pointer
// through memory: it is not derived from one that the compiler knows.
func bytesAt(addr uint64, n int) []byte {
	at := uintptr(addr)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n)
}
