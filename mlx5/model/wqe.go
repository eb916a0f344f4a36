package model

import "encoding/binary"

// Opcodes of send requests.
const (
	wqeNop        = 0x00
	wqeSendInv    = 0x01
	wqeWrite      = 0x08
	wqeWriteImm   = 0x09
	wqeSend       = 0x0a
	wqeSendImm    = 0x0b
	wqeRead       = 0x10
	wqeCompSwap   = 0x11
	wqeFetchAdd   = 0x12
	wqeUMR        = 0x25
	maxSegments   = 63
	wqeBytes      = (maxSegments + 1) * segmentBytes
	inlineBit     = 1 << 31
	terminatorKey = 0x100
)

// Bits of fm_ce_se.
const (
	fmMask      = 0xe0
	ceMask      = 0x0c
	ceSignal    = 0x08
	ceEvent     = 0x0c
	seSolicited = 0x02
)

// segment is a data pointer.
type segment struct {
	n    uint32
	key  uint32
	addr uint64
}

// readSegment reads a data pointer: byte count, key, address.
func readSegment(b []byte) segment {
	be := binary.BigEndian
	return segment{be.Uint32(b), be.Uint32(b[4:]), be.Uint64(b[8:])}
}

// wqe is a send request as it stands in the queue.
type wqe struct {
	index   uint16
	blocks  uint16
	opcode  uint8
	flags   uint8 // fm_ce_se as it came
	ce      uint8
	solicit bool
	imm     uint32 // immediate, rkey to invalidate, or mkey of a UMR

	remote    uint64
	rkey      uint32
	swapAdd   uint64
	compare   uint64
	av        addressVector
	local     []segment
	inline    []byte
	hasInline bool
	length    uint64 // of the message
	umr       []byte // segments of a UMR, behind the first
}

// addressVector says where a datagram goes.
type addressVector struct {
	qkey, dqpn uint32
	extended   bool
	slRate     uint8
	path       uint8
	dlid       uint16 // on RoCE the UDP source port
	mac        [6]byte
	class, hop uint8
	grh        uint32
	gid        [16]byte
}

// Bits of the word of an address vector that has the flow label.
const (
	avGRH       = 1 << 30
	avSGIDShift = 20
	avFlowMask  = 1<<20 - 1
	avExtended  = 1 << 31
)

// Vendor syndromes, the device's own words for what was wrong.
const (
	vendGather        = 0x50
	vendReadScatter   = 0x20
	vendScatter       = 0x30
	vendBadWQE        = 0x68
	vendTooLong       = 0x69
	vendBeyondMTU     = 0x6a
	vendWrongOpcode   = 0x6d
	vendFewSegments   = 0x6e
	vendInlineBeyond  = 0x6f
	vendInlineScatter = 0x70
	vendReserved      = 0x71
	vendUDGID         = 0x74
	vendUDOther       = 0x77
	vendTimeout       = 0x81
	vendRNR           = 0x87
	vendRemoteAccess  = 0x88
	vendRemoteOp      = 0x89
	vendInvalidReq    = 0x8a
	vendMTU           = 0x8e
	vendNoRead        = 0x90
	vendNoAtomic      = 0x91
	vendNoWrite       = 0x92
	vendMisaligned    = 0xd1
	vendInvalidate    = 0xc9
	vendRecvTooSmall  = 0xd4
	vendAtomicSize    = 0xd3
	vendFlushed       = 0xf9
	vendBind          = 0x51
)

// Syndromes, what InfiniBand calls it.
const (
	syndLocalLength  = 0x01
	syndLocalQPOp    = 0x02
	syndLocalProt    = 0x04
	syndFlushed      = 0x05
	syndMWBind       = 0x06
	syndLocalAccess  = 0x11
	syndInvalidReq   = 0x12
	syndRemoteAccess = 0x13
	syndRemoteOp     = 0x14
	syndRetry        = 0x15
	syndRNRRetry     = 0x16
)

// fetch reads the request at the consumer index of the send queue. A vendor syndrome
// says what is wrong with it: its opcode, and how many blocks it has, are good
// as far as they can be.
func (q *qp) fetch(w *wqe) (vendor uint8) {
	b := q.d.m.block[:]
	at := uint32(q.sendCI) & (q.blocks - 1)
	*w = wqe{index: q.sendCI, blocks: 1}
	if q.f.mem.Read(q.sendBuf+uint64(at)*blockBytes, b[:blockBytes]) != nil {
		return vendBadWQE
	}
	be := binary.BigEndian
	word, second := be.Uint32(b), be.Uint32(b[4:])
	w.opcode, w.flags, w.ce, w.solicit, w.imm = uint8(word), b[11], b[11]&ceMask, b[11]&seSolicited != 0, be.Uint32(b[12:])
	ds := second & 0x3f
	if ds == 0 {
		return vendFewSegments
	}
	w.blocks = uint16((ds + 3) / 4)
	switch {
	case w.blocks > q.sendPI-q.sendCI: // reaches beyond what was posted
		w.blocks = q.sendPI - q.sendCI
		return vendBadWQE
	case uint16(word>>8) != w.index, second>>8 != q.qpn, second&0xc0 != 0, word>>24 != 0:
		return vendBadWQE
	}
	// What is left may go on at the ring's beginning.
	for got := uint32(1); got < uint32(w.blocks); {
		slot := (at + got) & (q.blocks - 1)
		n := min(uint32(w.blocks)-got, q.blocks-slot)
		if q.f.mem.Read(q.sendBuf+uint64(slot)*blockBytes, b[got*blockBytes:][:n*blockBytes]) != nil {
			return vendBadWQE
		}
		got += n
	}
	return q.parse(w, b[segmentBytes:ds*segmentBytes])
}

// parse reads the segments behind the control segment.
func (q *qp) parse(w *wqe, b []byte) (vendor uint8) {
	be := binary.BigEndian
	if !q.may(w.opcode) {
		if known(w.opcode) {
			return vendWrongOpcode
		}
		return vendReserved
	}
	if w.opcode == wqeUMR {
		w.umr = b
		return 0
	}
	if q.typ == typeUD && w.opcode != wqeNop {
		if len(b) < avBytes {
			return vendFewSegments
		}
		w.av.read(b)
		b = b[avBytes:]
	}
	switch w.opcode {
	case wqeNop:
		return 0
	case wqeWrite, wqeWriteImm, wqeRead, wqeCompSwap, wqeFetchAdd:
		if len(b) < segmentBytes {
			return vendFewSegments
		}
		w.remote, w.rkey = be.Uint64(b), be.Uint32(b[8:])
		b = b[segmentBytes:]
	}
	if w.isAtomic() {
		if len(b) < segmentBytes {
			return vendFewSegments
		}
		w.swapAdd, w.compare = be.Uint64(b), be.Uint64(b[8:])
		b = b[segmentBytes:]
	}
	return q.parseData(w, b)
}

// parseData reads data pointers and inline data.
func (q *qp) parseData(w *wqe, b []byte) (vendor uint8) {
	w.local = q.d.m.local[:0]
	for len(b) >= segmentBytes {
		n := binary.BigEndian.Uint32(b)
		if n&inlineBit == 0 {
			s := readSegment(b)
			b = b[segmentBytes:]
			w.local = append(w.local, s)
			w.length += s.bytes()
			continue
		}
		n &^= inlineBit
		size := (4 + uint64(n) + segmentBytes - 1) / segmentBytes * segmentBytes
		switch {
		case w.opcode == wqeRead || w.isAtomic():
			return vendInlineScatter
		case w.hasInline || len(w.local) > 0, size != uint64(len(b)):
			// One inline segment, alone, that fills the rest.
			return vendInlineBeyond
		}
		w.hasInline, w.inline = true, b[4:4+n]
		w.length = uint64(n)
		b = nil
	}
	q.d.m.local = w.local
	return 0
}

// bytes is how many bytes a data pointer is of: a count of 0 stands for 2^31.
func (s segment) bytes() uint64 {
	if s.n == 0 {
		return 1 << 31
	}
	return uint64(s.n)
}

const avBytes = 48

func (a *addressVector) read(b []byte) {
	be := binary.BigEndian
	a.qkey = be.Uint32(b)
	dqpn := be.Uint32(b[8:])
	a.dqpn, a.extended = dqpn&psnMask, dqpn&avExtended != 0
	a.slRate, a.path, a.dlid = b[12], b[13], be.Uint16(b[14:])
	copy(a.mac[:], b[20:])
	a.class, a.hop, a.grh = b[26], b[27], be.Uint32(b[28:])
	copy(a.gid[:], b[32:])
}

func (w *wqe) isAtomic() bool { return w.opcode == wqeCompSwap || w.opcode == wqeFetchAdd }

func known(opcode uint8) bool {
	switch opcode {
	case wqeNop, wqeSendInv, wqeWrite, wqeWriteImm, wqeSend, wqeSendImm, wqeRead, wqeCompSwap, wqeFetchAdd, wqeUMR:
		return true
	}
	return false
}

// may says whether the transport has an opcode.
func (q *qp) may(opcode uint8) bool {
	switch opcode {
	case wqeNop, wqeSend, wqeSendImm:
		return true
	case wqeSendInv, wqeWrite, wqeWriteImm, wqeUMR:
		return q.typ != typeUD
	case wqeRead:
		return q.typ == typeRC
	case wqeCompSwap, wqeFetchAdd:
		return q.typ == typeRC && !q.d.cfg.NoAtomics
	}
	return false
}
