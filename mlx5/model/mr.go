package model

import (
	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// Access rights, of regions, windows and queue pairs.
const (
	localWrite   = uint32(abi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	remoteWrite  = uint32(abi.IB_UVERBS_ACCESS_REMOTE_WRITE)
	remoteRead   = uint32(abi.IB_UVERBS_ACCESS_REMOTE_READ)
	remoteAtomic = uint32(abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC)
	mwBind       = uint32(abi.IB_UVERBS_ACCESS_MW_BIND)
	zeroBased    = uint32(abi.IB_UVERBS_ACCESS_ZERO_BASED)
	optional     = uint32(abi.IB_UVERBS_ACCESS_OPTIONAL_RANGE)
	regionRights = localWrite | remoteWrite | remoteRead | remoteAtomic | mwBind | zeroBased | optional
)

// pd is a protection domain.
type pd struct {
	d     *Device
	pdn   uint32
	users int
}

func (p *pd) inUse() bool { return p.users > 0 }
func (p *pd) end()        { p.d.pds-- }
func (*pd) rank() int     { return rankPD }

func (c *call) allocPD(cmd *abi.Command, in []byte) error {
	d := c.f.dev
	if d.pds >= d.cfg.MaxPD {
		return refuse(request.ENOMEM, "max_pd reached")
	}
	p := &pd{d: d, pdn: d.nextPDN}
	d.nextPDN++
	d.pds++
	h := c.add(p)
	if err := c.reply((&abi.UverbsAllocPDResp{PDHandle: h}).Bytes()); err != nil {
		return err
	}
	return c.SetUHWOut((&abi.MLX5IBAllocPDResp{PDN: p.pdn}).Bytes())
}

func (c *call) destroyPD() error {
	_, err := destroyUnused[*pd](c, abi.UVERBS_ATTR_DESTROY_PD_HANDLE)
	return err
}

func (c *call) queryPD() error {
	p, _, err := lookup[*pd](c, abi.MLX5_IB_ATTR_QUERY_PD_HANDLE)
	if err != nil {
		return err
	}
	return c.setUint32(abi.MLX5_IB_ATTR_QUERY_PD_RESP_PDN, p.pdn)
}

// mkey is a memory region or window: what a key gives the right to use.
type mkey struct {
	f      *File
	key    uint32
	pd     *pd
	iova   uint64 // address that requests use
	start  uint64 // address in the program's memory
	length uint64
	access uint32

	window *mw // if it is one's
	// windows counts those that are bound to a region.
	windows int
}

func (k *mkey) inUse() bool { return k.windows > 0 }
func (*mkey) rank() int     { return rankMR }

func (k *mkey) end() {
	d := k.f.dev
	delete(d.keys, k.key>>8)
	d.mrs--
	k.pd.users--
}

// newKey makes the number of a region or window: an index that is not used again, and
// a byte that changes.
func (d *Device) newKey() uint32 {
	d.nextKey++
	return d.nextKey<<8 | d.nextKey*0x35&0xff
}

// Reasons why a key does not give a right: the low bits of vendor syndromes.
const (
	keyGood    = 0
	keyInvalid = 1
	keyPD      = 2
	keyAccess  = 3
	keyLength  = 4
)

// locate finds where in a program's memory a range of a key is.
func (k *mkey) locate(addr, n uint64, access uint32) (at uint64, reason uint8) {
	switch off := addr - k.iova; {
	case k.access&access != access:
		return 0, keyAccess
	case addr < k.iova, off > k.length, n > k.length-off:
		return 0, keyLength
	default:
		return k.start + off, keyGood
	}
}

// local finds memory that a queue pair may use itself, by an lkey.
func (q *qp) localKey(key uint32, addr, n uint64, access uint32) (k *mkey, at uint64, reason uint8) {
	k = q.d.keys[key>>8]
	switch {
	case k == nil || k.key != key || k.window != nil:
		return nil, 0, keyInvalid
	case k.pd != q.pd:
		return nil, 0, keyPD
	}
	at, reason = k.locate(addr, n, access)
	return k, at, reason
}

// remoteKey finds memory that the peer of a queue pair may use, by an rkey.
func (q *qp) remoteKey(key uint32, addr, n uint64, access uint32) (k *mkey, at uint64, reason uint8) {
	k = q.d.keys[key>>8]
	switch {
	case k == nil || k.key != key:
		return nil, 0, keyInvalid
	case k.pd != q.pd:
		return nil, 0, keyPD
	case k.window != nil && (k.window.mr == nil || k.window.typ == mwType2 && k.window.qp != q):
		return nil, 0, keyInvalid
	}
	at, reason = k.locate(addr, n, access)
	return k, at, reason
}

// checkRegion is what the core and the driver refuse of a registration.
func (f *File) checkRegion(start, length, iova uint64, access uint32) error {
	switch {
	case access&^regionRights != 0:
		return refuse(request.EINVAL, "unknown access rights")
	case access&(remoteWrite|remoteAtomic) != 0 && access&localWrite == 0:
		return refuse(request.EINVAL, "remote write or atomic access without local write access")
	case start%pageSize != iova%pageSize:
		return refuse(request.EINVAL, "the address and the device's address for it lie differently in their pages")
	case length == 0, start+length < start, iova+length < iova:
		return refuse(request.EINVAL, "no bytes, or beyond the end of the address space")
	}
	var b [1]byte
	for _, at := range []uint64{start, start + length - 1} {
		if f.mem.Read(at, b[:]) != nil {
			return refuse(request.EFAULT, "there is no memory")
		}
	}
	return nil
}

func (c *call) regMR(cmd *abi.Command, in []byte) error {
	var r abi.UverbsRegMR
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	p, err := lookupWrite[*pd](c, r.PDHandle)
	if err != nil {
		return err
	}
	if err := c.f.checkRegion(r.Start, r.Length, r.HCAVA, r.AccessFlags); err != nil {
		return err
	}
	d := c.f.dev
	if d.mrs >= d.cfg.MaxMR {
		return refuse(request.ENOMEM, "max_mr reached")
	}
	k := &mkey{f: c.f, key: d.newKey(), pd: p, iova: r.HCAVA, start: r.Start, length: r.Length, access: r.AccessFlags}
	d.keys[k.key>>8] = k
	d.mrs++
	p.users++
	return c.reply((&abi.UverbsRegMRResp{MRHandle: c.add(k), LKey: k.key, RKey: k.key}).Bytes())
}

// Flags of REREG_MR.
const (
	reregTranslation = 1 << iota
	reregPD
	reregAccess
)

func (c *call) reregMR(cmd *abi.Command, in []byte) error {
	var r abi.UverbsReregMR
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	k, err := lookupWrite[*mkey](c, r.MRHandle)
	if err != nil {
		return err
	}
	if r.Flags == 0 || r.Flags&^(reregTranslation|reregPD|reregAccess) != 0 {
		return refuse(request.EINVAL, "nothing to change, or unknown flags")
	}
	if k.windows > 0 {
		return refuse(request.EBUSY, "windows are bound to the region")
	}
	n := *k
	if r.Flags&reregTranslation != 0 {
		n.start, n.length, n.iova = r.Start, r.Length, r.HCAVA
	}
	if r.Flags&reregAccess != 0 {
		n.access = r.AccessFlags
	}
	if err := c.f.checkRegion(n.start, n.length, n.iova, n.access); err != nil {
		return err
	}
	if r.Flags&reregPD != 0 {
		if n.pd, err = lookupWrite[*pd](c, r.PDHandle); err != nil {
			return err
		}
		k.pd.users--
		n.pd.users++
	}
	// A new translation comes with a new key.
	if r.Flags&reregTranslation != 0 {
		delete(c.f.dev.keys, k.key>>8)
		n.key = c.f.dev.newKey()
	}
	*k = n
	c.f.dev.keys[k.key>>8] = k
	return c.reply((&abi.UverbsReregMRResp{LKey: k.key, RKey: k.key}).Bytes())
}

func (c *call) destroyMR() error {
	_, err := destroyUnused[*mkey](c, abi.UVERBS_ATTR_DESTROY_MR_HANDLE)
	return err
}

func (c *call) queryMR() error {
	k, _, err := lookup[*mkey](c, abi.UVERBS_ATTR_QUERY_MR_HANDLE)
	if err != nil {
		return err
	}
	if err := c.setUint32(abi.UVERBS_ATTR_QUERY_MR_RESP_LKEY, k.key); err != nil {
		return err
	}
	if err := c.setUint32(abi.UVERBS_ATTR_QUERY_MR_RESP_RKEY, k.key); err != nil {
		return err
	}
	if err := c.SetUint64(abi.UVERBS_ATTR_QUERY_MR_RESP_LENGTH, k.length); err != nil {
		return err
	}
	return c.SetUint64(abi.UVERBS_ATTR_QUERY_MR_RESP_IOVA, k.iova)
}
