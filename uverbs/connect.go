package uverbs

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// Endpoint is what the peer has to know to connect to a queue pair.
type Endpoint struct {
	// QPN is the queue pair's number, 24 bits.
	QPN uint32
	// PSN is the packet sequence number that it begins to send with, 24 bits.
	PSN uint32
	// GID is its address.
	GID GID
	// LID is its local identifier on InfiniBand, 0 on RoCE.
	LID uint16
	// MTU is the largest packet payload in bytes that its port takes; 0 if
	// not known.
	MTU int
	// ReadDepth is how many reads and atomics it takes at a time; 0 if not
	// known.
	ReadDepth int
	// QKey is the Q_Key of a UD queue pair, 0 of others. Handshake does not
	// carry it.
	QKey uint32
}

// ConnectOptions are the choices of Connect and HandshakeWith. The zero value, and
// nil, mean: give up after 6 retries of 67 ms and after 6 retries for lack of a
// receive, so that every request ends. UC queue pairs repeat nothing and read
// nothing: of these only MTU and the last three mean something to them.
type ConnectOptions struct {
	// MTU is the largest packet payload in bytes. 0 is the lesser of what
	// both ports have.
	MTU int
	// AckTimeout is how long to wait for an acknowledgement, 0 means 67 ms;
	// or AckTimeoutForever.
	AckTimeout time.Duration
	// Retries is how often to repeat what is not acknowledged: 1 to 7,
	// where 0 means 6 and NoRetry means never. Soft-RoCE takes 7 for ever
	// (rxe_completer of drivers/infiniband/sw/rxe/rxe_comp.c).
	Retries int
	// RNRRetries is how often to repeat what found no receive posted: 1 to
	// 6, or RetryForever; 0 means 6 and NoRetry means never.
	RNRRetries int
	// MinRNRTimer is how long the peer waits when it finds no receive
	// posted here; 0 means 640 us.
	MinRNRTimer time.Duration
	// ReadDepth is how many reads may be under way in each direction. 0 is
	// the lesser of what both devices have, at most 16.
	ReadDepth int
	// HopLimit of the packets; 0 means 64.
	HopLimit uint8
	// TrafficClass of the packets.
	TrafficClass uint8
	// ServiceLevel is the priority, 0 to 15.
	ServiceLevel uint8
}

// NoRetry, as a number of retries, gives up at once.
const NoRetry = -1

const (
	defaultRetries     = 6
	defaultAckTimeout  = ackTimeoutUnit << 14 // 67 ms
	defaultMinRNRTimer = 640 * time.Microsecond
	defaultReadDepth   = 16
	defaultHopLimit    = 64
)

// Endpoint describes the queue pair to its peer.
func (qp *QP) Endpoint() Endpoint {
	e := Endpoint{QPN: qp.qpn, PSN: qp.psn, GID: qp.source.GID, LID: qp.lid, MTU: qp.mtu, ReadDepth: qp.dev.readDepth()}
	if qp.typ == UD {
		e.QKey = qp.qkey.Load()
	}
	return e
}

// SetPSN chooses the packet sequence number to begin with, 24 bits, in place of
// a random one. It comes before Endpoint and Connect.
func (qp *QP) SetPSN(psn uint32) error {
	if psn > maxPSN {
		return invalid("PSN %#x: at most %#x", psn, maxPSN)
	}
	qp.psn = psn
	return nil
}

// readDepth is how many reads the device takes at a time, within one byte.
func (d *Device) readDepth() int {
	return max(1, min(d.attr.MaxQPReadDepth, d.attr.MaxQPInitReadDepth, 255))
}

// Connect makes a queue pair in INIT ready to receive and to send. The peer may
// send as soon as its own Connect returns, so receives stand before; and it can
// receive only then, so agree that both are ready before you send, as Handshake
// does.
//
// ctx is checked between steps. A step inside the kernel, such as finding the
// peer's hardware address, cannot be interrupted.
func (qp *QP) Connect(ctx context.Context, peer Endpoint, opts *ConnectOptions) error {
	if qp.typ == UD {
		return invalid("%s: connect QP %d: UD queue pairs have no peer: use SendTo", qp.dev.info.Name, qp.qpn)
	}
	var o ConnectOptions
	if opts != nil {
		o = *opts
	}
	if err := o.check(); err != nil {
		return qp.denied("connect", err)
	}
	o.fill(qp, peer)
	if peer.GID.IsZero() && peer.LID == 0 {
		return invalid("%s: connect QP %d: the peer has neither GID nor LID", qp.dev.info.Name, qp.qpn)
	}
	type step struct {
		to    QPState
		attrs []QPAttr
	}
	receive := step{StateRTR, []QPAttr{
		AttrPath(peer.GID, qp.source.Port, qp.source.Index, o.HopLimit, o.TrafficClass),
		AttrServiceLevel(o.ServiceLevel), AttrDLID(peer.LID),
		AttrPathMTU(o.MTU), AttrDestQPN(peer.QPN), AttrRecvPSN(peer.PSN),
	}}
	send := step{StateRTS, []QPAttr{AttrSendPSN(qp.psn)}}
	if qp.typ == RC {
		receive.attrs = append(receive.attrs, AttrPeerReadDepth(uint8(o.ReadDepth)), AttrMinRNRTimer(o.MinRNRTimer))
		send.attrs = append(send.attrs, AttrAckTimeout(o.AckTimeout), AttrRetries(o.Retries), AttrRNRRetries(o.RNRRetries),
			AttrReadDepth(uint8(o.ReadDepth)))
	}
	for _, s := range []step{receive, send} {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("goverbs: %s: connect QP %d: before %v: %w", qp.dev.info.Name, qp.qpn, s.to, context.Cause(ctx))
		}
		err := qp.Modify(s.to, s.attrs...)
		if err == nil {
			continue
		}
		// All attributes were there, so it is the path that the kernel dislikes.
		if s.to == StateRTR && (isIPv4(peer.GID) != isIPv4(qp.source.GID) || !isErrno(err, syscall.EINVAL)) {
			err = explainAH(err, peer.GID, qp.source)
		}
		return err
	}
	return nil
}

// check refuses what no attribute would.
func (o *ConnectOptions) check() error {
	if _, ok := mtuCode(o.MTU); !ok && o.MTU != 0 {
		return invalid("MTU %d: allowed are 256, 512, 1024, 2048 and 4096", o.MTU)
	}
	if o.ReadDepth < 0 {
		return invalid("read depth %d: must not be negative", o.ReadDepth)
	}
	return nil
}

// fill puts defaults where nothing was chosen.
func (o *ConnectOptions) fill(qp *QP, peer Endpoint) {
	if o.MTU == 0 {
		o.MTU = qp.mtu
		if peer.MTU != 0 {
			o.MTU = min(o.MTU, peer.MTU)
		}
	}
	if o.AckTimeout == 0 {
		o.AckTimeout = defaultAckTimeout
	}
	for _, n := range []*int{&o.Retries, &o.RNRRetries} {
		switch *n {
		case 0:
			*n = defaultRetries
		case NoRetry:
			*n = 0
		}
	}
	if o.MinRNRTimer == 0 {
		o.MinRNRTimer = defaultMinRNRTimer
	}
	most := qp.dev.readDepth()
	if peer.ReadDepth > 0 {
		most = min(most, peer.ReadDepth)
	}
	if o.ReadDepth == 0 {
		o.ReadDepth = defaultReadDepth
	}
	o.ReadDepth = min(o.ReadDepth, most, 255)
	if o.HopLimit == 0 {
		o.HopLimit = defaultHopLimit
	}
}
