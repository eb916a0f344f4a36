package selftest

import "encoding/binary"

// The layouts are those of struct mlx5_cqe64 and mlx5_err_cqe in linux/mlx5/device.h and
// of the segments in linux/mlx5/qp.h. All is big-endian.
const (
	mlx5CQEBytes     = 64
	mlx5RespWriteImm = 1
	mlx5RespSendImm  = 3
	mlx5RespSendInv  = 4
	mlx5RespLast     = 4
	mlx5ReqError     = 0xd
	mlx5RespError    = 0xe
	mlx5ResizeCQE    = 5
)

// mlx5CQE masks an entry of a completion queue, of 64 or 128 bytes. What stands before
// the last 64 is data, or nothing.
func (m *mask) mlx5CQE(b []byte) []byte {
	if len(b) < mlx5CQEBytes {
		return nil
	}
	out := make([]byte, len(b))
	from, to := b[len(b)-mlx5CQEBytes:], out[len(b)-mlx5CQEBytes:]
	keep := func(low, high int) { copy(to[low:high], from[low:high]) }
	format, op := from[63]>>2&3, from[63]>>4
	switch {
	case format == 3: // a block of eight: of each, how long it is
		for i := range 8 {
			if i < 7 {
				keep(i*8+4, i*8+8)
			}
		}
		keep(60, 64)
	case op == mlx5ReqError, op == mlx5RespError:
		keep(32, 36) // user index
		keep(52, 64) // syndromes, opcode and QPN, counter, signature
	case op <= mlx5RespLast, op == mlx5ResizeCQE:
		if format == 0 { // else data begins at byte 0, or before
			keep(2, 4)   // WQE id
			keep(24, 28) // SL, flags and the sender's QPN
			keep(28, 30) // what headers there were
		}
		keep(32, 36)
		switch op {
		case mlx5RespWriteImm, mlx5RespSendImm:
			keep(36, 40)
		case mlx5RespSendInv:
			m.keyAt(to[36:], from[36:], binary.BigEndian)
		}
		keep(44, 64) // length, time stamp, opcode and QPN, counter, signature
	default:
		keep(56, 64)
	}
	return out
}

// The opcodes of send requests that are taken apart (MLX5_OPCODE_* of linux/mlx5/qp.h).
const (
	mlx5OpSendInval  = 0x01
	mlx5OpWrite      = 0x08
	mlx5OpWriteImm   = 0x09
	mlx5OpSend       = 0x0a
	mlx5OpSendImm    = 0x0b
	mlx5OpRead       = 0x10
	mlx5OpCompare    = 0x11
	mlx5OpFetch      = 0x12
	mlx5OpUMR        = 0x25
	mlx5TerminateKey = 0x100
	mlx5Inline       = 1 << 31
)

// mlx5Send masks a send request: a control segment and what its opcode asks for.
func (m *mask) mlx5Send(b []byte, datagram bool) []byte {
	if len(b) < 16 || len(b)%16 != 0 {
		return nil
	}
	out := make([]byte, len(b))
	copy(out[:12], b[:12])
	op := b[3]
	switch op {
	case mlx5OpSendInval, mlx5OpUMR:
		m.keyAt(out[12:], b[12:], binary.BigEndian)
	case mlx5OpWriteImm, mlx5OpSendImm:
		copy(out[12:16], b[12:16])
	}
	at := 16
	if datagram && at+48 <= len(b) {
		// Of the address: the QPN, the rate with the SL, the class, the hops, whether
		// there is a GRH.
		copy(out[at+8:at+13], b[at+8:at+13])
		copy(out[at+26:at+28], b[at+26:at+28])
		out[at+28] = b[at+28] & 0x40
		at += 48
	}
	switch op {
	case mlx5OpWrite, mlx5OpWriteImm, mlx5OpRead, mlx5OpCompare, mlx5OpFetch:
		if at+16 <= len(b) {
			addressAt(out[at:], b[at:], binary.BigEndian)
			m.keyAt(out[at+8:], b[at+8:], binary.BigEndian)
			at += 16
		}
		if op == mlx5OpCompare || op == mlx5OpFetch {
			at += 16 // the operands
		}
	case mlx5OpSend, mlx5OpSendImm, mlx5OpSendInval:
	case mlx5OpUMR:
		m.mlx5Window(out[at:], b[at:])
		return out
	default:
		return out // not known: the control segment alone
	}
	m.mlx5Pointers(out[min(at, len(out)):], b[min(at, len(b)):])
	return out
}

// mlx5Window masks what comes behind the control segment of a request that binds or
// invalidates: 48 bytes of what is to change, 64 of a memory key, pieces of memory.
func (m *mask) mlx5Window(to, from []byte) {
	copy(to[:min(48, len(to))], from)
	if len(from) < 48+64 {
		return
	}
	key, masked := from[48:48+64], to[48:48+64]
	copy(masked[:16], key[:16])
	addressAt(masked[16:], key[16:], binary.BigEndian)
	copy(masked[24:], key[24:])
	for at := 48 + 64; at+16 <= len(from); at += 16 {
		m.mlx5Pointer(to[at:], from[at:])
	}
}

// mlx5Pointers masks data segments, up to one that carries its data.
func (m *mask) mlx5Pointers(to, from []byte) {
	for ; len(from) >= 16; to, from = to[16:], from[16:] {
		if binary.BigEndian.Uint32(from)&mlx5Inline != 0 {
			copy(to[:4], from[:4])
			return
		}
		m.mlx5Pointer(to, from)
	}
}

func (m *mask) mlx5Pointer(to, from []byte) {
	copy(to[:4], from[:4])
	if binary.BigEndian.Uint32(from[4:]) == mlx5TerminateKey {
		copy(to[4:8], from[4:8])
	} else {
		m.keyAt(to[4:], from[4:], binary.BigEndian)
	}
	addressAt(to[8:], from[8:], binary.BigEndian)
}

// mlx5Recv masks a receive: data segments.
func (m *mask) mlx5Recv(b []byte) []byte {
	if len(b) == 0 || len(b)%16 != 0 {
		return nil
	}
	out := make([]byte, len(b))
	m.mlx5Pointers(out, b)
	return out
}
