package model

import (
	"math/bits"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// Words of the doorbell record of a completion queue.
const (
	recordCI  = 0
	recordArm = 4
)

// indexMask is how many bits consumer indices have in records and doorbells.
const indexMask = 1<<24 - 1

// neverArmed is what a polled model puts into the arm word: no arm writes it, so a
// doorbell that was overwritten before it was seen can be told from none. The
// driver never reads the word.
const neverArmed = 1<<32 - 1

// cq is a completion queue.
type cq struct {
	f     *File
	d     *Device
	cqn   uint32
	users int

	buf, db uint64
	entries uint32
	size    uint32 // of an entry
	uar     *uar   // at which it is armed

	compress      bool
	ignoreOverrun bool
	realTime      bool
	stamps        bool // IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION

	producer uint32
	consumer uint32 // as last read from the record, or smaller
	dead     bool   // it overran

	userHandle  uint64
	channel     *EventQueue
	asyncFile   *EventQueue
	comp, async uint32 // events that the program read

	// Arming.
	armed         armState
	serial        uint32 // how many events there were, modulo 4
	notified      uint32 // producer at the last event
	lastSolicited uint32 // index behind the last solicited completion
	everSolicited bool
	seenArm       uint32 // arm word when it was last looked at, for polling

	// Moderation.
	maxCount uint16
	period   time.Duration
	timer    *time.Timer

	// held are completions that a fault keeps back.
	held     []completion
	holding  bool
	holdings int

	// session are completions that wait to be compressed.
	session []completion
}

func (q *cq) inUse() bool { return q.users > 0 }
func (*cq) rank() int     { return rankCQ }

func (q *cq) end() {
	q.stopTimer()
	q.dead = true
	q.d.cqs--
	delete(q.d.cqTable, q.cqn)
	if q.uar != nil {
		q.uar.users--
	}
	if q.channel != nil {
		q.channel.forget(&q.comp)
	}
	q.f.asyncQueue(q.asyncFile).forget(&q.async)
}

func (q *cq) stopTimer() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
}

// createFlags are those that the driver knows.
const createCQFlags = uint16(abi.MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD | abi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX | abi.MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS)

// Lengths up to which the driver's part of requests must reach.
const (
	createCQLeast = 22
	cqeBytes      = 64
	bigCQEBytes   = 128
)

func (c *call) createCQ() error {
	d, ctx := c.f.dev, c.f.ctx
	uhw := c.UHWIn()
	if len(uhw) < createCQLeast {
		return refuse(request.EINVAL, "the driver's part of the request is too short")
	}
	var in abi.MLX5IBCreateCQ
	copy(in.Bytes(), uhw)
	cqe, _ := c.Uint32(abi.UVERBS_ATTR_CREATE_CQ_CQE)
	vector, _ := c.Uint32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR)
	q := &cq{f: c.f, d: d, buf: in.BufAddr, db: in.DBAddr, size: in.CQESize, seenArm: neverArmed}
	q.userHandle, _ = c.Uint64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE)
	var err error
	if q.channel, err = c.queue(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, true); err != nil {
		return err
	}
	if q.asyncFile, err = c.queue(abi.UVERBS_ATTR_CREATE_CQ_EVENT_FD, false); err != nil {
		return err
	}
	const timestamps, ignoreOverrun = 1, 2 // enum ib_uverbs_ex_create_cq_flags
	flags, err := c.Flags(abi.UVERBS_ATTR_CREATE_CQ_FLAGS, timestamps|ignoreOverrun)
	switch {
	case err != nil:
		return err
	case int64(vector) >= int64(d.cfg.Vectors):
		return refuse(request.EINVAL, "no such completion vector")
	case cqe == 0 || cqe > d.cfg.MaxCQE:
		return refuse(request.EINVAL, "no entries, or more than max_cqe")
	case in.Flags&^createCQFlags != 0 || in.Reserved0 != 0 || in.Reserved1 != 0:
		return refuse(request.EINVAL, "unknown flags or reserved fields of the driver's request")
	case in.CQESize != cqeBytes && in.CQESize != bigCQEBytes:
		return refuse(request.EINVAL, "entries have 64 or 128 bytes")
	case in.Flags&uint16(abi.MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD) != 0 && in.CQESize != bigCQEBytes:
		return refuse(request.EOPNOTSUPP, "padding to 128 bytes of entries of 64")
	case in.CQECompEn == 1 && d.cfg.NoCompression:
		return refuse(request.EOPNOTSUPP, "the device compresses no completions")
	case in.CQECompEn == 1 && (in.CQECompResFormat == 0 || bits.OnesCount8(in.CQECompResFormat) != 1 || uint32(in.CQECompResFormat)&^miniFormats != 0):
		return refuse(request.EOPNOTSUPP, "no such format of compressed completions")
	case d.cqs >= d.cfg.MaxCQ:
		return refuse(request.ENOMEM, "max_cq reached")
	}
	if ctx.dynamic {
		page, byAttr := c.Uint32(abi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX)
		if !byAttr {
			if in.Flags&uint16(abi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) == 0 {
				return refuse(request.EINVAL, "a context with dynamic UARs, and no UAR named")
			}
			page = uint32(in.UARPageIndex)
		}
		if q.uar = c.f.uars[page]; q.uar == nil {
			return refuse(request.EINVAL, "the context has no such UAR")
		}
	} else {
		q.uar = ctx.static[0]
	}
	q.entries = 1 << bits.Len32(cqe)
	q.compress = in.CQECompEn == 1 // other values mean nothing to the driver
	q.ignoreOverrun = flags&ignoreOverrun != 0
	q.stamps = flags&timestamps != 0
	q.realTime = in.Flags&uint16(abi.MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS) != 0
	if err := c.f.checkRing(q.buf, uint64(q.entries)*uint64(q.size), q.db); err != nil {
		return err
	}
	q.checkOwners()
	if c.f.polled {
		if c.f.mem.Write(q.db+recordArm, []byte{0xff, 0xff, 0xff, 0xff}) != nil {
			return refuse(request.EFAULT, "there is no doorbell record")
		}
	}
	q.cqn = d.nextCQN
	d.nextCQN++
	d.cqs++
	d.cqTable[q.cqn] = q
	q.uar.users++
	if _, err := c.addTo(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, q); err != nil {
		return err
	}
	if err := c.setUint32(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, q.entries-1); err != nil {
		return err
	}
	return c.SetUHWOut((&abi.MLX5IBCreateCQResp{CQN: q.cqn}).Bytes())
}

// checkRing is what pinning a ring and its doorbell record refuses.
func (f *File) checkRing(buf, n, db uint64) error {
	var b [8]byte
	switch {
	case buf%pageSize != 0:
		return refuse(request.EINVAL, "the buffer does not begin at a page")
	case db%8 != 0:
		return refuse(request.EINVAL, "the doorbell record is not at a multiple of 8")
	case buf+n < buf:
		return refuse(request.EINVAL, "the buffer ends beyond the address space")
	case f.mem.Read(buf, b[:1]) != nil, n > 0 && f.mem.Read(buf+n-1, b[:1]) != nil:
		return refuse(request.EFAULT, "there is no memory where the buffer is said to be")
	case f.mem.Read(db, b[:]) != nil:
		return refuse(request.EFAULT, "there is no memory where the doorbell record is said to be")
	}
	return nil
}

// checkOwners looks whether the program has initialised the entries. The device never
// reads them: without it, what memory held is taken for completions.
func (q *cq) checkOwners() {
	const most = 1 << 16
	var b [1]byte
	for i := range min(q.entries, most) {
		at := q.buf + uint64(i+1)*uint64(q.size) - 1
		if q.f.mem.Read(at, b[:]) != nil {
			return
		}
		if b[0]>>4 != opInvalid {
			q.d.m.violation("CQ %#x: entry %d has %#x as its owner byte when the device gets the ring: it is 0xf0, or stale memory looks like completions", q.cqn, i, b[0])
			return
		}
	}
}

func (c *call) destroyCQ() error {
	q, err := destroyUnused[*cq](c, abi.UVERBS_ATTR_DESTROY_CQ_HANDLE)
	if err != nil {
		return err
	}
	return c.SetOut(abi.UVERBS_ATTR_DESTROY_CQ_RESP, (&abi.UverbsDestroyCQResp{CompEventsReported: q.comp, AsyncEventsReported: q.async}).Bytes())
}

// modifyCQ sets moderation.
func (c *call) modifyCQ(cmd *abi.Command, in []byte) error {
	var r abi.UverbsExModifyCQ
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	const moderate = 1 // IB_CQ_MODERATE
	if r.AttrMask == 0 || r.Reserved != 0 {
		return refuse(request.EINVAL, "nothing to change, or reserved is not zero")
	}
	if r.AttrMask&^moderate != 0 {
		return refuse(request.EOPNOTSUPP, "unknown attributes")
	}
	q, err := lookupWrite[*cq](c, r.CQHandle)
	switch {
	case err != nil:
		return err
	case r.Attr.CQPeriod > maxModerationTime:
		return refuse(request.EINVAL, "the period is too long")
	}
	q.maxCount, q.period = r.Attr.CQCount, time.Duration(r.Attr.CQPeriod)*time.Microsecond
	return nil
}
