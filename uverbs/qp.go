package uverbs

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// QPType is the transport of a queue pair, with the numbers of enum
// ib_uverbs_qp_type (rdma/ib_user_ioctl_verbs.h).
type QPType uint32

// RC is the reliable connection: one peer, ordered, acknowledged, with sends,
// writes and reads.
const RC = QPType(abi.IB_UVERBS_QPT_RC)

// UC is the unreliable connection: one peer and ordered, but not acknowledged. A
// send or write completes when it has left; the peer drops it without a word if
// it is damaged, no receive is posted, or a key or a right does not fit. A
// message that is too long for its receive ends the receiver's queue pair. Sends
// and writes only.
const UC = QPType(abi.IB_UVERBS_QPT_UC)

// UD is the unreliable datagram: no connection, one packet a message, to
// whomever each send names, or to multicast groups; sends only.
const UD = QPType(abi.IB_UVERBS_QPT_UD)

// String is the short name of the transport.
func (t QPType) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	}
	return fmt.Sprintf("QPType(%d)", uint32(t))
}

// QP is a queue pair. Its send queue and its receive queue belong to one
// goroutine each; all other methods may be called from any goroutine.
type QP struct {
	object
	typ    QPType
	pd     *PD
	qpn    uint32
	qkey   atomic.Uint32 // UD: as last set
	sendCQ *CQ
	recvCQ *CQ
	source GIDEntry
	mtu    int    // active MTU of the port when the QP was made, bytes
	lid    uint16 // of the port, likewise
	psn    uint32
	access Access
	limits QPLimits
	tag    any

	windows sync.Map // *MW that were bound through it, by the constant part of their keys
	index   *userIndex
	half    qpHalf
	sq      SendQueue
	rq      RecvQueue
	srq     *SRQ       // where receives come from instead of rq, or nil
	member  *cq.Member // of srq

	failures cq.Failures   // the first request that failed; see FirstFailure
	event    atomic.Uint32 // EventType that said that it failed, or 0

	closing  atomic.Bool   // Close was called
	ending   atomic.Bool   // nothing more may be posted: Close or Shutdown
	state    atomic.Uint32 // QPState
	resets   atomic.Uint32 // counts beginnings and ends of resets: odd while one is under way
	renewal  sync.Mutex    // held by Recover
	shuts    atomic.Uint32 // how often ending was set but by Close and the loss of the device; see open
	enders   atomic.Int32  // Shutdowns and Drains that are under way
	reset    sync.Mutex    // one reset at a time; comes before modify
	modify   gate          // one state change at a time
	groups   []GID         // multicast groups that it is in; guarded by modify
	whenLost func() error  // of the Handshake under way; guarded by the device's mu
	carried  bool          // the device has carried out all sends; guarded by modify
}

// QPOptions are the choices of NewQP. CQ, or both SendCQ and RecvCQ, are
// needed; all else has a default.
type QPOptions struct {
	// CQ is where requests of both sides complete. SendCQ and RecvCQ
	// override it for one side.
	CQ, SendCQ, RecvCQ *CQ
	// SRQ is where the queue pair takes its receives from, instead of a
	// receive queue of its own; RecvDepth and RecvSGE mean nothing then.
	SRQ *SRQ
	// SendDepth and RecvDepth are how many requests may be outstanding on
	// each side; 0 means 16. They count against the depth of the CQ.
	SendDepth, RecvDepth int
	// SendSGE and RecvSGE are how many spans a request may have; 0 means 1.
	SendSGE, RecvSGE int
	// Inline is how many bytes a request may carry in itself. 0 asks for
	// none; the device may grant some all the same, or more than was asked:
	// QP.Limits tells.
	Inline int
	// Source is the local address that packets come from. The zero value
	// is the first RoCE v2 GID of the first active port that has one, an
	// IPv4 address before others; or index 0 on an InfiniBand port.
	Source Source
	// PeerAccess is what the peer may do through this queue pair, within
	// what the memory regions allow. The zero value is RemoteWrite and
	// RemoteRead; NoAccess allows nothing. RemoteAtomic, FlushGlobal and
	// FlushPersistent have to be asked for.
	PeerAccess Access
	// QKey is the Q_Key of a UD queue pair: it drops datagrams that come
	// with another. 0 means DefaultQKey; for a Q_Key of 0, set it with
	// Modify(StateRTS, AttrQKey(0)). Keys with the top bit set are for
	// privileged programs.
	QKey uint32
	// Tag is the program's own name for the queue pair, which QP.Tag returns.
	Tag any
	// AllowOverrun makes the queue pair even if its completions do not fit
	// into the CQ. If the CQ then overruns, completions are lost for good, and
	// later ones may still come before Poll says ErrOverrun.
	AllowOverrun bool
}

// NoAccess, as QPOptions.PeerAccess, forbids the peer all writes and reads.
const NoAccess Access = 1 << 31

const defaultDepth = 16

// QPLimits are what a queue pair can take, which may be more than was asked.
type QPLimits struct {
	SendDepth, RecvDepth int // requests
	SendSGE, RecvSGE     int // spans a request
	Inline               int // bytes a request
}

// NewQP makes a queue pair. One of type UD is in the RTS state, ready for
// SendTo. Others are in INIT: receives can be posted, and should be before the
// peer may send; Connect, or Handshake, makes them ready to send.
//
// It fails with ErrCQFull when the completions of all its requests do not fit
// into the CQ beside those of the queue pairs that are there already.
func (pd *PD) NewQP(typ QPType, opts *QPOptions) (*QP, error) {
	const op = "create QP"
	d := pd.dev
	if opts == nil {
		opts = new(QPOptions)
	}
	if typ != RC && typ != UC && typ != UD {
		return nil, fmt.Errorf("goverbs: %s: %s of type %v: %w: this version makes RC, UC and UD queue pairs", d.info.Name, op, typ, ErrNotSupported)
	}
	if typ != UD && opts.QKey != 0 {
		return nil, invalid("%s of type %v: QKey %#x: only UD has one", op, typ, opts.QKey)
	}
	qp := &QP{
		object: object{dev: d, kind: kindQP, id: d.nextID()},
		typ:    typ, pd: pd, sendCQ: opts.SendCQ, recvCQ: opts.RecvCQ, srq: opts.SRQ, psn: rand.Uint32() & maxPSN, tag: opts.Tag, modify: newGate(),
	}
	qp.letGo = qp.letGoRings
	if qp.sendCQ == nil {
		qp.sendCQ = opts.CQ
	}
	if qp.recvCQ == nil {
		qp.recvCQ = opts.CQ
	}
	if err := qp.check(op, opts); err != nil {
		return nil, err
	}
	bases := []*object{&pd.object, &qp.sendCQ.object, &qp.recvCQ.object}
	if qp.srq != nil {
		bases = append(bases, &qp.srq.object)
	}
	done, err := d.making(kindQP, bases...)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := qp.claim(op, opts.AllowOverrun); err != nil {
		return nil, err
	}
	if err := qp.create(op, pd); err != nil {
		qp.disclaim()
		return nil, err
	}
	if err := d.hold(qp, bases...); err != nil {
		qp.free()
		return nil, err
	}
	d.byQPN.Lock()
	d.byQPN.m[qp.qpn] = qp
	d.byQPN.Unlock()
	qp.qkey.Store(opts.QKey)
	if opts.QKey == 0 {
		qp.qkey.Store(DefaultQKey)
	}
	if err := qp.begin(); err != nil {
		qp.Close()
		return nil, err
	}
	return qp, nil
}

// check fills in the defaults and refuses what cannot be.
func (qp *QP) check(op string, opts *QPOptions) error {
	d := qp.dev
	if qp.sendCQ == nil || qp.recvCQ == nil {
		return invalid("%s: QPOptions.CQ is nil: a queue pair needs a CQ for each side", op)
	}
	if qp.sendCQ.dev != d || qp.recvCQ.dev != d {
		return invalid("%s on %s: the CQ belongs to another device", op, d.info.Name)
	}
	if qp.srq != nil && qp.srq.pd != qp.pd {
		return invalid("%s: the SRQ belongs to another protection domain", op)
	}
	qp.limits = QPLimits{opts.SendDepth, opts.RecvDepth, opts.SendSGE, opts.RecvSGE, opts.Inline}
	l := &qp.limits
	for _, f := range []struct {
		name    string
		value   *int
		zero    int
		allowed int
	}{
		{"SendDepth", &l.SendDepth, defaultDepth, d.attr.MaxQPWR},
		{"RecvDepth", &l.RecvDepth, defaultDepth, d.attr.MaxQPWR},
		{"SendSGE", &l.SendSGE, 1, d.attr.MaxSGE},
		{"RecvSGE", &l.RecvSGE, 1, d.attr.MaxSGE},
	} {
		if *f.value == 0 {
			*f.value = f.zero
		}
		if *f.value < 1 || *f.value > f.allowed {
			return invalid("%s: %s %d: %s allows 1 to %d", op, f.name, *f.value, d.info.Name, f.allowed)
		}
	}
	if qp.srq != nil {
		l.RecvDepth, l.RecvSGE = 0, 0
	}
	if l.Inline < 0 {
		return invalid("%s: Inline %d: must not be negative", op, l.Inline)
	}
	switch qp.access = opts.PeerAccess; {
	case qp.access == 0:
		qp.access = RemoteWrite | RemoteRead
	case qp.access == NoAccess:
		qp.access = 0
	case qp.access&^peerAccess != 0:
		return invalid("%s: PeerAccess %v: allowed are %v, or NoAccess alone", op, qp.access, peerAccess)
	}
	if err := d.checkAccess(op, qp.access); err != nil {
		return err
	}
	var err error
	if qp.source, err = d.resolve(opts.Source); err != nil {
		return err
	}
	port, err := d.PortAttr(qp.source.Port)
	if err != nil {
		return err
	}
	qp.mtu, qp.lid = port.ActiveMTU, port.LID
	return nil
}

// claim counts the queue pair's completions against its CQs.
func (qp *QP) claim(op string, overrun bool) error {
	d := qp.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	all := qp.claims()
	if qp.srq != nil && qp.srq.claims[qp.recvCQ] == 0 {
		// However many queue pairs share it, no more of its receives can
		// complete than it has.
		all = append(all, claim{qp.recvCQ, qp.srq.claimed, "SRQ"})
	}
	for i, c := range all {
		if m := c.cq.meter; m != nil {
			m.crowded(c.cq.committed + c.n)
		}
		if c.cq.claimCredits(c.n) {
			continue
		}
		if overrun {
			c.cq.committed += c.n
			continue
		}
		err := fmt.Errorf("goverbs: %s: %s: %w: %s depth asks for %d completions, %d of the CQ's %d are taken: make the CQ deeper, or set AllowOverrun",
			d.info.Name, op, ErrCQFull, c.side, c.n, c.cq.committed, c.cq.depth())
		for _, done := range all[:i] {
			done.cq.committed -= done.n
		}
		return err
	}
	if qp.srq != nil {
		qp.srq.claims[qp.recvCQ]++
	}
	return nil
}

type claim struct {
	cq   *CQ
	n    int
	side string
}

// claims are the completions that the queue pair may have outstanding.
func (qp *QP) claims() []claim {
	if qp.sendCQ == qp.recvCQ {
		return []claim{{qp.sendCQ, qp.limits.SendDepth + qp.limits.RecvDepth, "send and receive"}}
	}
	return []claim{{qp.sendCQ, qp.limits.SendDepth, "send"}, {qp.recvCQ, qp.limits.RecvDepth, "receive"}}
}

func (qp *QP) disclaim() {
	for _, c := range qp.claims() {
		c.cq.returnCredits(c.n)
	}
	if qp.srq != nil {
		qp.srq.disclaim(qp.recvCQ)
	}
}

// create makes the kernel's object, maps its rings and enters it where pollers
// look.
func (qp *QP) create(op string, pd *PD) error {
	d := qp.dev
	n, ok := d.endpoints.Reserve()
	if !ok {
		return invalid("%s: %s has %d queue pairs, no more are possible", op, d.info.Name, cq.MaxEndpoints)
	}
	qp.index = &userIndex{n: n, home: &d.endpoints}
	qp.index.cqs.Store(int32(len(qp.claims())))

	in := &abi.UverbsQPCap{
		MaxSendWR: uint32(qp.limits.SendDepth), MaxRecvWR: uint32(qp.limits.RecvDepth),
		MaxSendSGE: uint32(qp.limits.SendSGE), MaxRecvSGE: uint32(qp.limits.RecvSGE),
		MaxInlineData: uint32(qp.limits.Inline),
	}
	granted, qpn := new(abi.UverbsQPCap), make([]byte, 4)
	qp.half = d.provider.newQP(qp)
	r := newRequest(d.driver, abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE)
	r.create(abi.UVERBS_ATTR_CREATE_QP_HANDLE)
	r.handle(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd.handle)
	r.handle(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, qp.sendCQ.handle)
	r.handle(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, qp.recvCQ.handle)
	if qp.srq != nil {
		r.handle(abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, qp.srq.handle)
	}
	r.constant(abi.UVERBS_ATTR_CREATE_QP_TYPE, uint64(qp.typ))
	r.in64(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, qp.id)
	r.in(abi.UVERBS_ATTR_CREATE_QP_CAP, in.Bytes())
	r.out(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, granted.Bytes())
	r.out(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qpn)
	if d.async != nil {
		r.fd(abi.UVERBS_ATTR_CREATE_QP_EVENT_FD, d.async.file.FD())
	}
	err := qp.half.create(r)
	if err == nil {
		err = d.call(op, r)
	}
	if err != nil {
		qp.half.detach(true)
		d.endpoints.Release(n)
		return explainQPCap(err, qp.limits)
	}
	qp.handle = uint32(r.result(abi.UVERBS_ATTR_CREATE_QP_HANDLE))
	qp.qpn = native.Uint32(qpn)
	if err := qp.start(op, granted); err != nil {
		gone := qp.destroy() == nil
		qp.half.detach(gone)
		if gone {
			d.endpoints.Release(n)
		}
		return err
	}
	return nil
}

// start makes the queues and enters them where pollers look.
func (qp *QP) start(op string, granted *abi.UverbsQPCap) error {
	d := qp.dev
	send := cq.NewRequests(uint32(qp.limits.SendDepth), cq.SendSide, qp.qpn, &qp.sendCQ.state)
	recv := cq.NewRequests(uint32(qp.limits.RecvDepth), cq.RecvSide, qp.qpn, &qp.recvCQ.state)
	var own *cq.Requests // none with an SRQ
	if qp.srq == nil {
		own = recv
	}
	sends, receives, err := qp.half.made(op, granted, send, own)
	if err != nil {
		return err
	}
	qp.sq.init(qp, sends, send)
	if m := qp.sendCQ.meter; m != nil {
		m.sample(&qp.sq)
	}
	qp.rq.init(qp, receives, recv)
	byQP := d.provider.receivesNameQP()
	ep := &cq.Endpoint{QPN: qp.qpn, Send: send, Recv: recv, Datagram: byQP && qp.typ == UD, Invalidated: qp.invalidated, Failures: &qp.failures}
	if byQP && qp.srq != nil {
		ep.Recv, ep.Shared = nil, qp.srq.shared
	}
	d.endpoints.Set(qp.index.n, ep)
	if qp.srq != nil {
		qp.srq.index.cqs.Add(1)
		if !byQP {
			qp.member = qp.srq.join(qp.recvCQ, ep)
		}
	}
	return nil
}

// SendQueue is where sends, writes and reads are posted. One goroutine at a
// time uses it.
func (qp *QP) SendQueue() *SendQueue { return &qp.sq }

// RecvQueue is where receives are posted. One goroutine at a time uses it. That
// of a queue pair with an SRQ takes none.
func (qp *QP) RecvQueue() *RecvQueue { return &qp.rq }

// QPN is the queue pair's number, 24 bits.
func (qp *QP) QPN() uint32 { return qp.qpn }

// Type is the transport.
func (qp *QP) Type() QPType { return qp.typ }

// Limits are what the queue pair can take.
func (qp *QP) Limits() QPLimits { return qp.limits }

// Source is the local GID that packets come from.
func (qp *QP) Source() GIDEntry { return qp.source }

// Close destroys the queue pair. Requests that have not completed are
// discarded, and so are completions that were not polled; a goroutine that is
// posting gets os.ErrClosed.
//
// No kernel is known to refuse it. Should one, the error says so, and the queue pair
// takes nothing any more, but it stays on the device, with what it stands on, until
// the device is closed.
func (qp *QP) Close() error {
	if err := qp.retire(); err != nil {
		return err
	}
	defer qp.release()
	return qp.free()
}

func (qp *QP) free() error {
	qp.closing.Store(true)
	qp.ending.Store(true)
	// Calls that began before are over once their locks were had. The kernel refuses
	// to destroy what a call under way uses, and gives the handle out again after.
	qp.modify.Lock()
	qp.ending.Store(true) // again: see open
	qp.leaveGroups()
	qp.modify.Unlock()
	qp.awaitFlushes() // a doorbell must not come after the end
	d := qp.dev
	d.byQPN.Lock()
	if d.byQPN.m[qp.qpn] == qp {
		delete(d.byQPN.m, qp.qpn)
	}
	d.byQPN.Unlock()
	err := qp.destroy()
	if err != nil {
		qp.index.cqs.Add(1) // the device goes on naming it: nobody gets it again
	}
	// From here on the kernel adds no completion of this QP. What is in the
	// rings already hits the tombstone.
	tombstone := &cq.Endpoint{QPN: qp.qpn, Closed: true}
	if qp.srq != nil && d.provider.receivesNameQP() {
		tombstone.Shared = qp.srq.shared
	}
	d.endpoints.Set(qp.index.n, tombstone)
	for _, c := range qp.claims() {
		t := tomb{index: qp.index, credits: c.n}
		if qp.srq != nil && c.cq == qp.recvCQ {
			if qp.member != nil {
				qp.member.Close()
			}
			t.srq, t.member = qp.srq, qp.member
		}
		c.cq.mailbox.bury(c.cq, t, qp.sq.requests, qp.rq.requests)
	}
	qp.half.detach(err == nil)
	return err
}

// denied says why something cannot be done with the queue pair, or not any more.
func (qp *QP) denied(op string, why error) error {
	return fmt.Errorf("goverbs: %s: %s QP %d: %w", qp.dev.info.Name, op, qp.qpn, why)
}

func (qp *QP) destroy() error {
	return qp.dev.destroy("destroy QP", abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_DESTROY, qp.handle, new(abi.UverbsDestroyQPResp).Bytes())
}
