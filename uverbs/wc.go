package uverbs

import "github.com/goverbs/goverbs/cq"

// The words of package cq, so that a first program imports only this package
// and poll.
type (
	// WC is a work completion.
	WC = cq.WC
	// Status is how a work request ended.
	Status = cq.Status
	// Opcode is what a work request does.
	Opcode = cq.Opcode
	// Side is the queue that a request was posted to.
	Side = cq.Side
	// SendFlags modify a send-side request.
	SendFlags = cq.SendFlags
)

// The flags of completions.
const (
	// FlagImm: the message carried immediate data; see WC.Imm.
	FlagImm = cq.FlagImm
	// FlagInvalidated: the peer invalidated a key; see WC.InvalidatedRKey.
	FlagInvalidated = cq.FlagInvalidated
	// FlagGRH: the first GRHLen bytes of the buffer are for ParseGRH.
	FlagGRH = cq.FlagGRH
	// FlagSynthetic: the library made the completion up.
	FlagSynthetic = cq.FlagSynthetic
)

// The flags of send-side requests.
const (
	// Unsignaled: no completion if the request succeeds.
	Unsignaled = cq.Unsignaled
	// Fence: wait for the reads posted earlier.
	Fence = cq.Fence
	// Solicited: wake a receiver that armed for solicited completions only.
	Solicited = cq.Solicited
)

// The sides of a queue pair.
const (
	SendSide = cq.SendSide
	RecvSide = cq.RecvSide
)

// The statuses that programs tell apart most often; package cq has all.
const (
	StatusSuccess          = cq.StatusSuccess
	StatusFlushed          = cq.StatusFlushed
	StatusRetryExceeded    = cq.StatusRetryExceeded
	StatusRNRRetryExceeded = cq.StatusRNRRetryExceeded
	StatusRemoteAccess     = cq.StatusRemoteAccess
)

// The operations of completions.
const (
	OpSend            = cq.OpSend
	OpSendImm         = cq.OpSendImm
	OpWrite           = cq.OpWrite
	OpWriteImm        = cq.OpWriteImm
	OpRead            = cq.OpRead
	OpSendInvalidate  = cq.OpSendInvalidate
	OpCompareSwap     = cq.OpCompareSwap
	OpFetchAdd        = cq.OpFetchAdd
	OpLocalInvalidate = cq.OpLocalInvalidate
	OpBindMW          = cq.OpBindMW
	OpFlush           = cq.OpFlush
	OpAtomicWrite     = cq.OpAtomicWrite
	OpRecv            = cq.OpRecv
	OpRecvWriteImm    = cq.OpRecvWriteImm
)
