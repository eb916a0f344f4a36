package uverbs

import (
	"os"
	"time"

	"github.com/goverbs/goverbs/abi"
)

// QPInfo is what the kernel says of a queue pair.
type QPInfo struct {
	State   QPState
	PathMTU int // bytes; 0 before it is connected
	// DestQPN, DestGID, DestLID name the peer.
	DestQPN uint32
	DestGID GID
	DestLID uint16
	// RecvPSN and SendPSN are the packet sequence numbers that come next.
	RecvPSN, SendPSN uint32
	// Access is what the peer may do.
	Access Access
	// Port and SourceIndex are where its packets leave.
	Port, SourceIndex int
	PKeyIndex         uint16
	QKey              uint32
	// ReadDepth is how many reads it may have under way, PeerReadDepth how
	// many the peer may.
	ReadDepth, PeerReadDepth int
	// AckTimeout is AckTimeoutForever when it waits without limit.
	AckTimeout          time.Duration
	Retries, RNRRetries int
	MinRNRTimer         time.Duration
	HopLimit            uint8
	TrafficClass        uint8
	ServiceLevel        uint8
	Limits              QPLimits
}

// Query asks the kernel for everything that it knows of the queue pair.
func (qp *QP) Query() (QPInfo, error) {
	qp.modify.Lock()
	defer qp.modify.Unlock()
	if qp.closing.Load() {
		return QPInfo{}, qp.denied("query", os.ErrClosed)
	}
	const everything = 1<<21 - 1
	in := &abi.UverbsQueryQP{QPHandle: qp.handle, AttrMask: everything}
	out := new(abi.UverbsQueryQPResp)
	if err := qp.dev.command("query QP", abi.IB_USER_VERBS_CMD_QUERY_QP, in, out); err != nil {
		return QPInfo{}, err
	}
	i := QPInfo{
		State:   QPState(out.QPState),
		DestQPN: out.DestQPNum, DestGID: out.Dest.DGID, DestLID: out.Dest.DLID,
		RecvPSN: out.RQPSN, SendPSN: out.SQPSN, Access: Access(out.QPAccessFlags),
		Port: int(out.PortNum), SourceIndex: int(out.Dest.SGIDIndex), PKeyIndex: out.PKeyIndex, QKey: out.QKey,
		ReadDepth: int(out.MaxRdAtomic), PeerReadDepth: int(out.MaxDestRdAtomic),
		AckTimeout: AckTimeoutForever, Retries: int(out.RetryCnt), RNRRetries: int(out.RNRRetry),
		MinRNRTimer: time.Duration(rnrTimers[out.MinRNRTimer&31]) * 10 * time.Microsecond,
		HopLimit:    out.Dest.HopLimit, TrafficClass: out.Dest.TrafficClass, ServiceLevel: out.Dest.SL,
		Limits: QPLimits{
			SendDepth: int(out.MaxSendWR), RecvDepth: int(out.MaxRecvWR),
			SendSGE: int(out.MaxSendSGE), RecvSGE: int(out.MaxRecvSGE), Inline: int(out.MaxInlineData),
		},
	}
	if out.MaxSendWR == 0 {
		// A driver that leaves the send queue to the program knows nothing of it.
		i.Limits.SendDepth, i.Limits.SendSGE, i.Limits.Inline = qp.limits.SendDepth, qp.limits.SendSGE, qp.limits.Inline
	}
	if out.PathMTU >= 1 && out.PathMTU <= 5 {
		i.PathMTU = 128 << out.PathMTU
	}
	if code := out.Timeout & 31; code != 0 {
		i.AckTimeout = ackTimeoutUnit << code
	}
	return i, nil
}

// Tag is what QPOptions.Tag said: the program's own name for the queue pair.
func (qp *QP) Tag() any { return qp.tag }

// QP finds the queue pair of a completion by WC.QPN, or returns nil if no open
// queue pair of that number completes on q. Any goroutine may call it.
//
// The kernel gives the number of a closed queue pair to a new one. A poller
// never gets completions of a closed queue pair, but it may hold some that it
// took before: where others close queue pairs meanwhile, look up the whole batch
// before you let them, or put what you need into WC.ID.
func (q *CQ) QP(qpn uint32) *QP {
	d := q.dev
	d.byQPN.RLock()
	qp := d.byQPN.m[qpn]
	d.byQPN.RUnlock()
	if qp == nil || qp.sendCQ != q && qp.recvCQ != q {
		return nil
	}
	return qp
}
