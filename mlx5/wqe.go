package mlx5

import "github.com/goverbs/goverbs/cq"

// A send request is a WQE: a control segment of 16 bytes, then, in this order and
// as far as its operation has them, an address vector (datagrams), a remote
// address, the operands of an atomic or what a window is to be, and the data:
// pointers of 16 bytes each, or one inline segment. All numbers are big-endian
// (struct mlx5_wqe_ctrl_seg and its kin of linux/mlx5/qp.h).
//
// A WQE begins at a block of 64 bytes and takes as many as it needs. Behind the
// last block of the ring it goes on with the first; parts of 16 bytes are never
// split, since the ring is a multiple of 64.
const (
	blockBytes   = 64 // MLX5_SEND_WQE_BB
	blockShift   = 6
	segmentBytes = 16 // the unit in which a WQE counts its own size
	segmentShift = 4
	// maxSegments is the most that the 6 bits for it in the control segment
	// can say.
	maxSegments = 63

	controlBytes   = 16
	remoteBytes    = 16
	atomicBytes    = 16
	addressBytes   = 48 // struct mlx5_wqe_datagram_seg
	pointerBytes   = 16 // struct mlx5_wqe_data_seg
	inlineHeader   = 4
	umrBytes       = 48 // struct mlx5_wqe_umr_ctrl_seg
	mkeyBytes      = 64 // struct mlx5_mkey_seg
	klmBytes       = 64 // one struct mlx5_klm, padded to what the device fetches
	atomicOperands = 8  // bytes, of each
)

// Bits of byte 11 of the control segment.
const (
	ctrlSmallFence = 1 << 5 // wait for the UMR before it
	ctrlFence      = 4 << 5 // wait for reads, atomics and UMRs before it
	ctrlSignal     = 2 << 2 // complete also on success
	ctrlSolicited  = 1 << 1
)

// sendControl is byte 11 of the control segment, by the flags of a request.
var sendControl = [8]uint8{
	0:                                       ctrlSignal,
	cq.Unsignaled:                           0,
	cq.Fence:                                ctrlSignal | ctrlFence,
	cq.Fence | cq.Unsignaled:                ctrlFence,
	cq.Solicited:                            ctrlSignal | ctrlSolicited,
	cq.Solicited | cq.Unsignaled:            ctrlSolicited,
	cq.Solicited | cq.Fence:                 ctrlSignal | ctrlFence | ctrlSolicited,
	cq.Solicited | cq.Fence | cq.Unsignaled: ctrlFence | ctrlSolicited,
}

const (
	inlineMark = 1 << 31 // in the byte count of an inline segment
	// terminator is the lkey of an element of a receive that ends its list.
	terminator = 0x100
	// extendedAV, beside the QPN of a datagram, says that the address vector
	// has 48 bytes.
	extendedAV = 1 << 31
)

// Opcodes of send requests that this package writes.
const (
	opcodeNop            = 0x00
	opcodeSendInvalidate = 0x01
	opcodeWrite          = 0x08
	opcodeWriteImm       = 0x09
	opcodeSend           = 0x0a
	opcodeSendImm        = 0x0b
	opcodeRead           = 0x10
	opcodeCompareSwap    = 0x11
	opcodeFetchAdd       = 0x12
	opcodeUMR            = 0x25
)

// sendForm is what a WQE has between its control segment and its data.
type sendForm uint8

const (
	formNone   sendForm = iota // not an operation of this device
	formPlain                  // nothing
	formRemote                 // a remote address
	formAtomic                 // a remote address and operands
	formUMR                    // a window that is bound or invalidated; no data
)

// sendOp is how an operation goes into a WQE. imm and invalidate are masks: they
// choose what stands in the last word of the control segment without a branch.
type sendOp struct {
	opcode          uint8
	form            sendForm
	imm, invalidate uint32
}

const all = ^uint32(0)

// sendOps is indexed by operation, of which [Operations] has 32. Flush and atomic write, which soft-RoCE has,
// no ConnectX is known to have.
var sendOps = [32]sendOp{
	cq.OpSend:            {opcode: opcodeSend, form: formPlain},
	cq.OpSendImm:         {opcode: opcodeSendImm, form: formPlain, imm: all},
	cq.OpSendInvalidate:  {opcode: opcodeSendInvalidate, form: formPlain, invalidate: all},
	cq.OpWrite:           {opcode: opcodeWrite, form: formRemote},
	cq.OpWriteImm:        {opcode: opcodeWriteImm, form: formRemote, imm: all},
	cq.OpRead:            {opcode: opcodeRead, form: formRemote},
	cq.OpCompareSwap:     {opcode: opcodeCompareSwap, form: formAtomic},
	cq.OpFetchAdd:        {opcode: opcodeFetchAdd, form: formAtomic},
	cq.OpLocalInvalidate: {opcode: opcodeUMR, form: formUMR},
	cq.OpBindMW:          {opcode: opcodeUMR, form: formUMR},
}

// put writes two numbers.
func (s *segment) put(high, low uint64) { s[0], s[1] = toBE64(high), toBE64(low) }

// putPointer writes a data pointer.
func (s *segment) putPointer(length, lkey uint32, addr uint64) {
	s.put(uint64(length)<<32|uint64(lkey), addr)
}

// first returns the first 8 bytes as a register takes them.
func (s *segment) first() uint64 { return s[0] }

// segments is how many segments the WQE that begins with a control segment says it
// has, opcode what it is.
func (s *segment) segments() uint32 { return uint32(toBE64(s[0])) & maxSegments }
func (s *segment) opcode() uint8    { return uint8(toBE64(s[0]) >> 32) }
