package cq

import "strconv"

// Opcode is what a work request does. For send-side requests it is the same
// value when posted and when completed.
type Opcode uint8

// The operations of verbs.
const (
	OpSend Opcode = iota
	OpSendImm
	OpSendInvalidate
	OpWrite
	OpWriteImm
	OpRead
	OpCompareSwap
	OpFetchAdd
	OpLocalInvalidate
	OpBindMW
	OpFlush
	OpAtomicWrite
	// OpRecv is a receive that took a send.
	OpRecv
	// OpRecvWriteImm is a receive that a write with immediate consumed; the
	// data is where the write put it, not in the receive's buffer.
	OpRecvWriteImm
)

var opcodes = [...]string{
	OpSend:            "send",
	OpSendImm:         "send with immediate",
	OpSendInvalidate:  "send with invalidate",
	OpWrite:           "write",
	OpWriteImm:        "write with immediate",
	OpRead:            "read",
	OpCompareSwap:     "compare and swap",
	OpFetchAdd:        "fetch and add",
	OpLocalInvalidate: "local invalidate",
	OpBindMW:          "bind memory window",
	OpFlush:           "flush",
	OpAtomicWrite:     "atomic write",
	OpRecv:            "receive",
	OpRecvWriteImm:    "receive of write with immediate",
}

// String is the name of the operation, or Opcode(n).
func (o Opcode) String() string {
	if int(o) < len(opcodes) {
		return opcodes[o]
	}
	return "Opcode(" + strconv.Itoa(int(o)) + ")"
}
