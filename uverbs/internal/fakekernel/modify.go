package fakekernel

import (
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// Bits of enum ib_qp_attr_mask.
const (
	maskState = 1 << iota
	maskCurState
	maskSQDAsync
	maskAccess
	maskPKeyIndex
	maskPort
	maskQKey
	maskAV
	maskPathMTU
	maskTimeout
	maskRetryCount
	maskRNRRetry
	maskRQPSN
	maskMaxRead
	maskAltPath
	maskMinRNRTimer
	maskSQPSN
	maskMaxDestRead
	maskPathMig
	maskCap
	maskDestQPN
)

type transition struct{ required, optional uint32 }

// transitions are those of RC queue pairs, as in the core's state table.
var transitions = map[[2]qpState]transition{
	{stateReset, stateInit}: {maskPKeyIndex | maskPort | maskAccess, 0},
	{stateInit, stateInit}:  {0, maskPKeyIndex | maskPort | maskAccess},
	{stateInit, stateRTR}: {
		maskAV | maskPathMTU | maskDestQPN | maskRQPSN | maskMaxDestRead | maskMinRNRTimer,
		maskAltPath | maskAccess | maskPKeyIndex,
	},
	{stateRTR, stateRTS}: {
		maskTimeout | maskRetryCount | maskRNRRetry | maskSQPSN | maskMaxRead,
		maskCurState | maskAltPath | maskAccess | maskMinRNRTimer | maskPathMig,
	},
	{stateRTS, stateRTS}: {0, maskCurState | maskAltPath | maskAccess | maskMinRNRTimer | maskPathMig},
}

// ucTransitions are those of UC queue pairs.
var ucTransitions = map[[2]qpState]transition{
	{stateReset, stateInit}: {maskPKeyIndex | maskPort | maskAccess, 0},
	{stateInit, stateInit}:  {0, maskPKeyIndex | maskPort | maskAccess},
	{stateInit, stateRTR}:   {maskAV | maskPathMTU | maskDestQPN | maskRQPSN, maskAltPath | maskAccess | maskPKeyIndex},
	{stateRTR, stateRTS}:    {maskSQPSN, maskCurState | maskAltPath | maskAccess | maskPathMig},
	{stateRTS, stateRTS}:    {0, maskCurState | maskAltPath | maskAccess | maskPathMig},
}

// udTransitions are those of UD queue pairs.
var udTransitions = map[[2]qpState]transition{
	{stateReset, stateInit}: {maskPKeyIndex | maskPort | maskQKey, 0},
	{stateInit, stateInit}:  {0, maskPKeyIndex | maskPort | maskQKey},
	{stateInit, stateRTR}:   {0, maskPKeyIndex | maskQKey},
	{stateRTR, stateRTS}:    {maskSQPSN, maskCurState | maskQKey},
	{stateRTS, stateRTS}:    {0, maskCurState | maskQKey},
}

func (c *ioctl) modifyQP(cmd *abi.Command, in []byte) error {
	var m abi.UverbsModifyQP
	if err := request.Fill(cmd, m.Bytes(), in); err != nil {
		return err
	}
	q, err := lookup[*qp](c.f.ctx, m.QPHandle)
	if err != nil {
		return syscall.EINVAL
	}
	if m.AttrMask&^(1<<21-1) != 0 {
		return syscall.EOPNOTSUPP
	}
	to := q.state
	if m.AttrMask&maskState != 0 {
		to = qpState(m.QPState)
	}
	if err := q.checkModify(&m, to); err != nil {
		return err
	}
	if m.AttrMask&maskQKey != 0 && m.QKey&ownQKey != 0 && !c.f.dev.Privileged {
		return syscall.EPERM
	}
	q.set(&m)
	q.enter(to)
	return nil
}

// checkModify refuses what the core or soft-RoCE refuse.
func (q *qp) checkModify(m *abi.UverbsModifyQP, to qpState) error {
	set := m.AttrMask &^ maskState
	if set&maskCurState != 0 && qpState(m.CurQPState) != q.state {
		return syscall.EINVAL
	}
	switch to {
	case stateReset, stateErr:
		if set != 0 {
			return syscall.EINVAL
		}
		return nil
	}
	table := transitions
	switch q.typ {
	case uint64(abi.IB_UVERBS_QPT_UD):
		table = udTransitions
	case typeUC:
		table = ucTransitions
	}
	t, ok := table[[2]qpState{q.state, to}]
	if !ok || set&t.required != t.required || set&^(t.required|t.optional) != 0 {
		return syscall.EINVAL
	}
	d := q.ctx.dev
	switch {
	case set&maskPort != 0 && m.PortNum != 1,
		set&maskPKeyIndex != 0 && m.PKeyIndex != 0,
		set&maskPathMTU != 0 && m.PathMTU > 5:
		return syscall.EINVAL
	case set&maskAV == 0:
		return nil
	case m.Dest.IsGlobal != 1, m.Dest.PortNum != q.attr.PortNum:
		return syscall.EINVAL
	case !d.hasGID(uint64(m.Dest.SGIDIndex)):
		return syscall.ENODATA
	}
	return nil
}

// set takes over the attributes that the mask names.
func (q *qp) set(m *abi.UverbsModifyQP) {
	a := &q.attr
	for _, f := range []struct {
		mask uint32
		take func()
	}{
		{maskAccess, func() { a.QPAccessFlags = m.QPAccessFlags }},
		{maskPKeyIndex, func() { a.PKeyIndex = m.PKeyIndex }},
		{maskPort, func() { a.PortNum = m.PortNum }},
		{maskQKey, func() { a.QKey = m.QKey }},
		{maskAV, func() { a.Dest = m.Dest }},
		{maskPathMTU, func() { a.PathMTU = m.PathMTU }},
		{maskTimeout, func() { a.Timeout = m.Timeout & 0x1f }},
		{maskRetryCount, func() { a.RetryCnt = m.RetryCnt & 7 }},
		{maskRNRRetry, func() { a.RNRRetry = m.RNRRetry & 7 }},
		{maskRQPSN, func() { q.rqPSN = m.RQPSN & psnMask }},
		{maskSQPSN, func() { q.sqPSN = m.SQPSN & psnMask }},
		{maskMaxRead, func() { a.MaxRdAtomic = m.MaxRdAtomic }},
		{maskMaxDestRead, func() { a.MaxDestRdAtomic = m.MaxDestRdAtomic }},
		{maskMinRNRTimer, func() { a.MinRNRTimer = m.MinRNRTimer & 0x1f }},
		{maskDestQPN, func() { a.DestQPNum = m.DestQPNum & psnMask }},
	} {
		if m.AttrMask&f.mask != 0 {
			f.take()
		}
	}
}

const psnMask = 1<<24 - 1

// enter takes the queue pair to a state.
func (q *qp) enter(to qpState) {
	from := q.state
	q.state = to
	switch to {
	case stateReset:
		q.reset()
	case stateErr:
		if from != stateErr {
			q.fail()
		}
	case stateRTS:
		if from == stateRTR {
			q.retries, q.rnrRetries = q.attr.RetryCnt, q.attr.RNRRetry
		}
	}
}

// reset forgets everything but the indices: the send ring is wiped where it
// stands, and receives that were posted are dropped.
func (q *qp) reset() {
	q.stopTimer()
	for i := range q.sq.mask + 1 {
		clear(q.sq.slot(i))
	}
	if q.srq == nil { // an SRQ keeps what was posted to it
		q.own.next = q.own.ring.producer() & q.own.ring.mask
		q.own.ring.setConsumer(q.own.next)
	}
	q.attr = abi.UverbsModifyQP{}
	q.sqPSN, q.rqPSN = 0, 0
}
