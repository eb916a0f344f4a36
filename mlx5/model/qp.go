package model

import (
	"math/bits"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// Types of queue pairs.
const (
	typeRC = uint8(abi.IB_UVERBS_QPT_RC)
	typeUC = uint8(abi.IB_UVERBS_QPT_UC)
	typeUD = uint8(abi.IB_UVERBS_QPT_UD)
)

// Words of the doorbell record of a queue pair.
const (
	recordRecv = 0
	recordSend = 4
)

// noUserIndex is what a context of CQE version 0 gives as user index.
const noUserIndex = 1<<24 - 1

const (
	blockBytes   = 64
	segmentBytes = 16
)

// qp is a queue pair.
type qp struct {
	f      *File
	d      *Device
	qpn    uint32
	typ    uint8
	uidx   uint32
	pd     *pd
	sendCQ *cq
	recvCQ *cq
	srq    *srq

	db       uint64
	recvBuf  uint64
	sendBuf  uint64
	blocks   uint32 // of the send queue
	receives uint32
	shift    uint8 // log2 of the size of a receive
	uar      *uar
	register uint32 // offset in the page, of static UARs

	scatterCQE, scatterSend bool
	cap                     abi.UverbsQPCap
	sigAll                  bool
	notSelf                 bool // its own multicasts do not come to it
	userHandle              uint64
	asyncFile               *EventQueue
	async                   uint32

	state qpState
	attr  qpAttributes
	port  *port
	// groups are the multicast addresses that a UD queue pair listens to.
	groups [][16]byte

	sendPI, sendCI uint16 // blocks
	recvPI, recvCI uint16 // receives
	sendPSN        uint32
	recvPSN        uint32
	established    bool // COMM_EST was raised
	drainEvent     bool // SQ_DRAINED is to be raised

	// What the request at the head of the queue waits for.
	timer       *time.Timer
	stuck       bool   // waits with no timer, for ever
	filled      []byte // memory of Device.Fill
	expired     bool   // was sent for the last time
	retries     uint8
	rnrRetries  uint8
	behind      int // requests of others to let pass
	faultedHead bool

	listed bool // is in Model.ready
}

// qpAttributes are what MODIFY_QP sets.
type qpAttributes struct {
	qkey, access, dest                        uint32
	pkeyIndex                                 uint16
	mtu, maxRead, maxDestRead                 uint8
	minRNR, portNum, timeout, retry, rnrRetry uint8
	sqPSN, rqPSN                              uint32
	path                                      abi.UverbsQPDest
}

func (*qp) inUse() bool { return false }
func (*qp) rank() int   { return rankQP }

func (q *qp) end() {
	q.enter(stateReset)
	delete(q.d.qps, q.qpn)
	q.f.asyncQueue(q.asyncFile).forget(&q.async)
	q.pd.users--
	q.sendCQ.users--
	q.recvCQ.users--
	q.uar.users--
	if q.srq != nil {
		q.srq.users--
	}
	for _, k := range q.d.keys {
		if k.window != nil && k.window.qp == q {
			q.d.m.violation("QP %#x is destroyed with window %#x bound through it", q.qpn, k.key)
			k.window.unbind()
		}
	}
}

func (q *qp) stopTimer() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	q.stuck, q.expired, q.behind = false, false, 0
}

// Flags of mlx5_ib_create_qp that the driver takes for RC, UC and UD. Others are
// unknown, or need what the device has not.
const createQPFlags = abi.MLX5_QP_FLAG_SCATTER_CQE | abi.MLX5_QP_FLAG_BFREG_INDEX | abi.MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
	abi.MLX5_QP_FLAG_UAR_PAGE_INDEX

// createQPLeast is how far the driver's part of the request must reach.
const createQPLeast = 48

// invalidBfreg is the bfreg_index of a queue pair with a dynamic UAR.
const invalidBfreg = 1 << 31

func (c *call) createQP() error {
	f, d, ctx := c.f, c.f.dev, c.f.ctx
	uhw := c.UHWIn()
	if len(uhw) < createQPLeast {
		return refuse(request.EINVAL, "the driver's part of the request is too short")
	}
	var in abi.MLX5IBCreateQP
	copy(in.Bytes(), uhw)
	q := &qp{f: f, d: d, db: in.DBAddr, recvBuf: in.BufAddr, blocks: in.SQWQECount, receives: in.RQWQECount, uidx: in.Uidx}
	core, _ := c.In(abi.UVERBS_ATTR_CREATE_QP_CAP)
	copy(q.cap.Bytes(), core)
	typ, _ := c.Const(abi.UVERBS_ATTR_CREATE_QP_TYPE)
	q.userHandle, _ = c.Uint64(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE)
	sigAll, notSelf := uint64(abi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL), uint64(abi.IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK)
	flags, err := c.Flags(abi.UVERBS_ATTR_CREATE_QP_FLAGS, sigAll|notSelf)
	if err != nil {
		return err
	}
	q.sigAll, q.notSelf = flags&sigAll != 0, flags&notSelf != 0
	switch q.typ = uint8(typ); {
	case typ != uint64(typeRC) && typ != uint64(typeUC) && typ != uint64(typeUD):
		return refuse(request.EOPNOTSUPP, "no such type of queue pair")
	case in.Flags&^uint32(createQPFlags) != 0, in.Reserved != 0, in.ECEOptions != 0, in.DCIStreams != abi.MLX5IBCreateQPDCIStreams{}:
		return refuse(request.EINVAL, "flags, options or reserved fields that the device has not")
	case in.Flags&abi.MLX5_QP_FLAG_BFREG_INDEX != 0 && in.Flags&abi.MLX5_QP_FLAG_UAR_PAGE_INDEX != 0:
		return refuse(request.EINVAL, "a bfreg and a UAR named")
	case ctx.version == 1 && in.Uidx >= noUserIndex, ctx.version == 0 && in.Uidx != noUserIndex:
		return refuse(request.EINVAL, "a user index that does not fit the CQE version")
	case uint32(len(d.qps)) >= d.cfg.MaxQP:
		return refuse(request.ENOMEM, "max_qp reached")
	}
	if err := c.qpObjects(q); err != nil {
		return err
	}
	if err := q.checkSizes(in.RQWQEShift); err != nil {
		return err
	}
	if err := q.checkStamps(); err != nil {
		return err
	}
	if err := q.chooseRegister(&in); err != nil {
		return err
	}
	q.scatterCQE = in.Flags&abi.MLX5_QP_FLAG_SCATTER_CQE != 0 && typ != uint64(typeUD)
	q.scatterSend = q.scatterCQE && typ == uint64(typeRC) && (q.sigAll || in.Flags&abi.MLX5_QP_FLAG_ALLOW_SCATTER_CQE != 0)
	q.checkIndex()
	q.qpn = d.nextQPN
	d.nextQPN++
	d.qps[q.qpn] = q
	q.pd.users++
	q.sendCQ.users++
	q.recvCQ.users++
	q.uar.users++
	if q.srq != nil {
		q.srq.users++
	}
	if _, err := c.addTo(abi.UVERBS_ATTR_CREATE_QP_HANDLE, q); err != nil {
		return err
	}
	if err := c.SetOut(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, q.cap.Bytes()); err != nil {
		return err
	}
	if err := c.setUint32(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, q.qpn); err != nil {
		return err
	}
	resp := &abi.MLX5IBCreateQPResp{BfregIndex: invalidBfreg}
	if !ctx.dynamic {
		resp.BfregIndex = q.uar.index*4 + (q.register-firstRegister)/blueFlameBytes
	}
	return c.SetUHWOut(resp.Bytes())
}

// qpObjects finds the objects that a new queue pair stands on.
func (c *call) qpObjects(q *qp) (err error) {
	if q.pd, _, err = lookup[*pd](c, abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE); err != nil {
		return err
	}
	if q.sendCQ, _, err = lookup[*cq](c, abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE); err != nil {
		return err
	}
	if q.recvCQ, _, err = lookup[*cq](c, abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE); err != nil {
		return err
	}
	if c.Has(abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) {
		if q.srq, _, err = lookup[*srq](c, abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE); err != nil {
			return err
		}
	}
	q.asyncFile, err = c.queue(abi.UVERBS_ATTR_CREATE_QP_EVENT_FD, false)
	return err
}

// checkSizes checks the queues of a new queue pair.
func (q *qp) checkSizes(shift uint32) error {
	if q.srq != nil || q.cap.MaxRecvWR == 0 {
		q.receives, shift = 0, 0
	}
	q.shift = uint8(shift)
	switch {
	case q.cap.MaxSendWR > q.d.cfg.MaxQPWR || q.cap.MaxRecvWR > q.d.cfg.MaxQPWR:
		return refuse(request.EINVAL, "more than max_qp_wr requests")
	case q.blocks > maxSendBlocks || bits.OnesCount32(q.blocks) > 1:
		return refuse(request.EINVAL, "the send queue has a power of two of blocks, and at most max_send_wqebb")
	case q.receives > maxRecvRequests || bits.OnesCount32(q.receives) > 1:
		return refuse(request.EINVAL, "the receive queue has a power of two of entries, and at most max_recv_wr")
	case q.receives > 0 && (shift < 4 || 1<<min(shift, 31) > maxRecvBytes):
		return refuse(request.EINVAL, "entries of the receive queue are too small or too large")
	case q.blocks == 0 && q.cap.MaxSendWR > 0, q.receives == 0 && q.cap.MaxRecvWR > 0 && q.srq == nil:
		return refuse(request.EINVAL, "requests are asked for, and no queue to hold them")
	case q.recvBuf%blockBytes != 0, q.db%8 != 0:
		return refuse(request.EINVAL, "the buffer or the doorbell record lies oddly")
	}
	n := uint64(q.receives) << shift
	q.sendBuf = q.recvBuf + n
	if n += uint64(q.blocks) * blockBytes; n > 0 {
		var b [8]byte
		if q.recvBuf+n < n || q.f.mem.Read(q.recvBuf, b[:1]) != nil || q.f.mem.Read(q.recvBuf+n-1, b[:1]) != nil || q.f.mem.Read(q.db, b[:]) != nil {
			return refuse(request.EFAULT, "there is no memory where the buffer or the doorbell record is said to be")
		}
	}
	return nil
}

// chooseRegister finds the UAR of a new queue pair: that which the program
// names, or in a context with static ones the next of the kernel's.
func (q *qp) chooseRegister(in *abi.MLX5IBCreateQP) error {
	ctx := q.f.ctx
	if ctx.dynamic {
		if in.Flags&abi.MLX5_QP_FLAG_UAR_PAGE_INDEX == 0 {
			return refuse(request.EINVAL, "a context with dynamic UARs, and no UAR named")
		}
		if q.uar = q.f.uars[in.BfregIndex]; q.uar == nil {
			return refuse(request.EINVAL, "the context has no such UAR")
		}
		return nil
	}
	if in.Flags&(abi.MLX5_QP_FLAG_UAR_PAGE_INDEX|abi.MLX5_QP_FLAG_BFREG_INDEX) != 0 {
		return refuse(request.EINVAL, "the context's UARs are the kernel's to choose")
	}
	total := uint32(len(ctx.static)) * 2
	n := total - ctx.exclusive + ctx.nextBfreg%max(1, ctx.exclusive)
	if ctx.nextBfreg >= ctx.exclusive {
		n = ctx.nextBfreg % max(1, total-ctx.exclusive)
	}
	ctx.nextBfreg++
	q.uar, q.register = ctx.static[n/2], firstRegister+n%2*blueFlameBytes
	return nil
}

// checkIndex looks for another queue that has the user index already and completes to
// the same place: programs that import a context count indices of their own.
func (q *qp) checkIndex() {
	if q.f.ctx.version == 0 {
		return
	}
	for _, o := range q.d.qps {
		shared := o.sendCQ == q.sendCQ || o.sendCQ == q.recvCQ || o.recvCQ == q.sendCQ || o.recvCQ == q.recvCQ
		if o.f == q.f && o.uidx == q.uidx && shared {
			q.d.m.violation("QP %#x has user index %#x, and a new one gets it too: nobody can tell their completions apart", o.qpn, q.uidx)
		}
	}
}

func (c *call) destroyQP() error {
	q, err := destroyUnused[*qp](c, abi.UVERBS_ATTR_DESTROY_QP_HANDLE)
	if err != nil {
		return err
	}
	return c.setUint32(abi.UVERBS_ATTR_DESTROY_QP_RESP, q.async)
}
