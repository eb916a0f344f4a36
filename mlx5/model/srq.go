package model

import (
	"encoding/binary"
	"math/bits"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// srq is a shared receive queue. Its entries form a list through the first 16 bytes of
// each; the device follows it from entry 0 on, as far as the count in the doorbell
// record says that entries were posted.
type srq struct {
	f       *File
	d       *Device
	srqn    uint32
	pd      *pd
	users   int
	buf, db uint64
	entries uint32
	stride  uint32
	maxWR   uint32
	maxSGE  uint32

	head   uint16 // entry that is next
	taken  uint16 // how many were taken
	posted uint16 // as last read from the record
	limit  uint32 // raises an event when fewer are left; 0 when it did
	dead   bool

	userHandle uint64
	asyncFile  *EventQueue
	async      uint32
}

func (s *srq) inUse() bool { return s.users > 0 }
func (*srq) rank() int     { return rankSRQ }

func (s *srq) end() {
	s.pd.users--
	s.d.srqs--
	s.f.asyncQueue(s.asyncFile).forget(&s.async)
}

// createSRQLeast is how far the driver's part of the request must reach.
const createSRQLeast = 20

func (c *call) createSRQ() error {
	d, ctx := c.f.dev, c.f.ctx
	p, _, err := lookup[*pd](c, abi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE)
	if err != nil {
		return err
	}
	uhw := c.UHWIn()
	if len(uhw) < createSRQLeast {
		return refuse(request.EINVAL, "the driver's part of the request is too short")
	}
	var in abi.MLX5IBCreateSRQ
	copy(in.Bytes(), uhw)
	s := &srq{f: c.f, d: d, pd: p, buf: in.BufAddr, db: in.DBAddr}
	s.userHandle, _ = c.Uint64(abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE)
	if s.asyncFile, err = c.queue(abi.UVERBS_ATTR_CREATE_SRQ_EVENT_FD, false); err != nil {
		return err
	}
	typ, _ := c.Const(abi.UVERBS_ATTR_CREATE_SRQ_TYPE)
	s.maxWR, _ = c.Uint32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR)
	s.maxSGE, _ = c.Uint32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE)
	s.limit, _ = c.Uint32(abi.UVERBS_ATTR_CREATE_SRQ_LIMIT)
	switch {
	case typ != uint64(abi.IB_UVERBS_SRQT_BASIC):
		return refuse(request.EOPNOTSUPP, "no such type of shared receive queue")
	case in.Flags != 0 || in.Reserved0 != 0 || in.Reserved1 != 0:
		return refuse(request.EINVAL, "flags or reserved fields that the device has not")
	case ctx.version == 1 && len(uhw) >= abi.SizeofMLX5IBCreateSRQ && in.Uidx > noUserIndex:
		return refuse(request.EINVAL, "user indices have 24 bits")
	case s.maxWR == 0 || s.maxWR > maxSharedWR:
		return refuse(request.EINVAL, "no entries, or more than max_srq_wr")
	case s.maxSGE > maxSharedSGE:
		return refuse(request.EINVAL, "more than max_srq_sge")
	case s.limit > s.maxWR:
		return refuse(request.EINVAL, "the limit is beyond the size")
	case d.srqs >= d.cfg.MaxSRQ:
		return refuse(request.ENOMEM, "max_srq reached")
	}
	s.entries = 1 << bits.Len32(s.maxWR)
	s.stride = 32
	for s.stride < segmentBytes*(1+s.maxSGE) {
		s.stride *= 2
	}
	if err := c.f.checkRing(s.buf, uint64(s.entries)*uint64(s.stride), s.db); err != nil {
		return err
	}
	s.srqn = d.nextSRQN
	d.nextSRQN++
	d.srqs++
	p.users++
	if _, err := c.addTo(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE, s); err != nil {
		return err
	}
	for attr, v := range map[uint16]uint32{
		abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR: s.entries - 1, abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE: s.maxSGE, abi.UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM: s.srqn,
	} {
		if err := c.setUint32(attr, v); err != nil {
			return err
		}
	}
	return c.SetUHWOut((&abi.MLX5IBCreateSRQResp{SRQN: s.srqn}).Bytes())
}

func (c *call) destroySRQ() error {
	s, err := destroyUnused[*srq](c, abi.UVERBS_ATTR_DESTROY_SRQ_HANDLE)
	if err != nil {
		return err
	}
	return c.setUint32(abi.UVERBS_ATTR_DESTROY_SRQ_RESP, s.async)
}

func (c *call) modifySRQ(cmd *abi.Command, in []byte) error {
	var r abi.UverbsModifySRQ
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	const maxWRMask, limitMask = 1, 2 // enum ib_srq_attr_mask
	s, err := lookupWrite[*srq](c, r.SRQHandle)
	switch {
	case err != nil:
		return err
	case r.AttrMask&maxWRMask != 0:
		return refuse(request.EINVAL, "the device cannot change the size")
	case r.AttrMask&^limitMask != 0:
		return refuse(request.EINVAL, "unknown attributes")
	case r.AttrMask&limitMask != 0 && r.SRQLimit >= s.entries:
		return refuse(request.EINVAL, "the limit is beyond the size")
	}
	if r.AttrMask&limitMask != 0 {
		s.limit = r.SRQLimit
		s.load()
		s.checkLimit()
	}
	return nil
}

func (c *call) querySRQ(cmd *abi.Command, in []byte) error {
	var r abi.UverbsQuerySRQ
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	s, err := lookupWrite[*srq](c, r.SRQHandle)
	if err != nil {
		return err
	}
	return c.reply((&abi.UverbsQuerySRQResp{MaxWR: s.entries - 1, MaxSGE: s.maxSGE, SRQLimit: s.limit}).Bytes())
}

// load reads how many entries were posted.
func (s *srq) load() {
	v, err := s.f.mem.Load32(s.db)
	if err != nil {
		return
	}
	if n := uint16(v) - s.taken; uint32(n) > s.entries {
		s.d.m.violation("SRQ %#x: its doorbell record says that %d entries are posted, of %d", s.srqn, n, s.entries)
		s.fail()
		return
	}
	s.posted = uint16(v)
}

// fail is an error of the whole queue.
func (s *srq) fail() {
	if !s.dead {
		s.dead = true
		s.f.async(s.asyncFile, s.userHandle, eventSRQErr, &s.async)
	}
}

// next reads the entry that is to be taken next to b. It says false if there is
// none.
func (s *srq) next(b []byte) (index uint16, ok bool) {
	if s.posted == s.taken && !s.dead {
		s.load()
	}
	if s.dead || s.posted == s.taken {
		return 0, false
	}
	if s.f.mem.Read(s.buf+uint64(s.head)*uint64(s.stride), b[:s.stride]) != nil {
		s.fail()
		return 0, false
	}
	return s.head, true
}

// take takes the entry that next read.
func (s *srq) take(b []byte) {
	next := binary.BigEndian.Uint16(b[2:])
	s.taken++
	if uint32(next) >= s.entries {
		s.d.m.violation("SRQ %#x: entry %d says that the next one is %d, of %d", s.srqn, s.head, next, s.entries)
		s.fail()
		return
	}
	s.head = next
	if s.limit != 0 {
		s.load()
		s.checkLimit()
	}
}

// checkLimit raises the event of the limit, once.
func (s *srq) checkLimit() {
	if s.limit != 0 && uint32(s.posted-s.taken) < s.limit {
		s.limit = 0
		s.f.async(s.asyncFile, s.userHandle, eventSRQLimit, &s.async)
	}
}
