package fakekernel

import "encoding/binary"

// Opcodes of enum ib_wr_opcode that are less common than those of wqe.go.
const (
	opCompareSwap     = 5
	opFetchAdd        = 6
	opLocalInvalidate = 7
	opBindMW          = 8
	opSendInvalidate  = 9
	opFlush           = 14
	opAtomicWrite     = 15
)

const (
	statusMWBind = 6

	flushGlobal     = 1 // enum ib_placement_type
	flushPersistent = 2

	accessFlushGlobal     = 1 << 8
	accessFlushPersistent = 1 << 9

	atomicSize = 8
)

// knows says whether requests of the queue pair can have the opcode. Datagrams
// are checked where they are sent.
func (q *qp) knows(op uint32) bool {
	switch {
	case q.typ == typeUC:
		return op <= opSendImm || op == opBindMW
	case q.typ != typeRC:
		return op <= opRead
	case op == opFlush || op == opAtomicWrite:
		return q.ctx.dev.Linux62
	}
	return op <= opSendInvalidate
}

// parseArm reads what the less common operations have in the union of a send
// request. bad says what is wrong with it.
func (w *sendWQE) parseArm(b []byte) (bad string) {
	ne := binary.NativeEndian
	switch w.opcode {
	case opCompareSwap, opFetchAdd:
		w.compareAdd, w.swap, w.rkey = ne.Uint64(b[32:]), ne.Uint64(b[40:]), ne.Uint32(b[48:])
		if w.length != atomicSize || w.flags&flagInline != 0 {
			return "an atomic operation that is not of eight bytes"
		}
	case opAtomicWrite:
		w.inline = b[sendData:][:atomicSize]
		if w.length != atomicSize || ne.Uint32(b[sendNumSGE:]) != 0 {
			return "an atomic write that is not of eight bytes, or has spans"
		}
	case opFlush:
		w.rkey, w.flushType, w.flushWhole = ne.Uint32(b[36:]), b[40], b[41] == 1
		switch {
		case ne.Uint32(b[32:]) != w.length || ne.Uint32(b[sendNumSGE:]) != 0:
			return "a flush of another length, or with spans"
		case w.flushType == 0 || w.flushType > 3 || b[41] > 1:
			return "an unknown kind of flush"
		}
	case opBindMW:
		w.window = window{
			addr: ne.Uint64(b[24:]), length: ne.Uint64(b[32:]), lkey: ne.Uint32(b[40:]), old: ne.Uint32(b[44:]),
			rkey: ne.Uint32(b[48:]), access: ne.Uint32(b[52:]),
		}
		fallthrough
	case opLocalInvalidate:
		if w.length != 0 || ne.Uint32(b[sendNumSGE:]) != 0 {
			return "data where there can be none"
		}
	}
	return ""
}

// isLocal says whether a request concerns no peer.
func (w *sendWQE) isLocal() bool { return w.opcode == opLocalInvalidate || w.opcode == opBindMW }

// local carries out such a request.
func (q *qp) local(w *sendWQE) int {
	if w.opcode == opBindMW {
		return int(q.bind(&w.window))
	}
	if !q.invalidate(w.invalidateRKey()) {
		return statusLocalQPOp
	}
	return statusOK
}

// invalidateRKey is the key to invalidate, in the machine's byte order where
// immediate data has the wire's.
func (w *sendWQE) invalidateRKey() uint32 { return binary.NativeEndian.Uint32(w.imm[:]) }

// rights are what a request needs at the peer.
func (w *sendWQE) rights() (access uint32) {
	switch w.opcode {
	case opWrite, opWriteImm, opAtomicWrite:
		return remoteWrite
	case opRead:
		return remoteRead
	case opCompareSwap, opFetchAdd:
		return remoteAtomic
	case opFlush:
		if w.flushType&flushGlobal != 0 {
			access = accessFlushGlobal
		}
		if w.flushType&flushPersistent != 0 {
			access |= accessFlushPersistent
		}
	}
	return access
}

// takesDepth says whether a request counts against the peer's read depth.
func (w *sendWQE) takesDepth() bool {
	return w.opcode == opRead || w.opcode == opCompareSwap || w.opcode == opFetchAdd || w.opcode == opAtomicWrite
}

// fetch does an atomic operation on the peer's memory.
func (p *qp) fetch(q *qp, w *sendWQE, at uint64) int {
	if at%atomicSize != 0 {
		return p.refuse(nil, 0, statusRemoteReq)
	}
	var old, b [atomicSize]byte
	if (memory{}).Read(at, old[:]) != nil {
		return p.refuse(nil, 0, statusRemoteAcc)
	}
	ne := binary.NativeEndian
	v := ne.Uint64(old[:])
	switch {
	case w.opcode == opFetchAdd:
		v += w.compareAdd
	case v == w.compareAdd:
		v = w.swap
	}
	ne.PutUint64(b[:], v)
	if (memory{}).Write(at, b[:]) != nil {
		return p.refuse(nil, 0, statusRemoteAcc)
	}
	if _, ok := q.copyIn(w.sges, old[:]); !ok {
		return statusLocalProt
	}
	return statusOK
}
