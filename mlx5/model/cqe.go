package model

import "encoding/binary"

// Opcodes of completions.
const (
	opRequester = 0
	opWriteImm  = 1
	opSend      = 2
	opSendImm   = 3
	opSendInv   = 4
	opResize    = 5
	opReqErr    = 13
	opRespErr   = 14
	opInvalid   = 15
)

// Formats of completions, in the bits where they stand.
const (
	formatPlain      = 0
	formatInline32   = 0x4
	formatInline64   = 0x8
	formatCompressed = 0xc
)

const (
	bitSolicited = 0x2
	bitOwner     = 0x1
)

// completion is what goes into a CQE.
type completion struct {
	cq      *cq
	opcode  uint8
	sendOp  uint8  // opcode of the send request
	qpn     uint32 // of the queue pair that the request is of
	uidx    uint32 // its user index, for CQE version 1
	srqn    uint32 // of its shared receive queue, for version 0
	counter uint16
	bytes   uint32
	imm     uint32 // immediate or rkey
	source  uint32 // flags_rqpn: GRH, SL or type of address, source QPN
	slid    uint16
	path    uint8 // ml_path

	solicited        bool
	syndrome, vendor uint8

	inline []byte // payload that goes into the CQE; nil if none does
	stamp  uint64
}

func (c *completion) failed() bool { return c.opcode == opReqErr || c.opcode == opRespErr }

// encode writes struct mlx5_cqe64 to b, without the owner bit. Multi-byte fields are
// big-endian. Of an error most fields are reserved.
func (c *completion) encode(b []byte, version uint8) {
	clear(b)
	be := binary.BigEndian
	if version == 1 {
		be.PutUint32(b[32:], c.uidx)
	} else {
		be.PutUint32(b[32:], c.srqn)
	}
	be.PutUint32(b[56:], uint32(c.sendOp)<<24|c.qpn)
	be.PutUint16(b[60:], c.counter)
	b[63] = c.opcode << 4
	switch {
	case c.opcode == opResize:
		clear(b[:60])
		return
	case c.failed():
		b[54], b[55] = c.vendor, c.syndrome
		return
	}
	b[17] = c.path
	be.PutUint16(b[22:], c.slid)
	be.PutUint32(b[24:], c.source)
	be.PutUint32(b[36:], c.imm)
	be.PutUint32(b[44:], c.bytes)
	be.PutUint64(b[48:], c.stamp)
	if c.solicited {
		b[63] |= bitSolicited
	}
}

// encodeInline puts payload into a CQE: into its own first half, or, of big ones, into
// the 64 bytes before it.
func (c *completion) encodeInline(before, b []byte) {
	switch {
	case c.inline == nil:
	case len(before) > 0:
		copy(before, c.inline)
		b[63] |= formatInline64
	default:
		copy(b[:32], c.inline)
		b[63] |= formatInline32
	}
}
