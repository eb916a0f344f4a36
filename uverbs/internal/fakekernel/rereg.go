package fakekernel

import (
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// Bits of enum ib_mr_rereg_flags.
const (
	reregTrans  = 1 << 0
	reregPD     = 1 << 1
	reregAccess = 1 << 2
)

// reregMR changes a region, in the order of checks of ib_uverbs_rereg_mr.
func (c *ioctl) reregMR(cmd *abi.Command, in []byte) error {
	var q abi.UverbsReregMR
	if err := request.Fill(cmd, q.Bytes(), in); err != nil {
		return err
	}
	k, dev := c.f.k, c.f.dev
	switch {
	case dev.Rereg == 0:
		return syscall.EOPNOTSUPP
	case q.Flags == 0:
		return syscall.EINVAL
	case q.Flags&^(reregTrans|reregPD|reregAccess) != 0:
		return syscall.EOPNOTSUPP
	case q.Flags&reregTrans != 0 && !soundRange(q.Start, q.Length, q.HCAVA):
		return syscall.EINVAL
	}
	m, err := lookup[*mr](c.f.ctx, q.MRHandle)
	if err != nil {
		return err
	}
	if q.Flags&reregAccess != 0 && !dev.takesAccess(q.AccessFlags) {
		return syscall.EINVAL
	}
	p := m.pd
	if q.Flags&reregPD != 0 {
		if p, err = lookup[*pd](c.f.ctx, q.PDHandle); err != nil {
			return err
		}
	}
	if q.Flags&^dev.Rereg != 0 {
		return syscall.EOPNOTSUPP
	}
	if m.windows > 0 {
		k.violation("a region with %d windows bound to it is re-registered", m.windows)
	}
	access := m.access
	if q.Flags&reregAccess != 0 {
		access = q.AccessFlags
	}
	if q.Flags&reregTrans != 0 {
		n, err := k.pin(q.Start, q.Length)
		if err != nil {
			return err
		}
		k.pages -= m.pages
		m.pages, m.start, m.length, m.iova = n, q.Start, q.Length, q.HCAVA
		m.writable = access&writingMR != 0
		m.key = m.key&^0xff | k.keyByte()
	}
	if access&writingMR != 0 && !m.writable {
		k.violation("a region that was pinned for reading gets the rights %#x: the device would write to read-only pages", access)
	}
	m.pd.users--
	p.users++
	m.pd, m.access = p, access
	return c.reply((&abi.UverbsReregMRResp{LKey: m.key, RKey: m.rkey()}).Bytes())
}
