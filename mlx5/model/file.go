package model

import (
	"fmt"
	"os"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// OpenOptions are the choices of [Device.Open]. Nil is the zero value.
type OpenOptions struct {
	// NewFD gives a new event queue its number, which requests then carry as
	// a file descriptor. By default they are counted from 1000. It must not call
	// the model.
	NewFD func(*EventQueue) (int32, error)
	// Polled: doorbells are seen by looking ([File.Poll]), not told. A second store
	// to a register may then hide a first one, and the model makes up for it.
	Polled bool
	// Privileged: the program has CAP_NET_RAW, without which Q_Keys with the
	// highest bit set are refused.
	Privileged bool
	// Counter: the page of the device's counter can be mapped. As ordinary memory does
	// not count, whoever serves the page calls [Mapping.Refresh] before the program reads it.
	Counter bool
	// Program is what [Model.Trace] calls the program, such as the number of its process.
	Program string
}

// File is an open device file: before GET_CONTEXT nothing but that, afterwards a
// verbs context. Its methods may be called from any goroutine.
type File struct {
	m       *Model
	dev     *Device
	mem     Memory
	polled  bool
	rights  bool // Privileged
	counter bool
	program string
	newFD   func(*EventQueue) (int32, error)
	lastFD  int32
	closed  bool

	ctx    *context
	queues map[int32]*EventQueue
	asyncs *EventQueue // the first one
	uars   map[uint32]*uar
}

// Open opens the device for a program with that memory, which must be there. After
// [Device.Fail] it fails with EIO.
func (d *Device) Open(mem Memory, o *OpenOptions) (*File, error) {
	if mem == nil {
		return nil, fmt.Errorf("model: device %s is opened without memory: a program in this process has Local{}", d.cfg.Name)
	}
	if o == nil {
		o = &OpenOptions{}
	}
	d.m.enter()
	defer d.m.leave()
	if d.gone {
		return nil, request.EIO
	}
	f := &File{m: d.m, dev: d, mem: mem, polled: o.Polled, rights: o.Privileged, counter: o.Counter, program: o.Program, newFD: o.NewFD, lastFD: 999, queues: make(map[int32]*EventQueue), uars: make(map[uint32]*uar)}
	if f.newFD == nil {
		f.newFD = func(*EventQueue) (int32, error) {
			f.lastFD++
			return f.lastFD, nil
		}
	}
	if t := d.m.tap.Memory; t != nil {
		f.mem = t(f.program, mem)
	}
	d.files = append(d.files, f)
	return f, nil
}

// Device is the device that is open.
func (f *File) Device() *Device { return f.dev }

// EventQueue finds the queue of a descriptor that an ioctl returned, nil if there
// is none.
func (f *File) EventQueue(fd int32) *EventQueue {
	f.m.enter()
	defer f.m.leave()
	return f.queues[fd]
}

// Close closes the file and destroys all objects. Event queues break off.
func (f *File) Close() error {
	f.m.enter()
	defer f.m.leave()
	if f.closed {
		return os.ErrClosed
	}
	f.closed = true
	for i, o := range f.dev.files {
		if o == f {
			f.dev.files = append(f.dev.files[:i:i], f.dev.files[i+1:]...)
			break
		}
	}
	if f.ctx != nil {
		f.ctx.destroyAll()
	}
	for _, e := range f.queues {
		e.breakOff()
	}
	return nil
}

// Ioctl runs RDMA_VERBS_IOCTL on req, a header and its attributes, as the kernel
// does; pointers in it are addresses of the program's memory. Handles, descriptors and
// flags are written back into req. The error is a request.Errno, or wraps one and
// says why.
func (f *File) Ioctl(req []byte) error {
	if len(req) < abi.SizeofUverbsIoctlHdr {
		return request.EINVAL
	}
	return f.ioctl(requestMemory{f.mem, req}, requestAt)
}

// IoctlAt is [File.Ioctl] of a request in the program's memory.
func (f *File) IoctlAt(addr uint64) error { return f.ioctl(f.mem, addr) }

func (f *File) ioctl(mem request.Memory, addr uint64) error {
	if err := f.misfortune(mem, addr); err != nil {
		return err
	}
	f.m.enter()
	defer f.m.leave()
	if t := f.m.tap.Request; t != nil {
		t(f.program, mem, addr)
	}
	c := &call{f: f}
	err := c.run(mem, addr)
	if f.m.observe != nil {
		f.tell(mem, addr, c.refs, err)
	}
	return err
}

// run reads the request and carries it out.
func (c *call) run(mem request.Memory, addr uint64) error {
	f := c.f
	switch {
	case f.closed:
		return os.ErrClosed
	case f.dev.gone:
		return request.EIO
	}
	r, err := request.Read(mem, addr, &request.Config{
		Driver: uint32(abi.RDMA_DRIVER_MLX5), PageSize: pageSize,
		Supports: func(m *abi.Method) bool { return f.supports(m) },
	})
	if err != nil {
		return err
	}
	c.Request = r
	id := methodID{r.Desc.Object, r.Desc.ID}
	// INVOKE_WRITE looks at its buffers before it asks for a context.
	if f.ctx == nil && id != getContext && id != invokeWrite {
		return request.EINVAL
	}
	f.recheck()
	if err = methods[id](c); err == nil {
		err = r.Finish()
	}
	if err != nil {
		for _, undo := range c.made {
			undo()
		}
	}
	return err
}

// misfortune is what faults do to an ioctl before it runs: it may be slow, and it may
// fail. The slow one sleeps without the lock.
func (f *File) misfortune(mem request.Memory, addr uint64) error {
	f.m.mu.Lock()
	slow, errno := f.m.faults.ioctl(f, mem, addr)
	if errno != 0 && f.m.observe != nil {
		f.tell(mem, addr, nil, refuse(errno, "a fault was injected"))
	}
	f.m.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow)
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// requestAt is where a request that came as bytes seems to be: no program has
// memory there.
const requestAt = 1 << 63

// requestMemory is the program's memory and a request beside it.
type requestMemory struct {
	Memory
	req []byte
}

func (m requestMemory) at(addr uint64, n int) ([]byte, error) {
	off := addr - requestAt
	if off > uint64(len(m.req)) || uint64(n) > uint64(len(m.req))-off {
		return nil, request.EFAULT
	}
	return m.req[off:][:n], nil
}

func (m requestMemory) Read(addr uint64, p []byte) error {
	if addr < requestAt {
		return m.Memory.Read(addr, p)
	}
	b, err := m.at(addr, len(p))
	copy(p, b)
	return err
}

func (m requestMemory) Write(addr uint64, p []byte) error {
	if addr < requestAt {
		return m.Memory.Write(addr, p)
	}
	b, err := m.at(addr, len(p))
	copy(b, p)
	return err
}
