package fakekernel

import (
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// srq is a shared receive queue.
type srq struct {
	ctx        *context
	pd         *pd
	receives   receives
	maxWR      uint32
	limit      uint32 // raises an event when fewer are left; 0 when it did
	userHandle uint64
	asyncFile  *events
	async      uint32
	users      int
}

func (*srq) kind() string { return "SRQ" }

// receives is a ring of receives, a queue pair's own or an SRQ's.
type receives struct {
	ring   *ring
	next   uint32 // the kernel's own consumer index
	maxSGE uint32
}

// Limits of soft-RoCE as Linux 6.1 reports them.
const (
	maxSRQWR  = 1 << 20
	maxSRQSGE = 27
)

func (c *ioctl) createSRQ() error {
	ctx := c.f.ctx
	if !c.f.dev.isRXE() {
		return syscall.EOPNOTSUPP
	}
	h, _ := c.Handle(abi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE)
	p, err := lookup[*pd](ctx, h)
	if err != nil {
		return err
	}
	s := &srq{ctx: ctx, pd: p}
	s.userHandle, _ = c.Uint64(abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE)
	if s.asyncFile, err = c.events(abi.UVERBS_ATTR_CREATE_SRQ_EVENT_FD, asyncFile); err != nil {
		return err
	}
	typ, _ := c.Const(abi.UVERBS_ATTR_CREATE_SRQ_TYPE)
	s.maxWR, _ = c.Uint32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR)
	s.limit, _ = c.Uint32(abi.UVERBS_ATTR_CREATE_SRQ_LIMIT)
	sge, _ := c.Uint32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE)
	switch {
	case typ != uint64(abi.IB_UVERBS_SRQT_BASIC):
		return syscall.EOPNOTSUPP
	case s.maxWR == 0, s.maxWR > maxSRQWR, sge > maxSRQSGE, s.limit > s.maxWR, c.UHWOutLen() < abi.SizeofRxeCreateSRQResp:
		return syscall.EINVAL
	}
	s.receives = receives{ring: ctx.newRing("the ring of an SRQ", int(s.maxWR), recvSGE+int(sge)*sgeSize), maxSGE: sge}
	p.users++
	if err := c.SetHandle(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE, c.add(s)); err != nil {
		return err
	}
	if err := c.setUint32(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, s.receives.ring.mask); err != nil {
		return err
	}
	if err := c.setUint32(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, sge); err != nil {
		return err
	}
	return c.set(abi.UVERBS_ATTR_UHW_OUT, (&abi.RxeCreateSRQResp{MI: s.receives.ring.info(), SRQNum: 0x20001}).Bytes())
}

func (c *ioctl) destroySRQ() error {
	h, _ := c.Handle(abi.UVERBS_ATTR_DESTROY_SRQ_HANDLE)
	s, err := lookup[*srq](c.f.ctx, h)
	if err != nil {
		return err
	}
	if s.users > 0 {
		return syscall.EBUSY
	}
	c.f.ctx.destroy(h, s)
	return c.set(abi.UVERBS_ATTR_DESTROY_SRQ_RESP, (&abi.UverbsDestroySRQResp{EventsReported: s.async}).Bytes())
}

func (s *srq) end() {
	s.ctx.asyncFile(s.asyncFile).forget(&s.async)
	s.pd.users--
	delete(s.ctx.pending, s.receives.ring.token)
}

func (c *ioctl) modifySRQ(cmd *abi.Command, in []byte) error {
	var r abi.UverbsModifySRQ
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	const maxWRMask, limitMask = 1, 2 // enum ib_srq_attr_mask
	s, err := lookup[*srq](c.f.ctx, r.SRQHandle)
	switch {
	case err != nil, len(c.UHWIn()) < abi.SizeofRxeModifySRQCmd, r.AttrMask&^(maxWRMask|limitMask) != 0:
		return syscall.EINVAL
	case r.AttrMask&limitMask != 0 && r.SRQLimit > s.receives.ring.mask:
		return syscall.EINVAL
	case r.AttrMask&maxWRMask != 0:
		if err := s.resize(c, r.MaxWR); err != nil {
			return err
		}
	}
	if r.AttrMask&limitMask != 0 {
		s.limit = r.SRQLimit
	}
	return nil
}

func (c *ioctl) querySRQ(cmd *abi.Command, in []byte) error {
	var r abi.UverbsQuerySRQ
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	s, err := lookup[*srq](c.f.ctx, r.SRQHandle)
	if err != nil {
		return syscall.EINVAL
	}
	return c.reply((&abi.UverbsQuerySRQResp{MaxWR: s.receives.ring.mask, MaxSGE: s.receives.maxSGE, SRQLimit: s.limit}).Bytes())
}

// taken is called when a receive was taken: it may be one of the last.
func (s *srq) taken() {
	r := &s.receives
	left := (r.ring.producer() - r.next) & r.ring.mask
	if s.limit != 0 && left < s.limit {
		s.limit = 0
		s.ctx.asyncOf(s.userHandle, s.asyncFile, eventSRQLimit, &s.async)
	}
}
