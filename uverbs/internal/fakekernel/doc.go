// Package fakekernel is a kernel with soft-RoCE devices inside one Go process:
// it implements the seam of package kernel, so that the whole life of a verbs
// program runs on any system, without privileges, and with failures where a
// test wants them.
//
//	k := fakekernel.New(fakekernel.Device{Name: "rxe0"})
//	f, err := k.Open("/dev/infiniband/uverbs0", 0)
//	// ... use f as a program would: ioctl, mmap, poll the rings ...
//	k.FailAt(fakekernel.Ioctl, 3, syscall.ENOMEM) // the third from now on
//	...
//	if leaks := k.Leaks(); len(leaks) > 0 {
//		t.Error(leaks)
//	}
//
// It reads requests with package abi/request, which checks them by the schema
// as the kernel does, and keeps the kernel's rules: handles, states, access
// rights, single-use mmap tokens, EBUSY, event counts. It is modelled on Linux
// 6.1. Reliable-connection messages really travel between the queue pairs of
// one Kernel: bytes are copied by address from and to registered memory, work
// requests are read from the rings and completions written to them, by the
// layout of drivers/infiniband/sw/rxe, without the code of package rxe. What it
// lacks: XRC, raw packets.
//
// # Concurrency
//
// All methods may be called from any goroutine. One lock orders everything, and
// a doorbell does the work inside the call, as Linux 6.1 does. Retries after a
// timeout or a lack of receives come from timers of package time.
//
// # Errors
//
// Methods of the seam return bare syscall.Errno values as the contract of
// package kernel says. What a real kernel would not notice, but a correct
// program does not do, is collected in [Kernel.Violations].
package fakekernel
