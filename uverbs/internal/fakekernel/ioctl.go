package fakekernel

import (
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// Ioctl implements [kernel.File].
func (f *file) Ioctl(req []byte) error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	call := describe(req)
	if err := f.begin(call); err != nil {
		return err
	}
	if len(req) < abi.SizeofUverbsIoctlHdr || int(binary.NativeEndian.Uint16(req)) > len(req) {
		return syscall.EINVAL // as package kernel
	}
	r, err := request.Read(memory{}, addressOf(req), &request.Config{
		Driver: uint32(f.dev.Driver), PageSize: pageSize,
		Supports: func(m *abi.Method) bool {
			_, ok := methods[Method{m.Object, m.ID}]
			return ok && !f.dev.lacks(m.Object, m.ID)
		},
	})
	if err != nil {
		return errno(err)
	}
	m := Method{r.Desc.Object, r.Desc.ID}
	c := &ioctl{Request: r, f: f, call: call}
	// INVOKE_WRITE looks at its buffers before it asks for a context.
	if f.ctx == nil && m != getContext && m != invokeWrite {
		return syscall.EINVAL
	}
	err = methods[m](c)
	if err == nil {
		err = r.Finish()
	}
	if err != nil {
		for _, undo := range c.made {
			undo()
		}
	}
	return errno(err)
}

// describe finds out what a request asks for, as far as it can be read.
func describe(req []byte) Call {
	c := Call{Op: Ioctl}
	if len(req) < abi.SizeofUverbsIoctlHdr {
		return c
	}
	c.Method = Method{binary.NativeEndian.Uint16(req[2:]), binary.NativeEndian.Uint16(req[4:])}
	if c.Method != invokeWrite {
		return c
	}
	for a := req[abi.SizeofUverbsIoctlHdr:]; len(a) >= abi.SizeofUverbsAttr; a = a[abi.SizeofUverbsAttr:] {
		if binary.NativeEndian.Uint16(a) == abi.UVERBS_ATTR_WRITE_CMD {
			c.Command = uint32(binary.NativeEndian.Uint64(a[8:]))
		}
	}
	return c
}

// ioctl is one ioctl while it runs.
type ioctl struct {
	*request.Request
	f    *file
	call Call
	// made takes back what the call made, for when it fails in the end.
	made []func()
}

// add enters a new object.
func (c *ioctl) add(o object) uint32 {
	h := c.f.ctx.add(o)
	c.made = append(c.made, func() { c.f.ctx.destroy(h, o) })
	return h
}

// newEvents makes a new event file.
func (c *ioctl) newEvents(kind eventKind) (*events, error) {
	e, err := c.f.k.newEvents(c.f.dev, kind)
	if err == nil {
		c.made = append(c.made, func() { e.close() })
	}
	return e, err
}

// set fills an output attribute, through the tampering that a test asked for.
func (c *ioctl) set(attr uint16, b []byte) error {
	if tamper := c.f.k.faults.tamper; tamper != nil {
		b = tamper(c.call, attr, b)
	}
	return c.SetOut(attr, b)
}

func (c *ioctl) setUint32(attr uint16, v uint32) error {
	return c.set(attr, binary.NativeEndian.AppendUint32(nil, v))
}

func (c *ioctl) setUint64(attr uint16, v uint64) error {
	return c.set(attr, binary.NativeEndian.AppendUint64(nil, v))
}

var (
	getContext  = Method{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT}
	invokeWrite = Method{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE}
)

// methods are the methods that the fake kernel has.
var methods map[Method]func(*ioctl) error

func init() {
	methods = map[Method]func(*ioctl) error{
		invokeWrite: (*ioctl).invokeWrite,
		getContext:  (*ioctl).getContext,
		{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT}:             (*ioctl).queryPort,
		{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_TABLE}:        (*ioctl).queryGIDTable,
		{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_ENTRY}:        (*ioctl).queryGIDEntry,
		{abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}: (*ioctl).asyncAlloc,
		{abi.UVERBS_OBJECT_PD, abi.UVERBS_METHOD_PD_DESTROY}:                 (*ioctl).destroyPD,
		{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_MR_DESTROY}:                 (*ioctl).destroyMR,
		{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_REG_DMABUF_MR}:              (*ioctl).regDMABuf,
		{abi.UVERBS_OBJECT_MW, abi.UVERBS_METHOD_MW_DESTROY}:                 (*ioctl).destroyMW,
		{abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE}:                  (*ioctl).createCQ,
		{abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY}:                 (*ioctl).destroyCQ,
		{abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE}:                  (*ioctl).createQP,
		{abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_DESTROY}:                 (*ioctl).destroyQP,
		{abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_CREATE}:                (*ioctl).createSRQ,
		{abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_DESTROY}:               (*ioctl).destroySRQ,
		{abi.UVERBS_OBJECT_AH, abi.UVERBS_METHOD_AH_DESTROY}:                 (*ioctl).destroyAH,
	}
}

// errno turns errors of the request reader into the numbers of this system.
func errno(err error) error {
	if err == nil {
		return nil
	}
	var here syscall.Errno
	if errors.As(err, &here) {
		return here
	}
	for linux, here := range errnos {
		if request.ErrnoOf(err) == linux {
			return here
		}
	}
	return syscall.EIO
}

var errnos = map[request.Errno]syscall.Errno{
	request.EPERM: syscall.EPERM, request.ENOENT: syscall.ENOENT, request.EIO: syscall.EIO, request.EBADF: syscall.EBADF,
	request.EAGAIN: syscall.EAGAIN, request.ENOMEM: syscall.ENOMEM, request.EACCES: syscall.EACCES,
	request.EFAULT: syscall.EFAULT, request.EBUSY: syscall.EBUSY, request.EINVAL: syscall.EINVAL,
	request.ENOTTY: syscall.ENOTTY, request.ENOSPC: syscall.ENOSPC, request.ENOSYS: syscall.ENOSYS,
	request.ENODATA: syscall.ENODATA, request.EPROTONOSUPPORT: syscall.EPROTONOSUPPORT, request.EOPNOTSUPP: syscall.EOPNOTSUPP,
}
