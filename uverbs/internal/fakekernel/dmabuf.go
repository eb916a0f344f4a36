package fakekernel

import (
	"math"
	"syscall"

	"github.com/goverbs/goverbs/abi"
)

// firstDMABuf is where the descriptors of dma-bufs begin. They stand for nothing
// outside of this kernel.
const firstDMABuf = 1 << 20

// NewDMABuf makes a dma-buf of memory and returns a descriptor.
func (k *Kernel) NewDMABuf(b []byte) (fd int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dmabufs == nil {
		k.dmabufs = make(map[int][]byte)
	}
	fd = firstDMABuf
	for k.dmabufs[fd] != nil {
		fd++
	}
	k.dmabufs[fd] = b
	return fd
}

// CloseDMABuf closes a descriptor. Regions of the dma-buf keep it.
func (k *Kernel) CloseDMABuf(fd int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.dmabufs, fd)
}

// regDMABuf makes a region of a dma-buf, in the order of checks of
// drivers/infiniband/core/uverbs_std_types_mr.c.
func (c *ioctl) regDMABuf() error {
	k := c.f.k
	h, _ := c.Handle(abi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE)
	p, err := lookup[*pd](c.f.ctx, h)
	if err != nil {
		return err
	}
	if !c.f.dev.DMABuf {
		return syscall.EOPNOTSUPP
	}
	offset, _ := c.Uint64(abi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET)
	length, _ := c.Uint64(abi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH)
	iova, _ := c.Uint64(abi.UVERBS_ATTR_REG_DMABUF_MR_IOVA)
	number, _ := c.Uint32(abi.UVERBS_ATTR_REG_DMABUF_MR_FD)
	fd := int(int32(number))
	if (offset^iova)&(pageSize-1) != 0 {
		return syscall.EINVAL
	}
	flags, err := c.Flags(abi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, uint64(localWrite|remoteAny|relaxedOrdering))
	if err != nil {
		return err
	}
	access := uint32(flags)
	if !c.f.dev.takesAccess(access) {
		return syscall.EINVAL
	}
	b, ok := k.dmabufs[fd]
	switch {
	case !ok && k.fds[fd] != nil:
		return syscall.EINVAL // open, but no dma-buf
	case !ok:
		return syscall.EBADF
	case length == 0, offset > uint64(len(b)), length > uint64(len(b))-offset, iova > math.MaxUint64-length:
		return syscall.EINVAL
	}
	m := c.f.newMR(p, addressOf(b)+offset, length, iova, access)
	m.dmabuf = b
	if err := c.SetHandle(abi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE, c.add(m)); err != nil {
		return err
	}
	if err := c.setUint32(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, m.key); err != nil {
		return err
	}
	return c.setUint32(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, m.rkey())
}
