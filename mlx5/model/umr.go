package model

import "encoding/binary"

// A UMR changes an mkey. Programs send two kinds: binding a window, and invalidating
// one. Behind the control segment stand the UMR's own control (48 bytes), the context of
// the mkey (64) and, for a binding, the data pointer of the region, padded to 64.
const (
	umrControlBytes = 48
	umrContextBytes = 64
	umrPointerBytes = 64
)

// Flags of the UMR control segment, its first byte.
const (
	umrInline    = 1 << 7
	umrCheckFree = 1 << 5
	umrCheckQPN  = 1 << 3
)

// Bits of mkey_mask: which fields of the context are to be taken over.
const (
	umrMaskLength = 1 << 0
	umrMaskStart  = 1 << 6
	umrMaskKey    = 1 << 13
	umrMaskQPN    = 1 << 14
	umrMaskFree   = 1 << 29
	umrMaskRights = 1<<18 | 1<<19 | 1<<20 | 1<<21
	umrMaskBind   = umrMaskLength | umrMaskStart | umrMaskKey | umrMaskRights | umrMaskFree
	umrMaskUnbind = umrMaskKey | umrMaskQPN | umrMaskFree
)

// Fields of the mkey's context.
const (
	umrFree      = 1 << 6 // first byte
	umrAtomic    = 1 << 6 // third byte
	umrWrite     = 1 << 5
	umrRead      = 1 << 4
	umrNoQPN     = 1<<24 - 1
	umrOctowords = 4
)

// umr carries out a UMR.
func (q *qp) umr(w *wqe) verdict {
	b := w.umr
	if len(b) < umrControlBytes+umrContextBytes {
		return fails(syndLocalQPOp, vendFewSegments)
	}
	be := binary.BigEndian
	control, context, rest := b[:umrControlBytes], b[umrControlBytes:][:umrContextBytes], b[umrControlBytes+umrContextBytes:]
	mask := be.Uint64(control[8:])
	k := q.d.keys[w.imm>>8]
	if k == nil || k.window == nil || k.pd != q.pd || control[0]&umrInline == 0 {
		return fails(syndMWBind, vendBind)
	}
	if context[0]&umrFree != 0 {
		return q.unbind(k, w.imm, control[0], mask, context)
	}
	return q.bind(k, control, mask, context, rest)
}

// unbind frees a window: that is invalidating it, or binding it to nothing.
func (q *qp) unbind(k *mkey, key uint32, flags uint8, mask uint64, context []byte) verdict {
	v := k.window
	word := binary.BigEndian.Uint32(context[4:])
	switch {
	case mask&umrMaskFree == 0, mask&^uint64(umrMaskUnbind) != 0,
		flags&umrCheckQPN != 0 && v.typ == mwType2 && v.mr != nil && (v.qp != q || k.key != key):
		return fails(syndMWBind, vendBind)
	}
	v.unbind()
	k.iova, k.start, k.length, k.access = 0, 0, 0, 0
	if mask&umrMaskKey != 0 {
		k.key = k.key&^0xff | word&0xff
	}
	return verdict{}
}

// bind opens part of a region through a window.
func (q *qp) bind(k *mkey, control []byte, mask uint64, context, rest []byte) verdict {
	be := binary.BigEndian
	v := k.window
	switch {
	case len(rest) < umrPointerBytes || be.Uint16(control[4:]) != umrOctowords:
		return fails(syndLocalQPOp, vendFewSegments)
	case mask&umrMaskBind != umrMaskBind:
		return fails(syndMWBind, vendBind)
	case control[0]&umrCheckFree != 0 && v.mr != nil:
		return fails(syndMWBind, vendBind)
	}
	word := be.Uint32(context[4:])
	start, length := be.Uint64(context[16:]), be.Uint64(context[24:])
	p := segment{be.Uint32(rest), be.Uint32(rest[4:]), be.Uint64(rest[8:])}
	var access uint32
	for bit, right := range map[uint8]uint32{umrAtomic: remoteAtomic, umrWrite: remoteWrite, umrRead: remoteRead} {
		if context[2]&bit != 0 {
			access |= right
		}
	}
	r := q.d.keys[p.key>>8]
	switch {
	case r == nil, r.key != p.key, r.window != nil, r.pd != q.pd, r.access&mwBind == 0,
		access&(remoteWrite|remoteAtomic) != 0 && r.access&localWrite == 0,
		length == 0, uint64(p.n) != length:
		return fails(syndMWBind, vendBind)
	}
	// A window of type 2 belongs to the queue pair that the context names.
	byQPN := mask&umrMaskQPN != 0
	if (v.typ == mwType2) != byQPN || byQPN && word>>8 != q.qpn || !byQPN && word>>8 != umrNoQPN {
		return fails(syndMWBind, vendBind)
	}
	at, reason := r.locate(p.addr, length, 0)
	if reason != keyGood {
		return fails(syndMWBind, vendBind)
	}
	v.unbind()
	v.mr, v.qp = r, nil
	if v.typ == mwType2 {
		v.qp = q
	}
	r.windows++
	k.key = k.key&^0xff | word&0xff
	k.iova, k.start, k.length, k.access = start, at, length, access
	return verdict{}
}

// invalidate takes away a window at the wish of the peer.
func (q *qp) invalidate(rkey uint32) bool {
	k := q.d.keys[rkey>>8]
	if k == nil || k.key != rkey || k.window == nil || k.window.typ != mwType2 || k.window.qp != q {
		return false
	}
	k.window.unbind()
	return true
}
