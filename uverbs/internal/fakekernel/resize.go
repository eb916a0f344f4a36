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

// resize gives an SRQ a new ring, as resizeCQ does. The program gets to know where
// it is at an address that is in the driver's part of the request.
func (s *srq) resize(c *ioctl, depth uint32) error {
	rq := &s.receives
	old := rq.ring
	count := (old.producer() - rq.next) & old.mask
	switch {
	case depth == 0, depth > maxSRQWR, s.limit != 0 && depth < s.limit:
		return syscall.EINVAL
	case depth < count:
		c.f.k.violation("an SRQ with %d receives is resized to %d: the driver frees its ring, and uses it with the next message", count, depth)
		return syscall.EINVAL
	}
	ring := s.ctx.newRing(old.what, int(depth), recvSGE+int(rq.maxSGE)*sgeSize)
	var cmd abi.RxeModifySRQCmd
	copy(cmd.Bytes(), c.UHWIn())
	info := ring.info()
	if (memory{}).Write(cmd.MmapInfoAddr, info.Bytes()) != nil {
		delete(s.ctx.pending, ring.token)
		c.f.k.violation("an SRQ is resized without an address for the new ring: the driver frees the old one, and uses it with the next message")
		return syscall.EFAULT
	}
	for i := range count {
		copy(ring.slot(i), old.slot(rq.next+i))
	}
	ring.setProducer(count)
	delete(s.ctx.pending, old.token)
	rq.ring, rq.next, s.maxWR = ring, 0, ring.mask
	return nil
}
