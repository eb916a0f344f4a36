package mlx5

import "github.com/goverbs/goverbs/abi"

// cqe is struct mlx5_cqe64 of linux/mlx5/device.h: a completion, or the second
// half of one of 128 bytes. All numbers are big-endian.
type cqe struct {
	_             [16]byte // tunnels, large receive offload, receive hash
	_             [6]byte  // hash type, path bits, checksum
	slid          abi.Be16
	flagsRQPN     abi.Be32 // GRH in bits 28 and 29; SL, or kind of RoCE packet, below; QPN of the sender in the low 24
	_             byte
	headers       byte     // bit 0: there is a VLAN tag
	vlan          abi.Be16 // priority in the upper three bits
	userIndex     abi.Be32 // in the low 24 bits; version 0: number of the SRQ, or 0
	imm           abi.Be32 // immediate data, or the key that was invalidated
	_             [4]byte  // tag matching
	byteCount     abi.Be32
	timestamp     abi.Be64
	opcodeQPN     abi.Be32 // QPN in the low 24 bits; of a requester the opcode above it
	counter       abi.Be16 // the position of the request in its queue
	signature     byte
	opcodeAndMore byte // see below
}

// The last byte of a CQE: the opcode in the upper half (MLX5_CQE_* of
// linux/mlx5/device.h), the format in bits 2 and 3, bit 1 set for a solicited
// event, and in bit 0 the owner, which turns over with every lap of the ring.
const (
	cqeRequester       = 0x0
	cqeWriteImm        = 0x1
	cqeSend            = 0x2
	cqeSendImm         = 0x3
	cqeSendInvalidate  = 0x4
	cqeResize          = 0x5
	cqeInvalid         = 0xf // nobody's completion: what software fills a ring with
	ownerBit           = 0x01
	formatMask         = 0x0c
	formatInline32     = 0x04 // the data is in the first half of the 64 bytes
	formatInline64     = 0x08 // the data is in the 64 bytes before
	formatCompressed   = 0x0c
	emptyOpcodeAndMore = cqeInvalid << 4
)

// low24 are the bits of queue pair numbers, user indices and consumer counters.
const low24 = 1<<24 - 1

// The bits of flagsRQPN above the sender's QPN.
const (
	grhShift = 28
	grhMask  = 3
	slShift  = 24
	slMask   = 0xf
)

// kind is opcode and format, where they are in the last byte.
func (e *cqe) kind() byte { return e.opcodeAndMore & (0xf0 | formatMask) }

// atomicOpcode says whether the opcode of a requester is that of an atomic
// operation, whose result is 8 bytes whatever byteCount says.
func atomicOpcode(o SendOpcode) bool {
	switch o {
	case 0x11, 0x12, 0x14, 0x15:
		return true
	}
	return false
}
