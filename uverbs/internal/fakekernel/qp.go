package fakekernel

import (
	"syscall"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// qpState is enum ib_qp_state.
type qpState uint8

const (
	stateReset qpState = iota
	stateInit
	stateRTR
	stateRTS
	stateSQD
	stateSQE
	stateErr
)

// qp is a queue pair.
type qp struct {
	ctx          *context
	typ          uint64     // enum ib_uverbs_qp_type: RC, UC or UD
	groups       [][16]byte // multicast groups that it is in
	pd           *pd
	sendCQ, recv *cq
	number       uint32
	userHandle   uint64
	asyncFile    *events
	async        uint32
	cap          abi.UverbsQPCap
	sigAll       bool

	sq         *ring
	sqConsumer uint32   // the kernel's own copy
	own        receives // without a ring where there is an SRQ
	srq        *srq

	state qpState
	attr  abi.UverbsModifyQP // what was set
	// sqPSN and rqPSN count packets.
	sqPSN, rqPSN uint32

	retries, rnrRetries uint8
	timer               *time.Timer // runs until the next attempt
	destroyed           bool
}

func (*qp) kind() string { return "QP" }

const (
	typeRC = uint64(abi.IB_UVERBS_QPT_RC)
	typeUC = uint64(abi.IB_UVERBS_QPT_UC)
)

func (c *ioctl) createQP() error {
	d, ctx := c.f.dev, c.f.ctx
	if !d.isRXE() {
		return syscall.EOPNOTSUPP
	}
	q := &qp{ctx: ctx}
	if err := c.qpParts(q); err != nil {
		return err
	}
	q.typ, _ = c.Const(abi.UVERBS_ATTR_CREATE_QP_TYPE)
	raw, _ := c.In(abi.UVERBS_ATTR_CREATE_QP_CAP)
	copy(q.cap.Bytes(), raw)
	flags, err := c.Flags(abi.UVERBS_ATTR_CREATE_QP_FLAGS, 1<<13-1)
	switch {
	case err != nil:
		return err
	case q.typ != typeRC && q.typ != typeUC && q.typ != uint64(abi.IB_UVERBS_QPT_UD), flags&^uint64(abi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL) != 0:
		return syscall.EOPNOTSUPP
	case len(c.UHWIn()) > 0, c.UHWOutLen() < abi.SizeofRxeCreateQPResp,
		q.cap.MaxSendWR > maxQPWR, q.cap.MaxRecvWR > maxQPWR,
		q.cap.MaxSendSGE > maxSGE, q.cap.MaxRecvSGE > maxSGE, q.cap.MaxInlineData > maxInline:
		return syscall.EINVAL
	}
	q.sigAll = flags != 0
	// The data area of a send request serves spans and inline bytes, and
	// what it serves is granted.
	area := max(q.cap.MaxSendSGE*sgeSize, q.cap.MaxInlineData)
	q.cap.MaxSendSGE, q.cap.MaxInlineData = area/sgeSize, area
	rqInfo := abi.MMInfo{}
	if q.srq == nil {
		q.own = receives{ring: ctx.newRing("the receive ring of a QP", int(q.cap.MaxRecvWR), recvSGE+int(q.cap.MaxRecvSGE)*sgeSize), maxSGE: q.cap.MaxRecvSGE}
		rqInfo = q.own.ring.info()
	} else {
		q.srq.users++
	}
	q.sq = ctx.newRing("the send ring of a QP", int(q.cap.MaxSendWR), sendData+int(area))
	q.number = d.newQPN()
	q.pd.users++
	q.sendCQ.users++
	q.recv.users++
	if err := c.SetHandle(abi.UVERBS_ATTR_CREATE_QP_HANDLE, c.add(q)); err != nil {
		return err
	}
	if err := c.set(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, q.cap.Bytes()); err != nil {
		return err
	}
	if err := c.setUint32(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, q.number); err != nil {
		return err
	}
	return c.set(abi.UVERBS_ATTR_UHW_OUT, (&abi.RxeCreateQPResp{RQMI: rqInfo, SQMI: q.sq.info()}).Bytes())
}

// qpParts finds what a queue pair is made of.
func (c *ioctl) qpParts(q *qp) (err error) {
	h, ok := c.Handle(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE)
	s, okSend := c.Handle(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)
	r, okRecv := c.Handle(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)
	if !ok || !okSend || !okRecv {
		return syscall.EINVAL
	}
	if q.pd, err = lookup[*pd](c.f.ctx, h); err != nil {
		return err
	}
	if q.sendCQ, err = lookup[*cq](c.f.ctx, s); err != nil {
		return err
	}
	if q.recv, err = lookup[*cq](c.f.ctx, r); err != nil {
		return err
	}
	if h, ok := c.Handle(abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE); ok {
		if q.srq, err = lookup[*srq](c.f.ctx, h); err != nil {
			return err
		}
	}
	q.userHandle, _ = c.Uint64(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE)
	q.asyncFile, err = c.events(abi.UVERBS_ATTR_CREATE_QP_EVENT_FD, asyncFile)
	return err
}

func (c *ioctl) destroyQP() error {
	h, _ := c.Handle(abi.UVERBS_ATTR_DESTROY_QP_HANDLE)
	q, err := lookup[*qp](c.f.ctx, h)
	if err != nil {
		return err
	}
	if len(q.groups) > 0 {
		return syscall.EBUSY
	}
	c.f.ctx.destroy(h, q)
	return c.set(abi.UVERBS_ATTR_DESTROY_QP_RESP, (&abi.UverbsDestroyQPResp{EventsReported: q.async}).Bytes())
}

func (q *qp) end() {
	q.destroyed = true
	q.leftWindows()
	q.stopTimer()
	q.ctx.asyncFile(q.asyncFile).forget(&q.async)
	q.pd.users--
	q.sendCQ.users--
	q.recv.users--
	delete(q.ctx.pending, q.sq.token)
	if q.srq != nil {
		q.srq.users--
	} else {
		delete(q.ctx.pending, q.own.ring.token)
	}
}

func (q *qp) stopTimer() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
}

func (c *ioctl) queryQP(cmd *abi.Command, in []byte) error {
	var r abi.UverbsQueryQP
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	q, err := lookup[*qp](c.f.ctx, r.QPHandle)
	if err != nil {
		return syscall.EINVAL
	}
	a := &q.attr
	resp := abi.UverbsQueryQPResp{
		Dest: a.Dest, MaxSendWR: q.cap.MaxSendWR, MaxRecvWR: q.cap.MaxRecvWR, MaxSendSGE: q.cap.MaxSendSGE,
		MaxRecvSGE: q.cap.MaxRecvSGE, MaxInlineData: q.cap.MaxInlineData, QKey: a.QKey, RQPSN: q.rqPSN, SQPSN: q.sqPSN,
		DestQPNum: a.DestQPNum, QPAccessFlags: a.QPAccessFlags, PKeyIndex: a.PKeyIndex,
		QPState: uint8(q.state), CurQPState: uint8(q.state), PathMTU: a.PathMTU, MaxRdAtomic: a.MaxRdAtomic,
		MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: a.MinRNRTimer, PortNum: a.PortNum, Timeout: a.Timeout,
		RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
	}
	if q.sigAll {
		resp.SQSigAll = 1
	}
	return c.reply(resp.Bytes())
}

// postSend is the doorbell of a send queue.
func (c *context) postSend(in *abi.UverbsPostSend) error {
	q, err := lookup[*qp](c, in.QPHandle)
	// Fixed kernels want room for their own work request struct.
	const leastWQE = 56
	if err != nil || in.WRCount != 0 || in.SGECount != 0 || in.WQESize < leastWQE || q.state < stateRTS {
		return syscall.EINVAL
	}
	q.run()
	return nil
}
