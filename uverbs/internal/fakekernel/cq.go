package fakekernel

import (
	"encoding/binary"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// cq is a completion queue.
type cq struct {
	ctx         *context
	ring        *ring
	producer    uint32 // the kernel's own copy
	userHandle  uint64
	channel     *events
	asyncFile   *events
	armed       bool
	solicited   bool // armed for solicited completions only
	comp, async uint32
	users       int
}

func (*cq) kind() string { return "CQ" }

func (c *ioctl) createCQ() error {
	d, ctx := c.f.dev, c.f.ctx
	if !d.isRXE() {
		return syscall.EOPNOTSUPP
	}
	cqe, _ := c.Uint32(abi.UVERBS_ATTR_CREATE_CQ_CQE)
	vector, _ := c.Uint32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR)
	user, _ := c.Uint64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE)
	q := &cq{ctx: ctx, userHandle: user}
	var err error
	if q.channel, err = c.events(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, completionChannel); err != nil {
		return err
	}
	if q.asyncFile, err = c.events(abi.UVERBS_ATTR_CREATE_CQ_EVENT_FD, asyncFile); err != nil {
		return err
	}
	flags, err := c.Flags(abi.UVERBS_ATTR_CREATE_CQ_FLAGS, 3)
	switch {
	case err != nil:
		return err
	case int(vector) >= d.Vectors, cqe == 0, int(cqe) > d.MaxCQE, c.UHWOutLen() < abi.SizeofRxeCreateCQResp:
		return syscall.EINVAL
	case flags != 0:
		return syscall.EOPNOTSUPP
	}
	q.ring = ctx.newRing("the ring of a CQ", int(cqe), d.CQEStride)
	if err := c.SetHandle(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, c.add(q)); err != nil {
		return err
	}
	if err := c.setUint32(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, q.ring.mask); err != nil {
		return err
	}
	return c.set(abi.UVERBS_ATTR_UHW_OUT, (&abi.RxeCreateCQResp{MI: q.ring.info()}).Bytes())
}

// info is how the program learns what to map.
func (r *ring) info() abi.MMInfo {
	return abi.MMInfo{Offset: uint64(r.token), Size: uint32(len(r.shared))}
}

// events finds the event file that an attribute names; nil without the
// attribute.
func (c *ioctl) events(attr uint16, kind eventKind) (*events, error) {
	fd, ok := c.FD(attr)
	if !ok {
		return nil, nil
	}
	e := c.f.k.fds[int(fd)]
	if e == nil || e.kind != kind {
		return nil, syscall.EBADF
	}
	return e, nil
}

func (c *ioctl) destroyCQ() error {
	h, _ := c.Handle(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE)
	q, err := lookup[*cq](c.f.ctx, h)
	if err != nil {
		return err
	}
	if q.users > 0 {
		return syscall.EBUSY
	}
	c.f.ctx.destroy(h, q)
	return c.set(abi.UVERBS_ATTR_DESTROY_CQ_RESP, (&abi.UverbsDestroyCQResp{CompEventsReported: q.comp, AsyncEventsReported: q.async}).Bytes())
}

func (q *cq) end() {
	q.channel.forget(&q.comp)
	q.ctx.asyncFile(q.asyncFile).forget(&q.async)
	delete(q.ctx.pending, q.ring.token)
}

func (c *ioctl) requestNotify(cmd *abi.Command, in []byte) error {
	var r abi.UverbsReqNotifyCQ
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	q, err := lookup[*cq](c.f.ctx, r.CQHandle)
	if err != nil {
		return syscall.EINVAL // the write interface's word for it
	}
	// An arm for any completion is not weakened by one for solicited ones.
	if !q.armed || q.solicited {
		q.armed, q.solicited = true, r.SolicitedOnly != 0
	}
	return nil
}

// completion is struct ib_uverbs_wc of rdma/ib_user_verbs.h, as far as
// soft-RoCE fills it.
type completion struct {
	wrID           uint64
	status, opcode uint32
	byteLen        uint32
	imm            [4]byte // as it came
	qpn            uint32
	srcQP, flags   uint32
	port           uint8
}

const (
	wcGRH         = 1
	wcWithImm     = 2
	wcInvalidated = 4
)

// post adds a completion. It says false when the ring is full: then the
// completion is lost, and an event says so.
func (q *cq) post(w completion, solicited bool) bool {
	consumer := q.ring.consumer()
	if consumer > q.ring.mask {
		q.ctx.k.violation("the consumer index of a CQ is %d, its mask %d", consumer, q.ring.mask)
	}
	next := (q.producer + 1) & q.ring.mask
	if next == consumer {
		q.ctx.asyncOf(q.userHandle, q.asyncFile, eventCQErr, &q.async)
		return false
	}
	b := q.ring.slot(q.producer)
	clear(b[:48])
	ne := binary.NativeEndian
	ne.PutUint64(b[0:], w.wrID)
	ne.PutUint32(b[8:], w.status)
	ne.PutUint32(b[12:], w.opcode)
	ne.PutUint32(b[20:], w.byteLen)
	copy(b[24:28], w.imm[:])
	ne.PutUint32(b[28:], w.qpn)
	ne.PutUint32(b[32:], w.srcQP)
	ne.PutUint32(b[36:], w.flags)
	b[46] = w.port
	q.producer = next
	q.ring.setProducer(next)
	if q.armed && (solicited || !q.solicited) {
		q.armed = false
		q.channel.add(completionRecord(q.userHandle, &q.comp))
	}
	return true
}
