package model

import (
	"time"

	"github.com/goverbs/goverbs/abi/request"
)

// IoctlEvent is an ioctl that was answered.
type IoctlEvent struct {
	Origin
	// Request is the object and the method, and of INVOKE_WRITE the command, as package
	// abi/request names them.
	Request string
	// Objects are those that the request named, and behind them those that it made. A
	// request that failed has made none.
	Objects []ObjectRef
	// Errno is 0 if it succeeded. Reason says which rule it broke, empty if there is no
	// more to say than Errno does.
	Errno  request.Errno
	Reason string
}

// ObjectRef is an object of the kernel's in an [IoctlEvent].
type ObjectRef struct {
	// Kind is as in [Device.Objects], or "async" for a file of asynchronous events.
	Kind string
	// Handle is the object's, or the descriptor of a channel or an async.
	Handle uint32
	// Number is the QPN, CQN, SRQN or lkey, 0 for other kinds.
	Number uint32
	// Made says that the request made it.
	Made bool
}

// Outcome is what became of an attempt at a request.
type Outcome uint8

const (
	// OutcomeCarried: it is done.
	OutcomeCarried Outcome = iota
	// OutcomeFailed: it ends with a syndrome, with no further attempt.
	OutcomeFailed
	// OutcomeLost: nothing came back. It is sent again after the time-out.
	OutcomeLost
	// OutcomeNotReady: the peer has no receive (RNR). It is sent again after the peer's timer.
	OutcomeNotReady
	// OutcomeHeldUp: a fault keeps it from being sent for now.
	OutcomeHeldUp
	// OutcomeFlushed: the queue pair is in error, so it ends without an attempt.
	OutcomeFlushed
)

// RequestEvent is an attempt at a send request, when it is over. One that is sent
// again has an event for each attempt, and another one if it fails because none is left.
type RequestEvent struct {
	Origin
	QPN     uint32
	PeerQPN uint32 // of a datagram that in its address vector
	Index   uint16 // of its first block of 64 bytes, modulo 2^16
	Blocks  uint16
	Opcode  uint8 // the device's: 0x0a is SEND
	Flags   uint8 // fm_ce_se of the control segment: 0x08 completion, 0x02 solicited, 0xe0 fence

	Length    uint64 // of the message, in bytes
	Segments  int    // data pointers
	Inline    bool   // the message stands in the request
	Immediate uint32 // or rkey to invalidate, or mkey of a UMR

	Remote           uint64 // address, of WRITE, READ and atomics
	RKey             uint32
	SwapAdd, Compare uint64 // of atomics

	// Route is how its packets went. It has no packets if none left the device.
	Route Route

	Outcome          Outcome
	RNRTimer         uint8         // code of the time that a peer that was not ready asks for
	Wait             time.Duration // until it is tried again, 0 for ever and where it is not
	Syndrome, Vendor uint8         // of one that failed
}

// CompletionEvent is a completion that was written to the ring of a completion queue.
type CompletionEvent struct {
	Origin
	CQN        uint32
	Index      uint32 // how many were written before, without the mask of the ring
	QPN        uint32
	SRQN       uint32 // of a receive from a shared receive queue, or 0
	Opcode     uint8  // the device's: 0 is a send request, 2 the receive of a SEND, 13 and 14 errors of the two sides
	SendOpcode uint8  // of the send request
	Counter    uint16 // which request it is of: its index, or the receive's
	Length     uint32 // in bytes, 0 for what brings nothing
	Immediate  uint32 // or rkey that was invalidated
	SourceQPN  uint32 // who sent, of a receive
	Solicited  bool
	Inline     bool // the payload stands in the entry
	Compressed bool // it is one of a session that was written together

	Syndrome, Vendor uint8 // of a failure, otherwise 0
}

// Failed says whether the request failed.
func (e CompletionEvent) Failed() bool { return e.Opcode == opReqErr || e.Opcode == opRespErr }

// Receive says whether it is of the receive side.
func (e CompletionEvent) Receive() bool {
	return e.Opcode == opRespErr || e.Opcode >= opWriteImm && e.Opcode <= opSendInv
}

// DeliveryEvent is a record that was put to a completion channel or a file of
// asynchronous events.
type DeliveryEvent struct {
	Origin
	FD         int32  // of the queue
	Completion bool   // the queue is a completion channel
	Element    uint64 // user handle of the object, or number of the port
	Type       uint32 // enum ib_event_type, of asynchronous ones
	// Kind and Number are the object that it is of: "CQ" and its CQN, "QP" or "SRQ". Empty
	// for events of ports and of the device.
	Kind   string
	Number uint32
}

// StateEvent is a queue pair that changed its state. States are enum ib_qp_state.
type StateEvent struct {
	Origin
	QPN      uint32
	Old, New uint8
}
