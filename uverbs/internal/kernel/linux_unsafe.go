//go:build linux

package kernel

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctl runs RDMA_VERBS_IOCTL on req. It is unix.Syscall and not RawSyscall,
// because a request may wait for address resolution for seconds.
func ioctl(fd int, req []byte) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), verbsIoctl, uintptr(unsafe.Pointer(&req[0])))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return errno
	}
}

// write sends n bytes from b on, a doorbell. It is a raw call: the driver sends
// packets and returns, and does not sleep, so it is no call for which the scheduler
// would have to be told. Telling it costs more than all else that posting a request
// takes outside of the kernel: a tenth of a soft-RoCE round trip. Package unix would
// go through two functions more; this one is small enough to be inlined.
func write(fd int, b *byte, n int) (int, syscall.Errno) {
	done, _, errno := syscall.RawSyscall6(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(b)), uintptr(n), 0, 0, 0)
	return int(done), errno
}

// mapShared maps n bytes of fd at offset. MmapPtr rather than Mmap: it keeps
// no table of mappings, and it counts offsets in pages where a long has 32
// bits.
func mapShared(fd int, offset int64, n, prot int) (*region, error) {
	return mmap(nil, fd, offset, n, prot, unix.MAP_SHARED)
}

// mapAnonymous maps n bytes of private zeroed memory.
func mapAnonymous(n int, flags int) (*region, error) {
	return mmap(nil, -1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|flags)
}

func mmap(addr unsafe.Pointer, fd int, offset int64, n, prot, flags int) (*region, error) {
	for {
		p, err := unix.MmapPtr(fd, offset, addr, uintptr(n), prot, flags)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &region{addr: p, b: unsafe.Slice((*byte)(p), n)}, nil
	}
}

// replaceByZeros maps private zero pages over b. Readers and writers of the
// addresses never see a hole: MAP_FIXED replaces atomically.
func replaceByZeros(addr unsafe.Pointer, n int) error {
	_, err := mmap(addr, -1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
	return err
}

// replaceByCopy maps private pages with the same content over b, as atomically.
func replaceByCopy(addr unsafe.Pointer, b []byte) error {
	private, err := mapAnonymous(len(b), 0)
	if err != nil {
		return err
	}
	copy(private.b, b)
	n := uintptr(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_MREMAP, uintptr(private.addr), n, n, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, uintptr(addr), 0)
	if errno != 0 {
		private.unmap()
		return errno
	}
	return nil
}

func munmap(addr unsafe.Pointer, n int) error { return unix.MunmapPtr(addr, uintptr(n)) }
