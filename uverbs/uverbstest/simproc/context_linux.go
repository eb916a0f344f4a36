//go:build amd64 || arm64

package simproc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

var errAgain error = request.EAGAIN

// fileSize is that of the file that stands in for a device file: all offsets of pages are
// inside. It has no memory where nothing was mapped.
const fileSize = 1 << 40

// context is a device file that a program has open. The program has the only
// reference to a description of a file in memory, on which lies a lock: when the lock is
// gone, so is the last descriptor and the last mapping.
type context struct {
	s         *Server
	device    int
	ino       uint64
	pid       int
	mem       *memory
	file      *model.File
	registers registers

	call   sync.Mutex // one request at a time
	caller *caller    // who asks, under call
	events eventFiles
}

// caller is a system call that waits for an answer.
type caller struct {
	listener int
	denied   *atomic.Bool
	notification
}

// give gives the process a descriptor, at a number or, if it is -1, the lowest free one.
func (c *caller) give(fd, at int) (int, error) {
	a := addition{ID: c.ID, SrcFD: uint32(fd), NewFlags: unix.O_CLOEXEC}
	if at >= 0 {
		a.Flags, a.NewFD = unix.SECCOMP_ADDFD_FLAG_SETFD, uint32(at)
	}
	return addFD(c.listener, &a)
}

// eventFiles are those of an open device.
type eventFiles struct {
	mu  sync.Mutex // taken with the model's lock held, so nobody calls the model with it
	all []*eventFile
}

func (f *eventFiles) list() []*eventFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*eventFile(nil), f.all...)
}

func (f *eventFiles) add(e *eventFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, e)
}

func (f *eventFiles) remove(e *eventFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, o := range f.all {
		if o == e {
			f.all = append(f.all[:i:i], f.all[i+1:]...)
			return
		}
	}
}

// newContext opens the n-th device for a process. theirs is the descriptor for it, to be
// closed here once it has it.
func (s *Server) newContext(n, pid int) (_ *context, theirs int, err error) {
	theirs, err = unix.MemfdCreate("goverbs-simproc", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, -1, err
	}
	c := &context{s: s, device: n, pid: pid, mem: &memory{pid: pid, denied: &s.denied}}
	c.registers.pages = make(map[uint32][]page)
	c.registers.ours = -1
	defer func() {
		if err != nil {
			unix.Close(theirs)
			c.registers.end()
		}
	}()
	if err := unix.Ftruncate(theirs, fileSize); err != nil {
		return nil, theirs, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(theirs), unix.F_OFD_SETLK, &lock); err != nil {
		return nil, theirs, err
	}
	if c.registers.ours, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", theirs), unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return nil, theirs, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(theirs, &st); err != nil {
		return nil, theirs, err
	}
	c.ino = st.Ino
	if c.mem.clock, err = c.registers.mapPage(clockOffset); err != nil {
		return nil, theirs, err
	}
	c.file, err = s.model.Devices()[n].Open(c.mem, &model.OpenOptions{NewFD: c.newFD, Polled: true, Privileged: unix.Geteuid() == 0, Program: strconv.Itoa(pid)})
	return c, theirs, err
}

// clockOffset is where a program maps the page that translates time stamps.
const clockOffset = int64(abi.MLX5_IB_MMAP_CLOCK_INFO) << 8 * pageSize

// released says whether the program has the file no more.
func (c *context) released() bool {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(uintptr(c.registers.ours), unix.F_OFD_GETLK, &lock)
	return err == nil && lock.Type == unix.F_UNLCK
}

// end closes the device. The server knows it no more.
func (c *context) end() {
	c.call.Lock()
	defer c.call.Unlock()
	_ = c.file.Close() // nobody else closes it
	for _, e := range c.events.list() {
		e.end()
	}
	c.registers.end()
	_ = unix.Munmap(c.mem.clock)
}

// newFD gives an event queue its descriptor in the program. The model is locked.
func (c *context) newFD(q *model.EventQueue) (int32, error) {
	e, r, err := newPipe()
	if err != nil {
		return 0, request.Errno(unix.EMFILE)
	}
	e.queue = q
	n, err := c.caller.give(r, -1)
	unix.Close(r)
	if err != nil {
		e.close()
		return 0, request.Errno(unix.EMFILE)
	}
	c.events.add(e)
	e.dirty.Store(true) // so that it is told to notify
	return int32(n), nil
}

// ioctl runs a request of the program.
func (c *context) ioctl(from *caller) error {
	c.call.Lock()
	defer c.call.Unlock()
	// A device sees doorbells before the requests that follow them: one may destroy what
	// was rung for.
	c.s.visit(c)
	addr := from.Args[2]
	for _, e := range c.events.list() {
		if e.abandoned() {
			c.events.remove(e)
			e.end()
		}
	}
	var head abi.UverbsIoctlHdr
	if c.mem.Read(addr, head.Bytes()) != nil {
		return request.EFAULT
	}
	old := c.events.list()
	if destroysReporter(&head) {
		for _, e := range old {
			e.recall()
		}
		defer func() {
			for _, e := range old {
				c.s.events.Add(uint64(e.resume()))
			}
		}()
	}
	c.caller = from
	err := c.file.IoctlAt(addr)
	c.caller = nil
	for _, e := range c.events.list()[len(old):] {
		e.queue.Notify(func() {
			e.dirty.Store(true)
			c.s.wake()
		})
	}
	if err == nil {
		err = c.mapped(&head, addr)
	}
	return err
}

// destroysReporter says whether a request destroys an object with events, whose answer
// counts those that were read.
func destroysReporter(h *abi.UverbsIoctlHdr) bool {
	switch h.ObjectID {
	case abi.UVERBS_OBJECT_CQ:
		return h.MethodID == abi.UVERBS_METHOD_CQ_DESTROY
	case abi.UVERBS_OBJECT_QP:
		return h.MethodID == abi.UVERBS_METHOD_QP_DESTROY
	case abi.UVERBS_OBJECT_SRQ:
		return h.MethodID == abi.UVERBS_METHOD_SRQ_DESTROY
	}
	return false
}

// mapped follows requests after which other pages may be mapped than before.
func (c *context) mapped(h *abi.UverbsIoctlHdr, addr uint64) error {
	switch {
	case h.ObjectID == abi.UVERBS_OBJECT_DEVICE && h.MethodID == abi.UVERBS_METHOD_GET_CONTEXT:
		if m, err := c.file.Map(clockOffset, pageSize, false); err == nil {
			if err := m.Place(clockAt); err != nil {
				return err
			}
		}
		return c.registers.addStatic(c.file)
	case h.ObjectID == abi.MLX5_IB_OBJECT_UAR && h.MethodID == abi.MLX5_IB_METHOD_UAR_OBJ_ALLOC:
		offset, err := c.mmapOffset(h, addr)
		if err != nil {
			return err
		}
		return c.registers.add(c.file, int64(offset))
	case h.ObjectID == abi.MLX5_IB_OBJECT_UAR && h.MethodID == abi.MLX5_IB_METHOD_UAR_OBJ_DESTROY:
		c.registers.prune(c.file)
	}
	return nil
}

// mmapOffset is what the answer to a request for a UAR says.
func (c *context) mmapOffset(h *abi.UverbsIoctlHdr, addr uint64) (uint64, error) {
	var attr abi.UverbsAttr
	for i := range uint64(h.NumAttrs) {
		if err := c.mem.Read(addr+abi.SizeofUverbsIoctlHdr+i*abi.SizeofUverbsAttr, attr.Bytes()); err != nil {
			return 0, err
		}
		if attr.AttrID == abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET {
			var b [8]byte
			err := c.mem.Read(attr.Data, b[:])
			return binary.NativeEndian.Uint64(b[:]), err
		}
	}
	return 0, request.EINVAL
}

// errnoOf is the number that a program gets for an error.
func errnoOf(err error) int32 {
	var n request.Errno
	var sys syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &n):
		return int32(n)
	case errors.As(err, &sys):
		return int32(sys)
	}
	return int32(request.EIO)
}
