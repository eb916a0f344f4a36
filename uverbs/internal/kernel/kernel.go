// Package kernel is the one seam between package uverbs and the operating
// system. Everything above it is ordinary Go that compiles on every GOOS and
// runs against the fake kernel of package fakekernel; everything below it is
// system calls.
//
// The interfaces describe what an open uverbs file can be asked to do, in the
// kernel's own terms: requests are the bytes of an ioctl, errors are bare
// [syscall.Errno] values, descriptors are the numbers that the kernel hands
// out. Turning those into errors that a person can act on is uverbs' work.
package kernel

import (
	"io/fs"
	"time"
)

// Kernel is an operating system that may have RDMA devices.
type Kernel interface {
	// Open opens a uverbs character device, such as
	// /dev/infiniband/uverbs0, read-write and close-on-exec. A non-zero
	// rdev is the device number that discovery reported: a file that is
	// not that character device is refused with ENXIO.
	Open(path string, rdev uint64) (File, error)

	// Sysfs is the tree below /sys.
	Sysfs() fs.FS

	// Memlock returns the locked-memory limit in bytes (^uint64(0) for
	// unlimited) and whether this process may ignore it (CAP_IPC_LOCK).
	Memlock() (limit uint64, exempt bool)

	// Alloc maps n bytes of anonymous, zeroed, page-aligned memory outside
	// the Go heap, which children of a plain fork do not get. n is rounded
	// up to whole pages.
	Alloc(n int, opts AllocOptions) (*Mapping, error)

	// Nodes counts the bytes of a mapping from Alloc by the NUMA node that
	// they lie on. Pages that do not exist yet are on none. ENOSYS says that
	// the kernel knows no NUMA, EPERM that the process may not ask.
	Nodes(m *Mapping) (map[int]int, error)

	// Release is the kernel's version as uname says it, such as
	// "6.1.0-57-amd64"; empty where there is none. It is for refusing what
	// some versions do wrong: what a kernel can do, ask the kernel.
	Release() string

	// PageSize is the size of a memory page in bytes.
	PageSize() int

	// Watch has gone called, at least once and from another goroutine, when
	// the device whose verbs file has this name in /sys, such as "uverbs0", is
	// being removed; whoever is given the name afterwards is another device.
	// gone must not block, nor call stop. After stop, which may be called again,
	// gone is not called any more.
	//
	// run, if not nil, is what watches. It is called once, in a goroutine of
	// its own, and returns after stop, which waits for that. What happens
	// before it is called is not lost.
	//
	// What was opened after Watch returned, and before it calls gone, is of that
	// device.
	Watch(name string, gone func()) (run, stop func(), err error)
}

// AllocOptions are the choices of [Kernel.Alloc]. The zero value is ordinary
// pages, wherever the system puts them.
type AllocOptions struct {
	// HugePages asks for huge pages and fails where there are none.
	HugePages bool
	// Placed asks for pages of NUMA node Node. They exist when Alloc
	// returns, on other nodes too if that one is full: [Kernel.Nodes] tells.
	// EINVAL says that the process may not use the node, or that there is no
	// such; ENOSYS and EPERM are as from Nodes.
	Placed bool
	Node   int
	// Collected has the memory unmapped when the Mapping becomes unreachable,
	// as one from [File.Map] is: for queues, which others may look at until
	// the end.
	Collected bool
}

// File is one open uverbs file: a verbs context. Its methods may be called
// from any goroutine; Close makes those that follow fail with os.ErrClosed.
type File interface {
	// Ioctl runs RDMA_VERBS_IOCTL on req, a header and its attributes. The
	// kernel writes handles, descriptors and flags back into req. The
	// caller keeps req and all that it points to out of goroutine stacks
	// and alive during the call. EINTR is retried.
	Ioctl(req []byte) error

	// Write sends one request of the older write() interface. req obeys
	// the rules of Ioctl.
	Write(req []byte) error

	// Map maps n bytes of device memory, shared, read-write, at the offset
	// that the kernel named.
	Map(offset int64, n int) (*Mapping, error)

	// MapRead is Map of memory that may only be read, or whose driver wants
	// that.
	MapRead(offset int64, n int) (*Mapping, error)

	// Events takes over an event descriptor that an ioctl on this file
	// returned, and makes it non-blocking. When Events fails the caller
	// keeps fd, to be closed by CloseFD; ErrNotPollable says that the
	// system's poller refuses it.
	Events(fd int) (EventFile, error)

	// CloseFD closes a descriptor that an ioctl on this file returned and
	// that was not taken over by Events.
	CloseFD(fd int) error

	// Close closes the file. Mappings and event files stay usable.
	Close() error
}

// EventFile is a completion channel or an asynchronous-event file. One record
// comes out of each read.
type EventFile interface {
	// Read reads one record without waiting: EAGAIN when there is none,
	// EIO when the device is gone.
	Read(p []byte) (int, error)

	// ReadWait reads one record, parking the goroutine until there is one,
	// until the deadline set by SetReadDeadline (os.ErrDeadlineExceeded)
	// or until Close (os.ErrClosed).
	ReadWait(p []byte) (int, error)

	// SetReadDeadline bounds ReadWait calls, also those already parked.
	SetReadDeadline(t time.Time) error

	// FD is the descriptor, for putting into requests. It stays valid until
	// Close.
	FD() int

	// PollFD is FD for putting into poll sets, or -1 where nothing that the
	// system can poll says when there is something to read: Notify does.
	PollFD() int

	// Notify has f called, from any goroutine, whenever there may be something
	// to read, if PollFD is -1. It comes before the file is used. f must
	// neither block nor call the file.
	Notify(f func())

	// Close closes the file and ends a parked ReadWait.
	Close() error
}
