package uverbs

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/abi"
)

// QPState is where a queue pair is in its life, with the numbers of enum
// ib_qp_state (include/rdma/ib_verbs.h).
type QPState uint32

// The states of a queue pair.
const (
	StateReset QPState = iota
	StateInit
	StateRTR // ready to receive
	StateRTS // ready to send
	StateSQD // send queue drained
	StateSQE // send queue error
	StateErr
)

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String is the name that the InfiniBand specification gives the state.
func (s QPState) String() string {
	if int64(s) < int64(len(stateNames)) {
		return stateNames[s]
	}
	return fmt.Sprintf("QPState(%d)", uint32(s))
}

// QPAttr is one attribute of a queue pair for Modify.
type QPAttr struct {
	mask  uint32 // a bit of enum ib_qp_attr_mask, and for parts of AV one of ours
	value uint32
	path  *abi.UverbsQPDest // of AV
	err   error
}

// apply enters the attribute into a request. It is one function, and not a closure for
// each: those are some kB of every program.
func (a *QPAttr) apply(m *abi.UverbsModifyQP) {
	switch v := a.value; a.mask {
	case maskAccessFlags:
		m.QPAccessFlags = v
	case maskPKeyIndex:
		m.PKeyIndex = uint16(v)
	case maskPort:
		m.PortNum = uint8(v)
	case maskQKey:
		m.QKey = v
	case maskAV:
		m.Dest = *a.path
	case maskAV | partSL:
		m.Dest.SL = uint8(v)
	case maskAV | partDLID:
		m.Dest.DLID = uint16(v)
	case maskPathMTU:
		m.PathMTU = uint8(v)
	case maskTimeout:
		m.Timeout = uint8(v)
	case maskRetryCount:
		m.RetryCnt = uint8(v)
	case maskRNRRetry:
		m.RNRRetry = uint8(v)
	case maskRQPSN:
		m.RQPSN = v
	case maskMaxReadDepth:
		m.MaxRdAtomic = uint8(v)
	case maskMinRNRTimer:
		m.MinRNRTimer = uint8(v)
	case maskSQPSN:
		m.SQPSN = v
	case maskDestReadDepth:
		m.MaxDestRdAtomic = uint8(v)
	case maskDestQPN:
		m.DestQPNum = v
	}
	m.AttrMask |= a.mask &^ (partSL | partDLID)
}

// Bits of enum ib_qp_attr_mask (include/rdma/ib_verbs.h), which the UAPI headers
// do not have.
const (
	maskState         = 1 << 0
	maskAccessFlags   = 1 << 3
	maskPKeyIndex     = 1 << 4
	maskPort          = 1 << 5
	maskQKey          = 1 << 6
	maskAV            = 1 << 7
	maskPathMTU       = 1 << 8
	maskTimeout       = 1 << 9
	maskRetryCount    = 1 << 10
	maskRNRRetry      = 1 << 11
	maskRQPSN         = 1 << 12
	maskMaxReadDepth  = 1 << 13
	maskMinRNRTimer   = 1 << 15
	maskSQPSN         = 1 << 16
	maskDestReadDepth = 1 << 17
	maskDestQPN       = 1 << 20

	// Parts of AV that are attributes of their own here.
	partSL   = 1 << 30
	partDLID = 1 << 31
)

const maxPSN = 1<<24 - 1

// bounded is an attribute whose value must not exceed a maximum.
func bounded(name string, mask uint32, v, most uint64) QPAttr {
	if v > most {
		return QPAttr{err: invalid("modify QP: %s %d: at most %d", name, v, most)}
	}
	return QPAttr{mask: mask, value: uint32(v)}
}

// AttrAccess is what the peer may do through the queue pair.
func AttrAccess(a Access) QPAttr {
	return QPAttr{mask: maskAccessFlags, value: uint32(a &^ NoAccess)}
}

// AttrPKeyIndex is the partition key, as index into the port's table.
func AttrPKeyIndex(i uint16) QPAttr {
	return QPAttr{mask: maskPKeyIndex, value: uint32(i)}
}

// AttrQKey is the Q_Key of a UD queue pair. Keys with the top bit set are for
// privileged programs: others get EPERM.
func AttrQKey(key uint32) QPAttr {
	return QPAttr{mask: maskQKey, value: key}
}

// AttrPort is the local port, numbered from 1.
func AttrPort(port int) QPAttr {
	return bounded("port", maskPort, uint64(port), 255)
}

// AttrPathMTU is the largest packet payload in bytes: 256, 512, 1024, 2048 or
// 4096.
func AttrPathMTU(bytes int) QPAttr {
	code, ok := mtuCode(bytes)
	if !ok {
		return QPAttr{err: invalid("modify QP: path MTU %d: allowed are 256, 512, 1024, 2048 and 4096", bytes)}
	}
	return QPAttr{mask: maskPathMTU, value: uint32(code)}
}

// mtuCode is the number that the wire uses for an MTU (enum ib_mtu).
func mtuCode(bytes int) (uint8, bool) {
	for code := uint8(1); code <= 5; code++ {
		if 128<<code == bytes {
			return code, true
		}
	}
	return 0, false
}

// AttrDestQPN is the number of the peer's queue pair.
func AttrDestQPN(qpn uint32) QPAttr {
	return bounded("destination QPN", maskDestQPN, uint64(qpn), maxPSN)
}

// AttrRecvPSN is the packet sequence number that the peer begins with.
func AttrRecvPSN(psn uint32) QPAttr {
	return bounded("receive PSN", maskRQPSN, uint64(psn), maxPSN)
}

// AttrSendPSN is the packet sequence number to begin with.
func AttrSendPSN(psn uint32) QPAttr {
	return bounded("send PSN", maskSQPSN, uint64(psn), maxPSN)
}

// AttrReadDepth is how many reads and atomics may be under way to the peer.
func AttrReadDepth(n uint8) QPAttr {
	return QPAttr{mask: maskMaxReadDepth, value: uint32(n)}
}

// AttrPeerReadDepth is how many reads and atomics the peer may have under way.
func AttrPeerReadDepth(n uint8) QPAttr {
	return QPAttr{mask: maskDestReadDepth, value: uint32(n)}
}

// AttrPath is the way to the peer: its GID, from the local GID at index
// sourceIndex of port.
func AttrPath(dest GID, port, sourceIndex int, hopLimit, trafficClass uint8) QPAttr {
	if sourceIndex < 0 || sourceIndex > 255 {
		return QPAttr{err: invalid("modify QP: source GID index %d: this request holds 0 to 255", sourceIndex)}
	}
	a := bounded("port", maskAV, uint64(port), 255)
	a.path = &abi.UverbsQPDest{DGID: dest, SGIDIndex: uint8(sourceIndex), HopLimit: hopLimit, TrafficClass: trafficClass, PortNum: uint8(port)}
	if !dest.IsZero() { // a peer without a GID is reached by its LID alone
		a.path.IsGlobal = 1
	}
	return a
}

// AttrServiceLevel is the priority of the packets, 0 to 15; it comes after
// AttrPath.
func AttrServiceLevel(sl uint8) QPAttr {
	return bounded("service level", maskAV|partSL, uint64(sl), 15)
}

// AttrDLID is the peer's LID on InfiniBand; it comes after AttrPath.
func AttrDLID(lid uint16) QPAttr {
	return QPAttr{mask: maskAV | partDLID, value: uint32(lid)}
}

// Modify takes the queue pair to another state with the attributes that the
// transition asks for. Connect and Handshake do it for you; this is for those
// who need another path. The kernel says EINVAL for an attribute too many or
// too few, and Modify then says which the transition takes.
//
// Going to RESET ends all outstanding requests as flushed, through Poll; the
// queue pair leaves RESET only when all have been polled. Other goroutines may be
// posting meanwhile: a Flush that is under way goes on to its end first. What is
// staged and not flushed by then is void, and its Flush says ErrState.
func (qp *QP) Modify(to QPState, attrs ...QPAttr) error {
	if to != StateReset {
		return qp.change(to, attrs...)
	}
	// The device wipes the rings. What is written to them meanwhile, or published
	// afterwards, would be torn, or be nothing, when the queue pair is used again.
	qp.reset.Lock()
	defer qp.reset.Unlock()
	qp.resets.Add(1)
	qp.awaitFlushes()
	if err := qp.change(to, attrs...); err != nil {
		qp.resets.Add(^uint32(0)) // it was none: what is staged stays good
		return err
	}
	qp.resets.Add(1)
	return nil
}

// storeDelay is longer than a store of one processor takes to be seen by the others.
// Flush says that it has begun and then looks whether it may, with two plain
// instructions that a processor may swap: who forbids it and then looks whether one
// is under way leaves this much time in between.
const storeDelay = 20 * time.Microsecond

// flushes says whether a Flush is under way.
func (qp *QP) flushes() bool {
	return atomic.LoadUint32(&qp.sq.flushing) != 0 || atomic.LoadUint32(&qp.rq.flushing) != 0
}

// awaitFlushes waits until no Flush is under way that began before it was forbidden.
func (qp *QP) awaitFlushes() {
	for time.Sleep(storeDelay); qp.flushes(); {
		time.Sleep(storeDelay)
	}
}

// epoch is what requests remember that are staged now: see sameEpoch.
func (qp *QP) epoch() uint32 { return qp.resets.Load() &^ 1 }

// sameEpoch says whether no reset has begun or ended since requests were staged.
func (qp *QP) sameEpoch(epoch uint32) bool { return qp.resets.Load() == epoch }

// beginAnew has a ring begin anew after a reset, where the device does not do that.
func beginAnew(ring any) {
	if r, ok := ring.(interface{ Reset() }); ok {
		r.Reset()
	}
}

// errReset is why requests are void that were staged before a reset.
var errReset error = &reason{err: &ErrState, behind: ": it was reset since the requests were staged: stage them again when it is connected"}

// change is Modify but for what a reset takes.
func (qp *QP) change(to QPState, attrs ...QPAttr) error {
	m := &abi.UverbsModifyQP{QPHandle: qp.handle, AttrMask: maskState, QPState: uint8(to)}
	for _, a := range attrs {
		if a.err != nil {
			return a.err
		}
		a.apply(m)
	}
	qp.modify.Lock()
	defer qp.modify.Unlock()
	if qp.closing.Load() {
		return fmt.Errorf("goverbs: %s: modify QP %d to %v: %w", qp.dev.info.Name, qp.qpn, to, os.ErrClosed)
	}
	from := QPState(qp.state.Load())
	if from == StateReset && to != StateReset && !(qp.sq.requests.Idle() && qp.rq.requests.Idle()) {
		return fmt.Errorf("goverbs: %s: modify QP %d from %v to %v: %w: requests from before the reset have not come to their ends: poll the CQ", qp.dev.info.Name, qp.qpn, from, to, ErrState)
	}
	if from == StateReset && to != StateReset {
		qp.failures.Begin(qp.sq.requests, qp.rq.requests)
		qp.event.Store(0)
	}
	r := newCommand(qp.dev.driver, abi.IB_USER_VERBS_CMD_MODIFY_QP, m.Bytes(), nil)
	if err := qp.dev.do(r); err != nil {
		// What was done is put into words only here: it takes longer than to do it.
		err = qp.dev.failed(fmt.Sprintf("modify QP %d from %v to %v", qp.qpn, from, to), r, err)
		return explainModify(err, m, qp.typ, from, to)
	}
	qp.state.Store(uint32(to))
	if m.AttrMask&maskQKey != 0 {
		qp.qkey.Store(m.QKey)
	}
	if to == StateReset {
		// The device has forgotten what was posted; completions that are in
		// the rings already come before the ends that the library makes up.
		qp.sendCQ.mailbox.adopt(qp.sendCQ, &qp.closing, qp.sq.requests, qp.carried)
		qp.recvCQ.mailbox.adopt(qp.recvCQ, &qp.closing, qp.rq.requests, false)
		qp.carried = false
		qp.half.wasReset()
	}
	return nil
}

// transitions are what they take.
var transitions = [...]struct {
	typ      QPType
	from, to QPState
	attrs    string
}{
	{RC, StateReset, StateInit, "access, P_Key index and port"},
	{RC, StateInit, StateRTR, "path, path MTU, destination QPN, receive PSN, peer read depth and RNR timer"},
	{RC, StateRTR, StateRTS, "timeout, retries, RNR retries, send PSN and read depth"},
	{UC, StateReset, StateInit, "access, P_Key index and port"},
	{UC, StateInit, StateRTR, "path, path MTU, destination QPN and receive PSN"},
	{UC, StateRTR, StateRTS, "the send PSN"},
	{UD, StateReset, StateInit, "Q_Key, P_Key index and port"},
	{UD, StateInit, StateRTR, "no attributes"},
	{UD, StateRTR, StateRTS, "the send PSN"},
}

// explainModify adds what an errno of modify means.
func explainModify(err error, m *abi.UverbsModifyQP, typ QPType, from, to QPState) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case isErrno(err, syscall.ENODATA):
		e.Hint = "the source GID index is empty: the address was removed, or the port is down"
	case isErrno(err, syscall.EPERM) && m.AttrMask&maskQKey != 0 && m.QKey&privilegedQKey != 0:
		e.Hint = fmt.Sprintf("Q_Key %#x has its top bit set: that takes CAP_NET_RAW, or \"rdma system set privileged-qkey on\"", m.QKey)
	case isErrno(err, syscall.EINVAL):
		for _, t := range transitions {
			if t.typ == typ && t.from == from && t.to == to {
				e.Hint = "the transition of a " + typ.String() + " queue pair takes " + t.attrs
				return err
			}
		}
		e.Hint = "from " + from.String() + " a queue pair goes on to the next state, to RESET or to ERR"
	}
	return err
}

// explainQPCap adds what was asked to an error of create.
func explainQPCap(err error, l QPLimits) error {
	var e *Error
	if errors.As(err, &e) && isErrno(err, syscall.EINVAL, syscall.ENOMEM) {
		e.Hint = fmt.Sprintf("asked for %d sends of %d spans and %d inline bytes, %d receives of %d spans", l.SendDepth, l.SendSGE, l.Inline, l.RecvDepth, l.RecvSGE)
	}
	return err
}

// begin takes a new queue pair as far as it gets without a peer.
func (qp *QP) begin() error {
	if qp.typ != UD {
		return qp.Modify(StateInit, AttrAccess(qp.access), AttrPKeyIndex(0), AttrPort(qp.source.Port))
	}
	if err := qp.Modify(StateInit, AttrQKey(qp.qkey.Load()), AttrPKeyIndex(0), AttrPort(qp.source.Port)); err != nil {
		return err
	}
	if err := qp.Modify(StateRTR); err != nil {
		return err
	}
	return qp.Modify(StateRTS, AttrSendPSN(qp.psn))
}

// State is the state that the queue pair was last taken to. The device takes it
// to ERR by itself when a request fails; QueryState asks the kernel.
func (qp *QP) State() QPState { return QPState(qp.state.Load()) }

// QueryState asks the kernel for the state.
func (qp *QP) QueryState() (QPState, error) {
	in := &abi.UverbsQueryQP{QPHandle: qp.handle, AttrMask: maskState}
	out := new(abi.UverbsQueryQPResp)
	qp.modify.Lock()
	defer qp.modify.Unlock()
	if qp.closing.Load() {
		return 0, qp.denied("query", os.ErrClosed)
	}
	if err := qp.dev.call("query QP", newCommand(qp.dev.driver, abi.IB_USER_VERBS_CMD_QUERY_QP, in.Bytes(), out.Bytes())); err != nil {
		return 0, err
	}
	s := QPState(out.QPState)
	if s == StateErr {
		// The one state that a QP reaches by itself.
		qp.state.Store(uint32(s))
	}
	return s, nil
}
