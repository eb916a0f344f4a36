package fakekernel

import (
	"math"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// pd is a protection domain.
type pd struct{ users int }

func (*pd) kind() string { return "PD" }

func (c *ioctl) destroyPD() error {
	h, _ := c.Handle(abi.UVERBS_ATTR_DESTROY_PD_HANDLE)
	p, err := lookup[*pd](c.f.ctx, h)
	if err != nil {
		return err
	}
	if p.users > 0 {
		return syscall.EBUSY
	}
	c.f.ctx.destroy(h, p)
	return nil
}

// mr is a memory region.
type mr struct {
	k             *Kernel
	dev           *device
	pd            *pd
	start, length uint64
	iova          uint64
	access        uint32
	index, key    uint32
	pages         int
	windows       int // bound to it
}

func (*mr) kind() string { return "MR" }

const (
	localWrite   = uint32(abi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	remoteWrite  = uint32(abi.IB_UVERBS_ACCESS_REMOTE_WRITE)
	remoteRead   = uint32(abi.IB_UVERBS_ACCESS_REMOTE_READ)
	remoteAtomic = uint32(abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC)
	mwBind       = uint32(abi.IB_UVERBS_ACCESS_MW_BIND)
	zeroBased    = uint32(abi.IB_UVERBS_ACCESS_ZERO_BASED)
	hugeTLB      = uint32(abi.IB_UVERBS_ACCESS_HUGETLB)
	optionalMR   = uint32(abi.IB_UVERBS_ACCESS_OPTIONAL_RANGE)

	remoteAny = remoteWrite | remoteRead | remoteAtomic
	knownMR   = localWrite | remoteAny | mwBind | zeroBased | hugeTLB | optionalMR
)

func (c *ioctl) regMR(cmd *abi.Command, in []byte) error {
	var q abi.UverbsRegMR
	if err := request.Fill(cmd, q.Bytes(), in); err != nil {
		return err
	}
	k := c.f.k
	p, err := lookup[*pd](c.f.ctx, q.PDHandle)
	switch {
	case (q.Start^q.HCAVA)&(pageSize-1) != 0,
		q.Length == 0, q.Start > math.MaxUint64-q.Length, q.HCAVA > math.MaxUint64-q.Length,
		q.AccessFlags&^knownMR != 0 && !(c.f.dev.Linux62 && q.AccessFlags&^(knownMR|accessFlushGlobal|accessFlushPersistent) == 0),
		q.AccessFlags&accessFlushPersistent != 0, // no memory here is
		q.AccessFlags&(remoteWrite|remoteAtomic) != 0 && q.AccessFlags&localWrite == 0:
		return syscall.EINVAL
	case err != nil:
		return err
	}
	first, last := q.Start/pageSize, (q.Start+q.Length-1)/pageSize
	if last-first >= math.MaxInt32 {
		return syscall.ENOMEM
	}
	n := int(last-first) + 1
	if !k.exempt && uint64(k.pages+n) > k.memlock/pageSize {
		return syscall.ENOMEM
	}
	// Pinning makes the pages present. Only reading is tried: to write what
	// is there would race with the program.
	var b [1]byte
	for page := first; page <= last; page++ {
		if err := (memory{}).Read(max(page*pageSize, q.Start), b[:]); err != nil {
			return err
		}
	}
	k.nextMR++
	k.nextKey = k.nextKey*5 + 1 // the low byte differs from key to key
	m := &mr{
		k: k, dev: c.f.dev, pd: p, start: q.Start, length: q.Length, iova: q.HCAVA, access: q.AccessFlags,
		index: k.nextMR, key: k.nextMR<<8 | k.nextKey&0xff, pages: n,
	}
	p.users++
	k.pages += n
	k.mrs[m.index] = m
	resp := abi.UverbsRegMRResp{MRHandle: c.add(m), LKey: m.key}
	if q.AccessFlags&remoteAny != 0 {
		resp.RKey = m.key
	}
	return c.reply(resp.Bytes())
}

func (c *ioctl) destroyMR() error {
	h, _ := c.Handle(abi.UVERBS_ATTR_DESTROY_MR_HANDLE)
	m, err := lookup[*mr](c.f.ctx, h)
	if err != nil {
		return err
	}
	if m.windows > 0 {
		return syscall.EINVAL // soft-RoCE's answer
	}
	c.f.ctx.destroy(h, m)
	return nil
}

func (m *mr) end() {
	m.pd.users--
	m.k.pages -= m.pages
	delete(m.k.mrs, m.index)
}

// contains says whether n bytes at addr are of the region.
func (m *mr) contains(addr, n uint64) bool {
	return addr >= m.iova && addr-m.iova <= m.length && n <= m.length-(addr-m.iova)
}

// region finds the memory that a key gives a queue pair the right to use: n
// bytes at addr, with all of the access bits.
func (k *Kernel) region(d *device, p *pd, key uint32, addr, n uint64, access uint32) (at uint64, ok bool) {
	m := k.mrs[key>>8]
	if m == nil || m.key != key || m.dev != d || m.pd != p || m.access&access != access {
		return 0, false
	}
	if !m.contains(addr, n) {
		return 0, false
	}
	return m.start + (addr - m.iova), true
}
