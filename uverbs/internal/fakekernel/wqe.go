package fakekernel

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/abi"
)

// Layout of struct rxe_send_wqe and rxe_recv_wqe in rdma/rdma_user_rxe.h.
const (
	sendID       = 0
	sendOpcode   = 12
	sendFlags    = 16
	sendImm      = 20
	sendRemote   = 24
	sendRKey     = 32
	sendDestQPN  = 24 // of datagrams, as the two below
	sendQKey     = 28
	sendAH       = 36
	sendStatus   = 144
	sendState    = 148
	sendIOVA     = 152
	sendLength   = 184
	sendResid    = 188
	sendCurSGE   = 192
	sendNumSGE   = 196
	sendSGEOff   = 200
	sendData     = 208
	recvID       = 0
	recvLength   = 16
	recvNumSGE   = 28
	recvSGE      = 40
	sgeSize      = 16
	wqeDone      = 3 // enum wqe_state of the driver
	flagSignaled = 2
	flagSolicit  = 4
	flagInline   = 8
)

// Opcodes of enum ib_wr_opcode.
const (
	opWrite    = 0
	opWriteImm = 1
	opSend     = 2
	opSendImm  = 3
	opRead     = 4
)

// sge is a span of a request.
type sge struct {
	addr         uint64
	length, lkey uint32
}

func parseSGEs(b []byte, n uint32) []sge {
	list := make([]sge, n)
	ne := binary.NativeEndian
	for i := range list {
		s := b[i*sgeSize:]
		list[i] = sge{ne.Uint64(s), ne.Uint32(s[8:]), ne.Uint32(s[12:])}
	}
	return list
}

func total(list []sge) (n uint64) {
	for _, s := range list {
		n += uint64(s.length)
	}
	return n
}

// sendWQE is a send request.
type sendWQE struct {
	id            uint64
	opcode, flags uint32
	imm           [4]byte
	remote        uint64
	rkey          uint32
	length        uint32
	ah, dest      uint32 // of datagrams, as qkey
	qkey          uint32
	sges          []sge
	inline        []byte

	compareAdd, swap uint64
	window           window
	flushType        uint8
	flushWhole       bool
}

// parseSend reads the send request in a slot. bad says why it is none.
func (q *qp) parseSend(b []byte) (w sendWQE, bad string) {
	ne := binary.NativeEndian
	w = sendWQE{
		id: ne.Uint64(b[sendID:]), opcode: ne.Uint32(b[sendOpcode:]), flags: ne.Uint32(b[sendFlags:]),
		imm: [4]byte(b[sendImm:]), rkey: ne.Uint32(b[sendRKey:]), length: ne.Uint32(b[sendLength:]),
		// The driver uses this copy of the remote address.
		remote: ne.Uint64(b[sendIOVA:]),
	}
	if q.typ == uint64(abi.IB_UVERBS_QPT_UD) {
		w.dest, w.qkey, w.ah = ne.Uint32(b[sendDestQPN:]), ne.Uint32(b[sendQKey:]), ne.Uint32(b[sendAH:])
	}
	num := ne.Uint32(b[sendNumSGE:])
	switch {
	case !q.knows(w.opcode):
		return w, "an unknown opcode"
	case ne.Uint32(b[sendState:]) != 0:
		return w, "a state that is not posted"
	case ne.Uint32(b[sendResid:]) != w.length:
		return w, "a residue that is not the length"
	case ne.Uint32(b[sendCurSGE:]) != 0, ne.Uint32(b[sendSGEOff:]) != 0:
		return w, "a current span or an offset that is not zero"
	case w.isRDMA() && ne.Uint64(b[sendRemote:]) != w.remote:
		return w, "a remote address that is not its iova"
	}
	if bad = w.parseArm(b); bad != "" || w.isLocal() || w.opcode == opFlush || w.opcode == opAtomicWrite {
		return w, bad
	}
	switch {
	case w.flags&flagInline != 0:
		if w.opcode == opRead || w.length > q.cap.MaxInlineData {
			return w, "more inline bytes than granted"
		}
		w.inline = b[sendData:][:w.length]
		return w, ""
	case num > q.cap.MaxSendSGE:
		return w, "more spans than granted"
	}
	w.sges = parseSGEs(b[sendData:], num)
	if total(w.sges) != uint64(w.length) {
		return w, "spans that do not add up to the length"
	}
	return w, ""
}

func (w *sendWQE) isRDMA() bool { return !w.isSend() && !w.isLocal() }

func (w *sendWQE) isSend() bool {
	return w.opcode == opSend || w.opcode == opSendImm || w.opcode == opSendInvalidate
}

// consumesReceive tells whether the request needs a receive at the peer.
func (w *sendWQE) consumesReceive() bool { return w.isSend() || w.opcode == opWriteImm }

func (w *sendWQE) hasImm() bool { return w.opcode == opWriteImm || w.opcode == opSendImm }

// wcOpcode is the opcode of the completion of a send request.
func (w *sendWQE) wcOpcode() uint32 {
	switch w.opcode {
	case opWrite, opWriteImm:
		return 1
	case opRead:
		return 2
	case opCompareSwap:
		return 3
	case opFetchAdd:
		return 4
	case opBindMW:
		return 5
	case opLocalInvalidate:
		return 6
	case opFlush:
		return 8
	case opAtomicWrite:
		return 9
	}
	return 0
}

// recvWQE is a receive.
type recvWQE struct {
	id   uint64
	sges []sge
}

// receives is where the queue pair takes its receives from.
func (q *qp) receives() *receives {
	if q.srq != nil {
		return &q.srq.receives
	}
	return &q.own
}

// peekRecv reads the next receive; ok is false when there is none.
func (q *qp) peekRecv() (w recvWQE, ok bool) {
	rq := q.receives()
	producer := rq.ring.producer()
	if producer > rq.ring.mask {
		q.ctx.k.violation("the producer index of a receive ring is %d, its mask %d", producer, rq.ring.mask)
		return w, false
	}
	if producer == rq.next {
		return w, false
	}
	b := rq.ring.slot(rq.next)
	ne := binary.NativeEndian
	w.id = ne.Uint64(b[recvID:])
	num := ne.Uint32(b[recvNumSGE:])
	if num > rq.maxSGE {
		q.ctx.k.violation("a receive has %d spans, granted are %d", num, rq.maxSGE)
		num = 0
	}
	w.sges = parseSGEs(b[recvSGE:], num)
	if total(w.sges) != uint64(ne.Uint32(b[recvLength:])) {
		q.ctx.k.violation("a receive has %d bytes in its spans and says %d", total(w.sges), ne.Uint32(b[recvLength:]))
	}
	return w, true
}

// popRecv gives the slot of the next receive back.
func (q *qp) popRecv() {
	rq := q.receives()
	rq.next = (rq.next + 1) & rq.ring.mask
	rq.ring.setConsumer(rq.next)
	if q.srq != nil {
		q.srq.taken()
	}
}
