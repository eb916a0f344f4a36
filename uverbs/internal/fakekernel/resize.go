package fakekernel

import (
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// resizeCQ gives a completion queue a new ring, with what was in the old one at
// its beginning. The old one stays mapped and is dead.
func (c *ioctl) resizeCQ(cmd *abi.Command, in []byte) error {
	var r abi.UverbsResizeCQ
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	q, err := lookup[*cq](c.f.ctx, r.CQHandle)
	if err != nil {
		return syscall.EINVAL // the write interface's word for it
	}
	old := q.ring
	consumer := old.consumer() & old.mask
	count := (q.producer - consumer) & old.mask
	if r.CQE == 0 || int(r.CQE) > c.f.dev.MaxCQE || r.CQE < count || c.UHWOutLen() < abi.SizeofRxeResizeCQResp {
		return syscall.EINVAL
	}
	delete(c.f.ctx.pending, old.token)
	q.ring = c.f.ctx.newRing("the ring of a CQ", int(r.CQE), c.f.dev.CQEStride)
	for i := range count {
		copy(q.ring.slot(i), old.slot(consumer+i))
	}
	q.producer = count
	q.ring.setProducer(count)
	if err := c.reply((&abi.UverbsResizeCQResp{CQE: q.ring.mask}).Bytes()); err != nil {
		return err
	}
	return c.set(abi.UVERBS_ATTR_UHW_OUT, (&abi.RxeResizeCQResp{MI: q.ring.info()}).Bytes())
}
