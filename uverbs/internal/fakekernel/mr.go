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
	writable      bool // pinned for writing
	index, key    uint32
	pages         int    // pinned
	windows       int    // bound to it
	dmabuf        []byte // that it is of, if it is
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

	relaxedOrdering = uint32(abi.IB_UVERBS_ACCESS_RELAXED_ORDERING)

	remoteAny = remoteWrite | remoteRead | remoteAtomic
	knownMR   = localWrite | remoteAny | mwBind | zeroBased | hugeTLB | optionalMR
	writingMR = localWrite | remoteWrite | remoteAtomic | mwBind
)

// takesAccess says whether the driver makes regions with such rights.
func (d *device) takesAccess(access uint32) bool {
	known := knownMR
	if d.Linux62 {
		known |= accessFlushGlobal | accessFlushPersistent
	}
	if d.NoOptionalAccess {
		known &^= optionalMR
	}
	return access&^known == 0 &&
		access&accessFlushPersistent == 0 && // no memory here is
		(access&(remoteWrite|remoteAtomic) == 0 || access&localWrite != 0)
}

func (c *ioctl) regMR(cmd *abi.Command, in []byte) error {
	var q abi.UverbsRegMR
	if err := request.Fill(cmd, q.Bytes(), in); err != nil {
		return err
	}
	p, err := lookup[*pd](c.f.ctx, q.PDHandle)
	switch {
	case !soundRange(q.Start, q.Length, q.HCAVA), !c.f.dev.takesAccess(q.AccessFlags):
		return syscall.EINVAL
	case err != nil:
		return err
	}
	n, err := c.f.k.pin(q.Start, q.Length)
	if err != nil {
		return err
	}
	m := c.f.newMR(p, q.Start, q.Length, q.HCAVA, q.AccessFlags)
	m.pages = n
	return c.reply((&abi.UverbsRegMRResp{MRHandle: c.add(m), LKey: m.key, RKey: m.rkey()}).Bytes())
}

// soundRange says whether memory can be registered under an address.
func soundRange(start, length, iova uint64) bool {
	return (start^iova)&(pageSize-1) == 0 && length != 0 && start <= math.MaxUint64-length && iova <= math.MaxUint64-length
}

// pin pins the pages of a range, and says how many there are.
func (k *Kernel) pin(start, length uint64) (n int, err error) {
	first, last := start/pageSize, (start+length-1)/pageSize
	if last-first >= math.MaxInt32 {
		return 0, syscall.ENOMEM
	}
	n = int(last-first) + 1
	if !k.exempt && uint64(k.pages+n) > k.memlock/pageSize {
		return 0, syscall.ENOMEM
	}
	// Pinning makes the pages present. Only reading is tried: to write what
	// is there would race with the program.
	var b [1]byte
	for page := first; page <= last; page++ {
		if err := (memory{}).Read(max(page*pageSize, start), b[:]); err != nil {
			return 0, err
		}
	}
	k.pages += n
	return n, nil
}

// newMR makes a region with a key of its own.
func (f *file) newMR(p *pd, start, length, iova uint64, access uint32) *mr {
	k := f.k
	k.nextMR++
	m := &mr{
		k: k, dev: f.dev, pd: p, start: start, length: length, iova: iova,
		access: access, writable: access&writingMR != 0, index: k.nextMR, key: k.nextMR<<8 | k.keyByte(),
	}
	p.users++
	k.mrs[m.index] = m
	return m
}

// keyByte is the low byte of a key. It differs from key to key.
func (k *Kernel) keyByte() uint32 {
	k.nextKey = k.nextKey*5 + 1
	return k.nextKey & 0xff
}

// rkey is the key that peers get.
func (m *mr) rkey() uint32 {
	if m.access&remoteAny == 0 {
		return 0
	}
	return m.key
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
