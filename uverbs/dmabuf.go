package uverbs

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"github.com/goverbs/goverbs/abi"
)

// RegisterDMABuf makes length bytes of a dma-buf, from its byte offset on, a
// memory region of the protection domain. A dma-buf is memory that another
// driver has exported as a file descriptor, such as memory of a GPU; the program
// need not be able to touch it, so the region has no Go slice. Spans and Remote
// work as with any region: by offset from its beginning.
//
// iova is the address by which peers name the first byte. It may be any that
// lies as far from the beginning of a page as offset does: offset itself, or
// where the program has mapped the memory.
//
// fd is borrowed for the call and may be closed afterwards: the kernel holds the
// dma-buf until the region is closed.
//
// It takes Linux 5.12 and a driver that imports dma-bufs, which soft-RoCE does
// not: ErrNotSupported. Rights are LocalWrite, RemoteWrite, RemoteRead,
// RemoteAtomic and RelaxedOrdering.
func (pd *PD) RegisterDMABuf(fd int, offset, length, iova uint64, access Access) (*MR, error) {
	const op = "register dma-buf"
	d := pd.dev
	page := uint64(d.kernel.PageSize())
	switch {
	case fd < 0 || fd > math.MaxInt32:
		return nil, invalid("%s: descriptor %d", op, fd)
	case length == 0:
		return nil, invalid("%s: 0 bytes: a memory region cannot be empty", op)
	case length > math.MaxInt || offset > math.MaxUint64-length || iova > math.MaxUint64-length:
		return nil, invalid("%s: %d bytes at offset %d and iova %#x: they end beyond what can be addressed", op, length, offset, iova)
	case (offset^iova)&(page-1) != 0:
		return nil, invalid("%s: iova %#x at offset %#x: they must be equal modulo the page size, %d", op, iova, offset, page)
	case access&^dmabufAccess != 0:
		return nil, invalid("%s: %v: allowed are %v", op, access, dmabufAccess)
	}
	access, err := d.regionAccess(op, access, dmabufAccess)
	if err != nil {
		return nil, err
	}
	done, err := d.making(kindMR, &pd.object)
	if err != nil {
		return nil, err
	}
	defer done()
	lkey, rkey := make([]byte, 4), make([]byte, 4)
	q := newRequest(d.driver, abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_REG_DMABUF_MR)
	q.create(abi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE)
	q.handle(abi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd.handle)
	q.in64(abi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset)
	q.in64(abi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length)
	q.in64(abi.UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova)
	q.in32(abi.UVERBS_ATTR_REG_DMABUF_MR_FD, uint32(fd))
	q.in32(abi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, uint32(access))
	q.out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, lkey)
	q.out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, rkey)
	if err := d.call(op, q); err != nil {
		return nil, d.explainDMABuf(err, fd)
	}
	mr := newMR(&region{
		pd: pd, dmabuf: true, addr: iova, length: int(length), usable: int(length), access: access, writable: access&writingAccess != 0,
		lkey: native.Uint32(lkey), rkey: native.Uint32(rkey),
	})
	mr.handle = uint32(q.result(abi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE))
	return mr.enter()
}

// explainDMABuf adds the causes that people look for.
func (d *Device) explainDMABuf(err error, fd int) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case isErrno(err, syscall.EPROTONOSUPPORT):
		e.Hint = "Linux has dma-buf regions from 5.12 on"
	case isErrno(err, syscall.EOPNOTSUPP):
		e.Hint = fmt.Sprintf("the driver %v does not import dma-bufs; mlx5, efa and irdma do", d.info.Driver)
	case isErrno(err, syscall.EBADF):
		e.Hint = fmt.Sprintf("descriptor %d is not open", fd)
	case isErrno(err, syscall.EINVAL):
		e.Hint = fmt.Sprintf("descriptor %d may be no dma-buf, or one of fewer bytes", fd)
	}
	return err
}
