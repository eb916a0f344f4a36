package model

import (
	"sync"

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
	maskRetry
	maskRNRRetry
	maskRQPSN
	maskMaxRead
	maskAltPath
	maskMinRNR
	maskSQPSN
	maskMaxDestRead
	maskPathMig
	maskCap
	maskDestQPN
	maskKnown = 1<<iota - 1
)

// psnMask is how many bits packet numbers and queue pair numbers have.
const psnMask = 1<<24 - 1

// transition says which attributes a change of state must and may set.
type transition struct{ required, optional uint32 }

// transitions is the core's table, by type and by the two states. To RESET and ERR a
// queue pair goes from everywhere.
var transitions = sync.OnceValue(func() map[uint8]map[[2]qpState]transition {
	return map[uint8]map[[2]qpState]transition{
		typeRC: {
			{stateReset, stateInit}: {maskPKeyIndex | maskPort | maskAccess, 0},
			{stateInit, stateInit}:  {0, maskPKeyIndex | maskPort | maskAccess},
			{stateInit, stateRTR}: {
				maskAV | maskPathMTU | maskDestQPN | maskRQPSN | maskMaxDestRead | maskMinRNR,
				maskAltPath | maskAccess | maskPKeyIndex,
			},
			{stateRTR, stateRTS}: {
				maskTimeout | maskRetry | maskRNRRetry | maskSQPSN | maskMaxRead,
				maskCurState | maskAltPath | maskAccess | maskMinRNR | maskPathMig,
			},
			{stateRTS, stateRTS}: {0, maskCurState | maskAccess | maskAltPath | maskPathMig | maskMinRNR},
			{stateRTS, stateSQD}: {0, maskSQDAsync},
			{stateSQD, stateRTS}: {0, maskCurState | maskAltPath | maskAccess | maskMinRNR | maskPathMig},
			{stateSQD, stateSQD}: {0, maskPort | maskAV | maskTimeout | maskRetry | maskRNRRetry | maskMaxRead | maskMaxDestRead |
				maskAltPath | maskAccess | maskPKeyIndex | maskMinRNR | maskPathMig},
		},
		typeUC: {
			{stateReset, stateInit}: {maskPKeyIndex | maskPort | maskAccess, 0},
			{stateInit, stateInit}:  {0, maskPKeyIndex | maskPort | maskAccess},
			{stateInit, stateRTR}:   {maskAV | maskPathMTU | maskDestQPN | maskRQPSN, maskAltPath | maskAccess | maskPKeyIndex},
			{stateRTR, stateRTS}:    {maskSQPSN, maskCurState | maskAltPath | maskAccess | maskPathMig},
			{stateRTS, stateRTS}:    {0, maskCurState | maskAccess | maskAltPath | maskPathMig},
			{stateRTS, stateSQD}:    {0, maskSQDAsync},
			{stateSQD, stateRTS}:    {0, maskCurState | maskAltPath | maskAccess | maskPathMig},
			{stateSQD, stateSQD}:    {0, maskAV | maskAltPath | maskAccess | maskPKeyIndex | maskPathMig},
			{stateSQE, stateRTS}:    {0, maskCurState | maskAccess},
		},
		typeUD: {
			{stateReset, stateInit}: {maskPKeyIndex | maskPort | maskQKey, 0},
			{stateInit, stateInit}:  {0, maskPKeyIndex | maskPort | maskQKey},
			{stateInit, stateRTR}:   {0, maskPKeyIndex | maskQKey},
			{stateRTR, stateRTS}:    {maskSQPSN, maskCurState | maskQKey},
			{stateRTS, stateRTS}:    {0, maskCurState | maskQKey},
			{stateRTS, stateSQD}:    {0, maskSQDAsync},
			{stateSQD, stateRTS}:    {0, maskCurState | maskQKey},
			{stateSQD, stateSQD}:    {0, maskPKeyIndex | maskQKey},
			{stateSQE, stateRTS}:    {0, maskCurState | maskQKey},
		},
	}
})

func (c *call) modifyQP(cmd *abi.Command, in []byte) error {
	var m abi.UverbsModifyQP
	if err := request.Fill(cmd, m.Bytes(), in); err != nil {
		return err
	}
	return c.modify(&m)
}

// modifyQPEx is the extended form, whose further attribute, a rate limit, the device
// has not.
func (c *call) modifyQPEx(cmd *abi.Command, in []byte) error {
	var m abi.UverbsExModifyQP
	if err := request.Fill(cmd, m.Bytes(), in); err != nil {
		return err
	}
	var u abi.MLX5IBModifyQP
	copy(u.Bytes(), c.UHWIn())
	if m.Reserved != 0 || m.RateLimit != 0 || u.CompMask != 0 || u.ECEOptions != 0 || u.BurstInfo != (abi.MLX5IBBurstInfo{}) {
		return refuse(request.EOPNOTSUPP, "rate limits, bursts and ECE are not supported")
	}
	if err := c.modify(&m.Base); err != nil {
		return err
	}
	if err := c.reply(make([]byte, 8)); err != nil {
		return err
	}
	return c.SetUHWOut((&abi.MLX5IBModifyQPResp{ResponseLength: uint32(min(c.UHWOutLen(), abi.SizeofMLX5IBModifyQPResp))}).Bytes())
}

func (c *call) modify(m *abi.UverbsModifyQP) error {
	q, err := lookupWrite[*qp](c, m.QPHandle)
	if err != nil {
		return err
	}
	if m.AttrMask&^uint32(maskKnown) != 0 {
		return refuse(request.EOPNOTSUPP, "unknown attributes")
	}
	if m.AttrMask&maskQKey != 0 && m.QKey&privateQKey != 0 && !c.f.rights {
		return refuse(request.EPERM, "a Q_Key with the highest bit set needs CAP_NET_RAW")
	}
	to := q.state
	if m.AttrMask&maskState != 0 {
		to = qpState(m.QPState)
	}
	if err := q.checkModify(m, to); err != nil {
		return err
	}
	q.set(m)
	q.enter(to)
	if to == stateSQD && m.AttrMask&maskSQDAsync != 0 && m.EnSqdAsyncNotify != 0 {
		q.drainEvent = true
	}
	q.list()
	return nil
}

// checkModify is what the core and the driver refuse.
func (q *qp) checkModify(m *abi.UverbsModifyQP, to qpState) error {
	set := m.AttrMask &^ maskState
	if set&maskCurState != 0 && qpState(m.CurQPState) != q.state {
		return refuse(request.EINVAL, "the queue pair is in another state than the current one that is given")
	}
	switch {
	case to > stateErr:
		return refuse(request.EINVAL, "no such state")
	case to == stateReset || to == stateErr:
		if set&^maskCurState != 0 {
			return refuse(request.EINVAL, "attributes on the way to RESET or ERR")
		}
		return nil
	}
	t, ok := transitions()[q.typ][[2]qpState{q.state, to}]
	switch {
	case !ok:
		return refuse(request.EINVAL, "no way from the one state to the other")
	case set&t.required != t.required:
		return refuse(request.EINVAL, "attributes are missing that this change of state needs")
	case set&^(t.required|t.optional) != 0:
		return refuse(request.EINVAL, "attributes are set that this change of state does not take")
	case set&(maskAltPath|maskPathMig) != 0:
		return refuse(request.EOPNOTSUPP, "the device has no alternate paths")
	}
	p := q.port
	if set&maskPort != 0 {
		p = q.d.port(uint64(m.PortNum))
	}
	switch {
	case p == nil:
		return refuse(request.EINVAL, "no such port")
	case set&maskPKeyIndex != 0 && int(m.PKeyIndex) >= len(p.pkeys):
		return refuse(request.EINVAL, "P_Key index beyond the table")
	case set&maskPathMTU != 0 && (m.PathMTU == 0 || m.PathMTU > 5):
		return refuse(request.EINVAL, "no such MTU")
	case set&maskMaxRead != 0 && m.MaxRdAtomic > maxReadDepth, set&maskMaxDestRead != 0 && m.MaxDestRdAtomic > maxReadDepth:
		return refuse(request.EINVAL, "more outstanding reads and atomics than max_qp_rd_atom")
	case set&maskTimeout != 0 && m.Timeout > 31, set&maskRetry != 0 && m.RetryCnt > 7, set&maskRNRRetry != 0 && m.RNRRetry > 7, set&maskMinRNR != 0 && m.MinRNRTimer > 31:
		return refuse(request.EINVAL, "a time-out has 5 bits, a retry count 3")
	case set&maskDestQPN != 0 && m.DestQPNum > psnMask:
		return refuse(request.EINVAL, "queue pair numbers have 24 bits")
	case set&maskAccess != 0 && m.QPAccessFlags&^(regionRights&^(mwBind|zeroBased|optional)) != 0:
		return refuse(request.EINVAL, "unknown access rights")
	case set&maskAV != 0:
		return q.checkPath(p, &m.Dest)
	}
	return nil
}

func (q *qp) checkPath(p *port, d *abi.UverbsQPDest) error {
	switch {
	case d.PortNum != p.number:
		return refuse(request.EINVAL, "the path leaves through another port")
	case d.IsGlobal == 0 && !p.ib:
		return refuse(request.EINVAL, "a path on RoCE is global")
	case d.SL > 15 || d.FlowLabel>>20 != 0:
		return refuse(request.EINVAL, "an SL has 4 bits, a flow label 20")
	case d.IsGlobal != 0 && p.gid(int(d.SGIDIndex)).empty():
		return refuse(request.ENODATA, "the source GID's entry is empty")
	}
	return nil
}

// set takes over the attributes that the mask names.
func (q *qp) set(m *abi.UverbsModifyQP) {
	a := &q.attr
	has := func(bit uint32) bool { return m.AttrMask&bit != 0 }
	for _, f := range []struct {
		bit  uint32
		take func()
	}{
		{maskAccess, func() { a.access = m.QPAccessFlags }},
		{maskPKeyIndex, func() { a.pkeyIndex = m.PKeyIndex }},
		{maskPort, func() { a.portNum, q.port = m.PortNum, q.d.port(uint64(m.PortNum)) }},
		{maskQKey, func() { a.qkey = m.QKey }},
		{maskAV, func() { a.path = m.Dest }},
		{maskPathMTU, func() { a.mtu = m.PathMTU }},
		{maskTimeout, func() { a.timeout = m.Timeout }},
		{maskRetry, func() { a.retry = m.RetryCnt }},
		{maskRNRRetry, func() { a.rnrRetry = m.RNRRetry }},
		{maskRQPSN, func() { q.recvPSN = m.RQPSN & psnMask }},
		{maskSQPSN, func() { q.sendPSN = m.SQPSN & psnMask }},
		{maskMaxRead, func() { a.maxRead = m.MaxRdAtomic }},
		{maskMaxDestRead, func() { a.maxDestRead = m.MaxDestRdAtomic }},
		{maskMinRNR, func() { a.minRNR = m.MinRNRTimer }},
		{maskDestQPN, func() { a.dest = m.DestQPNum }},
	} {
		if has(f.bit) {
			f.take()
		}
	}
	if has(maskRetry | maskRNRRetry) {
		q.refill()
	}
}

// enter takes the queue pair to a state.
func (q *qp) enter(to qpState) {
	from := q.state
	if from != to && to == stateErr {
		q.d.broken++
	} else if from == stateErr && to != stateErr {
		q.d.broken--
	}
	q.state = to
	if from != to && q.d.m.observe != nil {
		q.d.m.observe(StateEvent{Origin: q.f.origin(), QPN: q.qpn, Old: uint8(from), New: uint8(to)})
	}
	switch {
	case to == stateReset:
		q.reset()
	case to == stateErr && from != stateErr:
		q.stopTimer()
		if q.srq != nil && from != stateReset && from != stateInit {
			q.raise(eventLastWQE)
		}
		q.list()
	case to == stateSQE:
		q.stopTimer()
		q.list()
	}
}

// fatal is an error that is not a request's.
func (q *qp) fatal() {
	if q.state != stateReset && q.state != stateErr {
		q.raise(eventQPFatal)
		q.enter(stateErr)
	}
}

// raise raises an asynchronous event of the queue pair.
func (q *qp) raise(event uint32) { q.f.async(q.asyncFile, q.userHandle, event, &q.async) }

// reset forgets all: what was posted is dropped without completions.
func (q *qp) reset() {
	q.stopTimer()
	if !q.d.gone && !q.f.closed {
		q.sendCQ.settle(q.qpn)
		q.recvCQ.settle(q.qpn)
	}
	q.sendPI, q.sendCI, q.recvPI, q.recvCI = 0, 0, 0, 0
	q.sendPSN, q.recvPSN = 0, 0
	q.attr = qpAttributes{}
	q.port = nil
	q.established, q.drainEvent = false, false
}

func (c *call) queryQP(cmd *abi.Command, in []byte) error {
	var r abi.UverbsQueryQP
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	q, err := lookupWrite[*qp](c, r.QPHandle)
	if err != nil {
		return err
	}
	a := &q.attr
	// The driver tells what the receive queue has room for, not what was asked for, and
	// nothing of the send queue: that is the program's.
	elements := uint32(0)
	if q.receives > 0 {
		elements = 1 << q.shift / 16 // struct mlx5_wqe_data_seg
	}
	o := &abi.UverbsQueryQPResp{
		Dest: a.path, MaxRecvWR: q.receives, MaxRecvSGE: elements, QKey: a.qkey, RQPSN: q.recvPSN, SQPSN: q.sendPSN, DestQPNum: a.dest, QPAccessFlags: a.access,
		PKeyIndex: a.pkeyIndex, QPState: uint8(q.state), CurQPState: uint8(q.state), PathMTU: a.mtu, MaxRdAtomic: a.maxRead,
		MaxDestRdAtomic: a.maxDestRead, MinRNRTimer: a.minRNR, PortNum: a.portNum, Timeout: a.timeout, RetryCnt: a.retry, RNRRetry: a.rnrRetry,
	}
	if q.sigAll {
		o.SQSigAll = 1
	}
	return c.reply(o.Bytes())
}
