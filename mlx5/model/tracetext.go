package model

import (
	"fmt"
	"strings"
)

var opcodeNames = []string{
	wqeNop: "NOP", wqeSendInv: "SEND_INVAL", wqeWrite: "RDMA_WRITE", wqeWriteImm: "RDMA_WRITE_IMM", wqeSend: "SEND",
	wqeSendImm: "SEND_IMM", wqeRead: "RDMA_READ", wqeCompSwap: "ATOMIC_CS", wqeFetchAdd: "ATOMIC_FA", wqeUMR: "UMR",
}

var syndromeNames = []string{
	syndLocalLength: "LOCAL_LENGTH_ERR", syndLocalQPOp: "LOCAL_QP_OP_ERR", syndLocalProt: "LOCAL_PROT_ERR", syndFlushed: "WR_FLUSH_ERR",
	syndMWBind: "MW_BIND_ERR", syndLocalAccess: "LOCAL_ACCESS_ERR", syndInvalidReq: "REMOTE_INVAL_REQ_ERR", syndRemoteAccess: "REMOTE_ACCESS_ERR",
	syndRemoteOp: "REMOTE_OP_ERR", syndRetry: "TRANSPORT_RETRY_EXC_ERR", syndRNRRetry: "RNR_RETRY_EXC_ERR",
}

// asyncNames are the names of the types of asynchronous events that the device raises, of
// enum ib_event_type.
var asyncNames = []string{
	eventCQErr: "CQ_ERR", eventQPFatal: "QP_FATAL", eventQPReqErr: "QP_REQ_ERR", eventQPAccessErr: "QP_ACCESS_ERR", eventCommEst: "COMM_EST",
	eventSQDrained: "SQ_DRAINED", eventDeviceFatal: "DEVICE_FATAL", eventPortActive: "PORT_ACTIVE", eventPortErr: "PORT_ERR",
	eventSRQErr: "SRQ_ERR", eventSRQLimit: "SRQ_LIMIT_REACHED", eventLastWQE: "QP_LAST_WQE_REACHED", eventGIDChange: "GID_CHANGE",
}

var stateNames = []string{
	uint8(stateReset): "RESET", uint8(stateInit): "INIT", uint8(stateRTR): "RTR", uint8(stateRTS): "RTS",
	uint8(stateSQD): "SQD", uint8(stateSQE): "SQE", uint8(stateErr): "ERR",
}

var outcomeNames = []string{
	OutcomeCarried: "carried out", OutcomeFailed: "failed", OutcomeLost: "lost", OutcomeNotReady: "receiver not ready", OutcomeHeldUp: "held up", OutcomeFlushed: "flushed",
}

// nameOf is the name of a number, or what it is and the number.
func nameOf[K ~uint8 | ~uint32](names []string, k K, what string) string {
	if uint64(k) < uint64(len(names)) && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("%s %#x", what, uint32(k))
}

// String is the outcome in words.
func (o Outcome) String() string { return nameOf(outcomeNames, o, "outcome") }

// line is a line that grows.
type line struct{ strings.Builder }

func (l *line) add(format string, args ...any) { fmt.Fprintf(l, format, args...) }

// String is the object with its number, if it has one, and its handle.
func (o ObjectRef) String() string {
	switch {
	case o.Kind == "channel" || o.Kind == kindAsync:
		return fmt.Sprintf("%s descriptor %d", o.Kind, int32(o.Handle))
	case o.Number == 0:
		return fmt.Sprintf("%s handle %d", o.Kind, o.Handle)
	}
	return fmt.Sprintf("%s %#x handle %d", o.Kind, o.Number, o.Handle)
}

// String is a line such as "ioctl CQ.CQ_CREATE: ok, made CQ 0x400 handle 3".
func (e IoctlEvent) String() string {
	var l line
	l.add("ioctl %s: ", e.Request)
	if e.Errno == 0 {
		l.add("ok")
	} else {
		l.add("%v", e.Errno)
	}
	for _, made := range []bool{false, true} {
		before := ", of "
		if made {
			before = ", made "
		}
		for _, o := range e.Objects {
			if o.Made == made {
				l.add("%s%v", before, o)
				before = ", "
			}
		}
	}
	if e.Reason != "" {
		l.add(": %s", e.Reason)
	}
	return l.String()
}

// String is a line such as "WQE 3 of QP 0x48: SEND of 10 bytes to QP 0x49, signaled: carried
// out".
func (e RequestEvent) String() string {
	var l line
	l.add("WQE %d of QP %#x: %s", e.Index, e.QPN, nameOf(opcodeNames, e.Opcode, "opcode"))
	if !known(e.Opcode) {
		l.add(": ")
		e.end(&l)
		return l.String()
	}
	switch e.Opcode {
	case wqeNop:
	case wqeUMR:
		l.add(" of mkey %#x", e.Immediate)
	default:
		l.add(" of %d bytes", e.Length)
		if e.Inline {
			l.add(" inline")
		}
		l.add(" to QP %#x", e.PeerQPN)
	}
	switch e.Opcode {
	case wqeWrite, wqeWriteImm, wqeRead, wqeCompSwap, wqeFetchAdd:
		l.add(" at %#x rkey %#x", e.Remote, e.RKey)
	}
	switch e.Opcode {
	case wqeSendImm, wqeWriteImm:
		l.add(" immediate %#x", e.Immediate)
	case wqeSendInv:
		l.add(" invalidate rkey %#x", e.Immediate)
	case wqeCompSwap:
		l.add(" compare %#x swap %#x", e.Compare, e.SwapAdd)
	case wqeFetchAdd:
		l.add(" add %#x", e.SwapAdd)
	}
	if e.Flags&ceMask == ceSignal || e.Flags&ceMask == ceEvent {
		l.add(", signaled")
	}
	if e.Flags&seSolicited != 0 {
		l.add(", solicited")
	}
	if e.Flags&fmMask != 0 {
		l.add(", fence %d", e.Flags>>5)
	}
	l.add(": ")
	e.end(&l)
	return l.String()
}

// end is how the attempt ended.
func (e *RequestEvent) end(l *line) {
	l.add("%v", e.Outcome)
	switch {
	case e.Outcome == OutcomeFailed:
		l.add(": %s (syndrome %#x, vendor %#x)", nameOf(syndromeNames, e.Syndrome, "error"), e.Syndrome, e.Vendor)
	case e.Wait > 0:
		l.add(", next look after %v", e.Wait)
	}
}

// String is a line such as "CQE 0 of CQ 0x400: SEND of QP 0x48 wqe 3: ok".
func (e CompletionEvent) String() string {
	var l line
	l.add("CQE %d of CQ %#x: ", e.Index, e.CQN)
	switch {
	case e.Opcode == opResize:
		l.add("the ring was resized")
		return l.String()
	case !e.Receive():
		l.add("%s", nameOf(opcodeNames, e.SendOpcode, "opcode"))
	default:
		l.add("receive")
		switch e.Opcode {
		case opWriteImm:
			l.add(" (RDMA_WRITE_IMM)")
		case opSendImm:
			l.add(" (SEND_IMM)")
		case opSendInv:
			l.add(" (SEND_INVAL)")
		}
	}
	l.add(" of QP %#x wqe %d", e.QPN, e.Counter)
	if e.SRQN != 0 {
		l.add(" of SRQ %#x", e.SRQN)
	}
	if e.Failed() {
		l.add(": %s (syndrome %#x, vendor %#x)", nameOf(syndromeNames, e.Syndrome, "error"), e.Syndrome, e.Vendor)
		return l.String()
	}
	l.add(": ok")
	if e.Receive() || e.Length > 0 {
		l.add(", %d bytes", e.Length)
	}
	switch e.Opcode {
	case opWriteImm, opSendImm:
		l.add(", immediate %#x", e.Immediate)
	case opSendInv:
		l.add(", invalidated rkey %#x", e.Immediate)
	}
	if e.Receive() {
		l.add(", from QP %#x", e.SourceQPN)
	}
	for _, f := range []struct {
		set  bool
		name string
	}{{e.Solicited, "solicited"}, {e.Inline, "data in the CQE"}, {e.Compressed, "compressed"}} {
		if f.set {
			l.add(", %s", f.name)
		}
	}
	return l.String()
}

// String is a line such as "event QP_FATAL of QP 0x48 to descriptor 1000".
func (e DeliveryEvent) String() string {
	var l line
	if e.Completion {
		l.add("completion event")
	} else {
		l.add("event %s", nameOf(asyncNames, e.Type, "type"))
	}
	switch {
	case e.Kind != "":
		l.add(" of %s %#x", e.Kind, e.Number)
	case !e.Completion && e.Type != eventDeviceFatal:
		l.add(" of port %d", e.Element)
	}
	l.add(" to descriptor %d", e.FD)
	return l.String()
}

// String is a line such as "QP 0x48: RTS to ERR".
func (e StateEvent) String() string {
	return fmt.Sprintf("QP %#x: %s to %s", e.QPN, nameOf(stateNames, e.Old, "state"), nameOf(stateNames, e.New, "state"))
}
