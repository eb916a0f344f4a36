package mlx5

import "github.com/goverbs/goverbs/cq"

// decoder makes work completions of CQEs. It holds what was chosen when the queue
// was made.
type decoder struct {
	endpoints *cq.Endpoints // by user index; nil for CQE version 0
	numbers   *cq.Members   // by QPN; nil for version 1
	state     *cq.State
	stampMask uint64 // all bits if completions are stamped, else none
	ethernet  bool
	wide      bool // there are 64 bytes before each CQE
	scatter   func(ep *cq.Endpoint, side cq.Side, pos uint16, data []byte) cq.Status
	signature func(*[64]byte)

	// What the slow path hands on, and what it works on: out of the heap's
	// and the device's reach.
	own  cqe
	data [64]byte
}

// end ends the request that the entry of index i of the ring r belongs to, which is
// completion number at. It says whether w holds a completion for the program. It is
// the slow and complete way: the loops over completions go round it where they can.
//
//go:noinline
func (d *decoder) end(r *cqRing, i, at uint32, w *cq.WC) bool {
	d.read(r, i)
	return d.endOwn(at, w)
}

// read copies the entry of index i of the ring r to d.own and, if its format says
// that there is data before it, d.data. The device may write to it at any time: it
// is read once.
func (d *decoder) read(r *cqRing, i uint32) {
	*d.own.bytes() = *r.entry(i).bytes()
	if before := r.before(i); before != nil && d.own.opcodeAndMore&formatMask == formatInline64 {
		d.data = *before
	}
}

// endOwn is end of an entry that was read.
func (d *decoder) endOwn(at uint32, w *cq.WC) bool {
	e := &d.own
	side, status := cq.RecvSide, cq.StatusSuccess
	switch e.opcodeAndMore >> 4 {
	case cqeRequester:
		side = cq.SendSide
	case cqeWriteImm, cqeSend, cqeSendImm, cqeSendInvalidate:
	case cqeRequesterError:
		side = cq.SendSide
		status = e.status()
	case cqeResponderError:
		status = e.status()
	case cqeSignatureError:
		return d.signatureError()
	default:
		// A resize that nobody asked for, tag matching, what nobody knows.
		d.drop(false)
		return false
	}
	format := e.opcodeAndMore & formatMask
	if format == formatCompressed {
		d.drop(false)
		return false
	}
	ep, late := d.endpoint(at)
	if ep == nil || ep.QPN != e.opcodeQPN.Uint32()&low24 {
		d.drop(false)
		return false
	}
	pos := e.counter.Uint16()
	if side == cq.RecvSide && ep.Shared != nil {
		return d.endShared(ep, late, pos, status, w)
	}
	if late {
		d.drop(true)
		return false
	}
	r := ep.Side(side)
	if r == nil || !r.Belongs(d.state) {
		d.drop(false)
		return false
	}
	seq, ok := r.Find(pos)
	if ok && format != 0 && status == cq.StatusSuccess {
		if ok = r.Posted(seq); ok {
			status = d.copyOut(ep, side, pos)
		}
	}
	if !ok {
		d.drop(false)
		return false
	}
	var show bool
	if status == cq.StatusSuccess {
		show, ok = r.Complete(seq, status, w)
	} else {
		show, ok = ep.Fail(r, seq, status, e.vendor(), w)
	}
	if !ok {
		d.drop(false)
		return false
	}
	if status == cq.StatusSuccess {
		d.fill(ep, w)
	}
	return show
}

// endShared is endOwn for a receive of a shared queue.
func (d *decoder) endShared(ep *cq.Endpoint, late bool, pos uint16, status cq.Status, w *cq.WC) bool {
	e, s := &d.own, ep.Shared
	seq, ok := s.At(pos)
	if !ok || !s.Posted(seq) {
		d.drop(false)
		return false
	}
	if status == cq.StatusRemoteAborted && VendorSyndrome(e.vendorSyndrome()) == VendorODPFault && s.Repost != nil {
		// No failure: the pages are on their way, the receive stays posted.
		s.Repost(pos)
		return false
	}
	if e.opcodeAndMore&formatMask != 0 && status == cq.StatusSuccess && !late {
		status = d.copyOut(ep, cq.RecvSide, pos)
	}
	if !s.End(ep.QPN, seq, status, w) || late {
		d.drop(late)
		return false
	}
	if status != cq.StatusSuccess {
		ep.Fail(nil, seq, status, e.vendor(), w)
		d.state.Failed(status)
		return true
	}
	d.fill(ep, w)
	return true
}

// endpoint finds whom d.own, which is completion number at, belongs to. late says that
// it is gone.
func (d *decoder) endpoint(at uint32) (ep *cq.Endpoint, late bool) {
	if d.numbers != nil {
		m := d.numbers.Member(d.own.opcodeQPN.Uint32()&low24, d.state, at)
		if m == nil {
			return nil, false
		}
		return m.Endpoint(), m.Closed()
	}
	ep = d.endpoints.Get(d.own.userIndex.Uint32() & low24)
	return ep, ep != nil && ep.Closed
}

// vendor is the device's own code of a request that failed: 0 if it is not the device
// that says so.
func (e *cqe) vendor() uint32 {
	if e.opcodeAndMore>>4 < cqeRequesterError {
		return 0
	}
	return uint32(e.vendorSyndrome())
}

// fill adds to w, which has what the request knows, what d.own says of its success.
func (d *decoder) fill(ep *cq.Endpoint, w *cq.WC) {
	e := &d.own
	w.Timestamp = e.timestamp.Uint64() & d.stampMask
	if w.Side == cq.RecvSide {
		e.received(e.opcodeAndMore>>4, w)
		if e.opcodeAndMore>>4 == cqeSendInvalidate {
			invalidated(ep, e, w)
		}
		if ep.Datagram {
			d.datagram(e, w)
		}
	}
}

// received fills in what a successful receive has, from an entry with the given
// opcode. The length of a message is at most that of the receive that took it,
// which is in w, so that a program may slice its buffer by it; a write's length
// has no such bound. Every field is read once.
func (e *cqe) received(opcode byte, w *cq.WC) {
	n := e.byteCount.Uint32()
	if opcode == cqeWriteImm {
		w.Opcode, w.Bytes = cq.OpRecvWriteImm, n
	} else {
		w.Bytes = min(w.Bytes, n)
	}
	if opcode&1 != 0 { // with immediate data: a write or a send
		w.SetImm(e.imm.Uint32())
	}
}

// invalidated fills in the key that a message took away. It stands apart because
// it calls what is not known here.
//
//go:noinline
func invalidated(ep *cq.Endpoint, e *cqe, w *cq.WC) {
	key := e.imm.Uint32()
	w.SetInvalidatedRKey(key)
	if ep.Invalidated != nil {
		ep.Invalidated(key)
	}
}

// datagram fills in where a datagram came from. On Ethernet there is no LID, and
// the service level is the priority of the VLAN tag, if there is one: the bits
// where InfiniBand has it tell the kind of packet there.
func (d *decoder) datagram(e *cqe, w *cq.WC) {
	flags := e.flagsRQPN.Uint32()
	w.SrcQPN = flags & low24
	if flags>>grhShift&grhMask != 0 {
		w.Flags |= cq.FlagGRH
	}
	if !d.ethernet {
		w.SLID, w.SL = e.slid.Uint16(), uint8(flags>>slShift&slMask)
	} else if e.headers&1 != 0 {
		w.SL = uint8(e.vlan.Uint16() >> 13)
	}
}

// copyOut puts the data that the device left in the entry where the request at
// pos wants it, and returns what becomes of the request.
func (d *decoder) copyOut(ep *cq.Endpoint, side cq.Side, pos uint16) cq.Status {
	e := &d.own
	n, room := e.byteCount.Uint32(), uint32(64)
	if side == cq.SendSide && atomicOpcode(SendOpcode(e.opcodeQPN[0])) {
		n = 8
	}
	if e.opcodeAndMore&formatMask == formatInline32 {
		room = 32
		copy(d.data[:], e.bytes()[:32])
	}
	switch {
	case d.scatter == nil || room == 64 && !d.wide:
		// The data is not where it was asked for, and nobody said that it
		// could be here.
		return cq.StatusGeneral
	case n > room:
		return cq.StatusLocalLength
	}
	return d.scatter(ep, side, pos, d.data[:n])
}

// signatureError hands on d.own, which ends no request. Who wants to know what it says
// takes it apart: most programs are spared the code.
func (d *decoder) signatureError() bool {
	if d.own.opcodeAndMore&formatMask == formatCompressed || d.signature == nil {
		d.drop(false)
		return false
	}
	d.signature(d.own.bytes())
	return false
}

// The error CQE, struct mlx5_err_cqe, has its own bytes 54 and 55 where others
// have the end of the timestamp.

func (e *cqe) vendorSyndrome() byte { return e.timestamp[6] }

func (e *cqe) status() cq.Status { return Syndrome(e.timestamp[7]).Status() }

// drop counts a completion that the program does not see; late says that its
// queue pair was closed. It stands apart because counting takes a locked
// instruction.
//
//go:noinline
func (d *decoder) drop(late bool) {
	d.state.Dropped(late)
}
