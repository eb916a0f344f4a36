package cq

// A WRID is the 64-bit number that a device which keeps one per request is told
// instead of the program's own: the user index of the QP, the side and the
// number of the request. With it a completion finds its request without a map,
// and a stale or invented one is recognised.
//
//	bits  0..31  number of the request, modulo 2^32
//	bits 32..55  user index
//	bit  56      side: 1 for receives
//	bits 57..63  zero

// MakeWRID composes a WRID. index is less than [MaxEndpoints].
func MakeWRID(index uint32, side Side, seq uint32) uint64 {
	return uint64(side)<<56 | uint64(index)<<32 | uint64(seq)
}

// SplitWRID takes a WRID apart; ok is false when it is none.
func SplitWRID(w uint64) (index uint32, side Side, seq uint32, ok bool) {
	return uint32(w>>32) & (MaxEndpoints - 1), Side(w >> 56 & 1), uint32(w), w>>57 == 0
}
