package selftest

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/abi"
)

// The layouts are those of rdma/rdma_user_rxe.h and, of completions, struct ib_uverbs_wc
// of rdma/ib_user_verbs.h, in the order of the machine: package abi has them.

// What the kernel says of soft-RoCE's requests: enum ib_uverbs_wr_opcode and flags.
const (
	rxeWrite       = 0
	rxeWriteImm    = 1
	rxeSend        = 2
	rxeSendImm     = 3
	rxeRead        = 4
	rxeCompare     = 5
	rxeFetch       = 6
	rxeLocalInv    = 7
	rxeBind        = 8
	rxeSendInv     = 9
	rxeFlush       = 14
	rxeAtomicWrite = 15

	rxeInline       = 1 << 3 // IB_SEND_INLINE
	rxeWCImm        = 2      // IB_WC_WITH_IMM
	rxeWCInvalidate = 4      // IB_WC_WITH_INVALIDATE
)

// rxeCQE masks a completion.
func (m *mask) rxeCQE(b []byte) []byte {
	if len(b) < abi.SizeofUverbsWC {
		return nil
	}
	var in, out abi.UverbsWC
	copy(in.Bytes(), b)
	out.WRID, out.Status, out.Opcode, out.VendorErr, out.ByteLen = in.WRID, in.Status, in.Opcode, in.VendorErr, in.ByteLen
	out.QPNum, out.SrcQP, out.WCFlags, out.SL, out.PortNum = in.QPNum, in.SrcQP, in.WCFlags, in.SL, in.PortNum
	switch {
	case in.WCFlags&rxeWCInvalidate != 0:
		*out.Ex.InvalidateRKey() = m.key(*in.Ex.InvalidateRKey())
	case in.WCFlags&rxeWCImm != 0:
		*out.Ex.ImmData() = *in.Ex.ImmData()
	}
	return append([]byte(nil), out.Bytes()...)
}

// rxeSend masks a send request: a slot of its ring.
func (m *mask) rxeSend(b []byte) []byte {
	const fixed = abi.SizeofRxeSendWQE
	if len(b) < fixed {
		return nil
	}
	var in, out abi.RxeSendWQE
	copy(in.Bytes(), b[:fixed])
	w, o := &in.WR, &out.WR
	o.WRID, o.Opcode, o.SendFlags = w.WRID, w.Opcode, w.SendFlags
	carries := w.SendFlags&rxeInline != 0
	switch w.Opcode {
	case rxeSendImm, rxeWriteImm:
		*o.Ex.ImmData() = *w.Ex.ImmData()
	case rxeSendInv, rxeLocalInv:
		*o.Ex.InvalidateRKey() = m.key(*w.Ex.InvalidateRKey())
	}
	switch w.Opcode {
	case rxeWrite, rxeWriteImm, rxeRead, rxeAtomicWrite:
		from, to := w.WR.Rdma(), o.WR.Rdma()
		to.RemoteAddr, to.RKey = from.RemoteAddr&inPage, m.key(from.RKey)
		carries = carries || w.Opcode == rxeAtomicWrite
	case rxeCompare, rxeFetch:
		from, to := w.WR.Atomic(), o.WR.Atomic()
		to.RemoteAddr, to.RKey = from.RemoteAddr&inPage, m.key(from.RKey)
	case rxeFlush:
		from, to := w.WR.Flush(), o.WR.Flush()
		to.RemoteAddr, to.RKey, to.Length, to.Type, to.Level = from.RemoteAddr&inPage, m.key(from.RKey), from.Length, from.Type, from.Level
	case rxeBind:
		from, to := w.WR.MW(), o.WR.MW()
		to.Addr, to.Length, to.Access = from.Addr&inPage, from.Length, from.Access
		to.MRLKey, to.MWRKey, to.RKey = m.key(from.MRLKey), m.key(from.MWRKey), m.key(from.RKey)
	case rxeSend, rxeSendImm:
		from, to := w.WR.UD(), o.WR.UD()
		to.RemoteQPN, to.AHNum = from.RemoteQPN, from.AHNum
	}
	out.Status, out.State, out.Mask, out.FirstPSN, out.LastPSN = in.Status, in.State, in.Mask, in.FirstPSN, in.LastPSN
	out.AckLength, out.SSN, out.HasRdAtomic, out.IOVA = in.AckLength, in.SSN, in.HasRdAtomic, in.IOVA&inPage
	out.DMA = in.DMA
	all := append([]byte(nil), out.Bytes()...)
	all = append(all, make([]byte, len(b)-fixed)...)
	if !carries {
		m.rxePieces(all[fixed:], b[fixed:], in.DMA.NumSGE)
	}
	return all
}

// rxeRecv masks a receive: a slot of its ring.
func (m *mask) rxeRecv(b []byte) []byte {
	const fixed = abi.SizeofRxeRecvWQE
	if len(b) < fixed {
		return nil
	}
	var in, out abi.RxeRecvWQE
	copy(in.Bytes(), b[:fixed])
	out.WRID, out.DMA = in.WRID, in.DMA
	all := append([]byte(nil), out.Bytes()...)
	all = append(all, make([]byte, len(b)-fixed)...)
	m.rxePieces(all[fixed:], b[fixed:], in.DMA.NumSGE)
	return all
}

// rxePieces masks the first n elements of a slot: address, length, key.
func (m *mask) rxePieces(to, from []byte, n uint32) {
	for ; n > 0 && len(from) >= abi.SizeofRxeSGE; n-- {
		addressAt(to, from, binary.NativeEndian)
		copy(to[8:12], from[8:12])
		m.keyAt(to[12:], from[12:], binary.NativeEndian)
		to, from = to[abi.SizeofRxeSGE:], from[abi.SizeofRxeSGE:]
	}
}
