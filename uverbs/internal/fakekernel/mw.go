package fakekernel

import (
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// mw is a memory window of type 2B.
type mw struct {
	k    *Kernel
	dev  *device
	pd   *pd
	qp   *qp // that it is bound through; nil when it is free
	mr   *mr // that it opens
	rkey uint32

	addr, length uint64
	access       uint32
}

func (*mw) kind() string { return "MW" }

// firstMW is where soft-RoCE's indices of windows begin, above those of regions.
const firstMW = 1 << 19

func (c *ioctl) allocMW(cmd *abi.Command, in []byte) error {
	var r abi.UverbsAllocMW
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	k := c.f.k
	p, err := lookup[*pd](c.f.ctx, r.PDHandle)
	switch {
	case !c.f.dev.isRXE():
		return syscall.EOPNOTSUPP
	case err != nil, r.MWType != 2:
		return syscall.EINVAL
	}
	index := uint32(firstMW)
	for k.mws[index] != nil {
		index++
	}
	w := &mw{k: k, dev: c.f.dev, pd: p, rkey: index<<8 | k.keyByte()}
	k.mws[index] = w
	p.users++
	return c.reply((&abi.UverbsAllocMWResp{MWHandle: c.add(w), RKey: w.rkey}).Bytes())
}

func (c *ioctl) destroyMW() error {
	h, _ := c.Handle(abi.UVERBS_ATTR_DESTROY_MW_HANDLE)
	w, err := lookup[*mw](c.f.ctx, h)
	if err != nil {
		return err
	}
	c.f.ctx.destroy(h, w)
	return nil
}

func (w *mw) end() {
	w.unbind()
	w.pd.users--
	delete(w.k.mws, w.rkey>>8)
}

func (w *mw) unbind() {
	if w.mr != nil {
		w.mr.windows--
	}
	w.qp, w.mr = nil, nil
}

// window is the arm of a send request that binds a window.
type window struct {
	addr, length    uint64
	lkey, old, rkey uint32
	access          uint32
}

// bind carries out a request that binds a window.
func (q *qp) bind(b *window) uint32 {
	k := q.ctx.k
	w, m := k.mws[b.old>>8], k.mrs[b.lkey>>8]
	switch {
	case w == nil, w.rkey != b.old, w.dev != q.ctx.dev, w.pd != q.pd, w.qp != nil,
		m == nil, m.key != b.lkey, m.access&mwBind == 0, b.length == 0,
		b.access&(remoteWrite|remoteAtomic) != 0 && m.access&localWrite == 0,
		!m.contains(b.addr, b.length):
		return statusMWBind
	}
	w.qp, w.mr, w.addr, w.length, w.access = q, m, b.addr, b.length, b.access
	w.rkey = w.rkey&^0xff | b.rkey&0xff
	m.windows++
	return statusOK
}

// invalidate takes a key away. Only windows have keys that can be taken: regions
// do if the kernel made them.
func (q *qp) invalidate(rkey uint32) bool {
	w := q.ctx.k.mws[rkey>>8]
	if w == nil || w.rkey != rkey {
		return false
	}
	if w.qp == nil {
		q.ctx.k.violation("an invalidation of a window that is not bound: Linux 6.1 and 6.12 crash")
		return false
	}
	w.unbind()
	return true
}

// remote finds the memory that a key gives the peer of p the right to use. The
// bounds of a window count here, other than in soft-RoCE.
func (k *Kernel) remote(p *qp, rkey uint32, addr, n uint64, access uint32) (at uint64, ok bool) {
	if rkey>>8 < firstMW {
		return k.region(p.ctx.dev, p.pd, rkey, addr, n, access)
	}
	w := k.mws[rkey>>8]
	if w == nil || w.rkey != rkey || w.qp != p || w.access&access != access ||
		addr < w.addr || addr-w.addr > w.length || n > w.length-(addr-w.addr) {
		return 0, false
	}
	return w.mr.start + (addr - w.mr.iova), true
}

// leftWindows reports a queue pair that is destroyed before its windows.
func (q *qp) leftWindows() {
	for _, w := range q.ctx.k.mws {
		if w.qp == q {
			q.ctx.k.violation("QP %d is destroyed with a window bound through it: Linux waits 50 seconds and complains", q.number)
			w.unbind()
		}
	}
}
