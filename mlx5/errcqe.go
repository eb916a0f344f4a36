package mlx5

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

// The opcodes of completions that are not successes: bits 7:4 of byte 63
// (enum in linux/mlx5/device.h, MLX5_CQE_*).
const (
	cqeSignatureError = 0xc
	cqeRequesterError = 0xd
	cqeResponderError = 0xe
)

// Errors of the parsers of this file. They come wrapped, with the byte that
// decided.
var (
	// ErrNotErrorCQE: the entry is a completion of another kind, or no
	// mlx5 completion at all.
	ErrNotErrorCQE = errors.New("not an mlx5 error CQE")
	// ErrCompressedCQE: the format bits say that the entry is a block of
	// compressed completions; its other fields mean nothing.
	ErrCompressedCQE = errors.New("compressed CQE block")
)

// ErrorCQE is what a requester or responder error CQE says: struct
// mlx5_err_cqe of linux/mlx5/device.h. The rest of the 64 bytes is reserved and
// holds garbage on receive queues.
type ErrorCQE struct {
	// Side tells whose request failed: [cq.SendSide] for a requester's,
	// [cq.RecvSide] for a responder's.
	Side cq.Side
	// Owner is the ownership bit; it turns over with every lap of the ring.
	Owner uint8
	// Syndrome, Vendor, HWSyndrome and HWSyndromeType say why, from coarse
	// to fine. The last two are known to the vendor only.
	Syndrome       Syndrome
	Vendor         VendorSyndrome
	HWSyndrome     uint8
	HWSyndromeType uint8
	// SendOpcode is the opcode of the failed send request, as the device
	// read it: after a bad request it may be garbage. Zero on responders.
	SendOpcode SendOpcode
	// QPN is the local queue pair (or raw send or receive queue).
	QPN uint32
	// UserIndex is the index that the library gave the QP or shared receive
	// queue, or, on contexts with CQE version 0, the SRQ number.
	UserIndex uint32
	// WQECounter is the number of the request in its queue: in 64-byte
	// blocks on a send queue, in requests on a receive queue.
	WQECounter uint16
	// Signature is the byte that the device chose so that
	// [SignatureFold] of the entry gives the consumer counter.
	Signature uint8
}

// ParseErrorCQE reads the last 64 bytes of a CQE. It fails with
// [ErrCompressedCQE] or [ErrNotErrorCQE]; signature errors, which have a layout
// of their own, are not error CQEs here: see [ParseSignatureErrorCQE].
func ParseErrorCQE(b *[64]byte) (ErrorCQE, error) {
	if b[63]&0xc == 0xc {
		return ErrorCQE{}, fmt.Errorf("%w: byte 63 is %#02x, format 3", ErrCompressedCQE, b[63])
	}
	e := ErrorCQE{
		Owner:          b[63] & 1,
		Syndrome:       Syndrome(b[55]),
		Vendor:         VendorSyndrome(b[54]),
		HWSyndrome:     b[52],
		HWSyndromeType: b[53],
		SendOpcode:     SendOpcode(b[56]),
		QPN:            binary.BigEndian.Uint32(b[56:]) & 0xffffff,
		UserIndex:      binary.BigEndian.Uint32(b[32:]) & 0xffffff,
		WQECounter:     binary.BigEndian.Uint16(b[60:]),
		Signature:      b[62],
	}
	switch b[63] >> 4 {
	case cqeRequesterError:
		e.Side = cq.SendSide
	case cqeResponderError:
		e.Side = cq.RecvSide
	default:
		return ErrorCQE{}, fmt.Errorf("%w: byte 63 is %#02x, its upper half is neither 0xd (requester) nor 0xe (responder)",
			ErrNotErrorCQE, b[63])
	}
	return e, nil
}

// SignatureErrorCQE tells that the protection information (T10-DIF) of data
// that went through a signature memory key did not check: struct
// mlx5_sig_err_cqe of linux/mlx5/device.h. It ends no work request.
type SignatureErrorCQE struct {
	// QPN is the local queue pair.
	QPN uint32
	// MKey is the signature memory key.
	MKey uint32
	// Offset is where in the data, in bytes.
	Offset uint64
	// Guard, AppTag and RefTag tell which of the three fields was wrong.
	Guard, AppTag, RefTag bool
	// Expected and Actual are the guard and application tag together;
	// ExpectedRef and ActualRef the reference tag.
	Expected, Actual, ExpectedRef, ActualRef uint32
	// Type and Domain are the device's numbers for the kind of signature
	// and for where the data was checked: memory or wire.
	Type, Domain uint8
}

// ParseSignatureErrorCQE reads the last 64 bytes of a CQE with opcode 0xc.
func ParseSignatureErrorCQE(b *[64]byte) (SignatureErrorCQE, error) {
	if b[63]>>4 != cqeSignatureError {
		return SignatureErrorCQE{}, fmt.Errorf("%w: byte 63 is %#02x, the upper half of a signature error is 0xc",
			ErrNotErrorCQE, b[63])
	}
	if b[63]&0xc == 0xc {
		return SignatureErrorCQE{}, fmt.Errorf("%w: byte 63 is %#02x, format 3", ErrCompressedCQE, b[63])
	}
	kind := binary.BigEndian.Uint16(b[32:])
	return SignatureErrorCQE{
		QPN:         binary.BigEndian.Uint32(b[56:]) & 0xffffff,
		MKey:        binary.BigEndian.Uint32(b[36:]),
		Offset:      binary.BigEndian.Uint64(b[40:]),
		Guard:       kind&(1<<13) != 0,
		AppTag:      kind&(1<<12) != 0,
		RefTag:      kind&(1<<11) != 0,
		Expected:    binary.BigEndian.Uint32(b[16:]),
		Actual:      binary.BigEndian.Uint32(b[20:]),
		ExpectedRef: binary.BigEndian.Uint32(b[24:]),
		ActualRef:   binary.BigEndian.Uint32(b[28:]),
		Type:        b[34] & 7,
		Domain:      b[35] & 7,
	}, nil
}
