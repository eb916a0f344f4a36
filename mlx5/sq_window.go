package mlx5

import "github.com/goverbs/goverbs/cq"

// Memory windows are bound and invalidated by a UMR, a request that rewrites a
// memory key (set_bind_wr of rdma-core's libmlx5): what it changes, the new
// contents, and, for a bind, where the bytes are. Windows are of type 2B; 1 is
// for a call of its own, which this library does not have.

// Flags of struct mlx5_wqe_umr_ctrl_seg.
const (
	umrInline            = 1 << 7 // the translation is in the request
	umrCheckFree         = 1 << 5
	umrTranslationOffset = 1 << 4
	umrCheckQPN          = 1 << 3
)

// What a UMR changes: bits of mkey_mask.
const (
	changeLength       = 1 << 0
	changeStart        = 1 << 6
	changeKey          = 1 << 13
	changeQPN          = 1 << 14
	changeLocalWrite   = 1 << 18
	changeRemoteRead   = 1 << 19
	changeRemoteWrite  = 1 << 20
	changeRemoteAtomic = 1 << 21
	changeFree         = 1 << 29

	changeBind = changeLength | changeStart | changeLocalWrite | changeRemoteRead | changeRemoteWrite | changeRemoteAtomic
)

// Bits of a memory key's context.
const (
	mkeyFree = 1 << 6 // of byte 0

	mkeyLocalWrite   = 1 << 3 // of byte 2
	mkeyRemoteRead   = 1 << 4
	mkeyRemoteWrite  = 1 << 5
	mkeyRemoteAtomic = 1 << 6

	// anyQPN, above the byte that is the key's own, says that the window
	// belongs to no queue pair.
	anyQPN = 0xffffff00
)

// klmOctowords is how many units of 16 bytes the translation of a bind has, with
// its padding.
const klmOctowords = klmBytes / segmentBytes

// Rights, as in enum ib_uverbs_access_flags.
const (
	accessLocalWrite   = 1 << 0
	accessRemoteWrite  = 1 << 1
	accessRemoteRead   = 1 << 2
	accessRemoteAtomic = 1 << 3
	accessZeroBased    = 1 << 5
)

// maxWindow is the most that a window can span: the byte count of one element of
// the translation.
const maxWindow = 1 << 31

// putWindow writes the segments of a bind or an invalidation at pos and returns
// where the WQE ends, and the key that the control segment names.
func (q *SQ) putWindow(pos uint32, r *cq.SendRequest) (end, rkey uint32) {
	rkey = r.InvalidateRKey
	length, key := uint64(0), uint32(anyQPN)
	if r.Op == cq.OpBindMW {
		if r.WindowBytes > maxWindow {
			panic("mlx5: Put: a window of more than 2^31 bytes")
		}
		rkey, length = r.WindowRKey, r.WindowBytes
		key = r.RKey&0xff | anyQPN
		if length != 0 {
			key = r.RKey&0xff | q.qpn<<8
		}
	}
	flags, changes, octowords := uint64(umrInline|umrTranslationOffset|umrCheckQPN), uint64(changeFree|changeKey|changeQPN), uint64(0)
	if length != 0 {
		flags, octowords = umrInline|umrTranslationOffset|umrCheckFree, klmOctowords
		changes |= changeBind
	}
	pos = q.putSegment(pos, flags<<56|octowords<<16, changes)
	pos = q.putSegment(pos, 0, 0)
	pos = q.putSegment(pos, 0, 0)
	if length == 0 {
		pos = q.putSegment(pos, mkeyFree<<56|uint64(key), 0)
		pos = q.putSegment(pos, 0, 0)
		pos = q.putSegment(pos, 0, 0)
		return q.putSegment(pos, 0, 0), rkey
	}
	start := r.RemoteAddr
	if r.WindowAccess&accessZeroBased != 0 {
		start = 0
	}
	pos = q.putSegment(pos, mkeyAccess(r.WindowAccess)<<40|uint64(key), 0)
	pos = q.putSegment(pos, start, length)
	pos = q.putSegment(pos, 0, 0)
	pos = q.putSegment(pos, 0, 0)
	pos = q.putSegment(pos, length<<32|uint64(r.WindowLKey), r.RemoteAddr)
	pos = q.putSegment(pos, 0, 0)
	pos = q.putSegment(pos, 0, 0)
	return q.putSegment(pos, 0, 0), rkey
}

// mkeyAccess translates rights. Local reads the kernel allowed when it made the
// window.
func mkeyAccess(rights uint32) (bits uint64) {
	for _, a := range [...]struct {
		right uint32
		bit   uint64
	}{
		{accessLocalWrite, mkeyLocalWrite},
		{accessRemoteWrite, mkeyRemoteWrite},
		{accessRemoteRead, mkeyRemoteRead},
		{accessRemoteAtomic, mkeyRemoteAtomic},
	} {
		if rights&a.right != 0 {
			bits |= a.bit
		}
	}
	return bits
}

// putSegment writes two numbers at pos and returns the position after them.
func (q *SQ) putSegment(pos uint32, high, low uint64) uint32 {
	q.segment(pos).put(high, low)
	return pos + segmentBytes
}
