package mlx5

import "math/bits"

// The device chooses byte 62 of a CQE so that the exclusive or of all 64 bytes
// and of the three bytes of the 24-bit consumer counter is 0xff. That proves a
// dump that somebody pasted: whole, unaltered, and of one entry.

// SignatureFold is what the bytes of the consumer counter must give, xored, for
// the entry to be intact. With enhanced compression, which nobody has to fear
// who made the CQ through verbs, byte 62 means something else.
func SignatureFold(b *[64]byte) uint8 {
	x := uint8(0xff)
	for _, v := range b {
		x ^= v
	}
	return x
}

// SignatureResult is the outcome of [CheckSignature].
type SignatureResult uint8

const (
	// SignatureWrong: bytes were changed, or belong to another entry.
	SignatureWrong SignatureResult = iota
	// SignatureRight: the entry is intact.
	SignatureRight
	// SignatureWrapped: right for a counter whose low bits are those given
	// and whose high bits the log does not print.
	SignatureWrapped
)

// CheckSignature compares an entry with the consumer counter that a log prints
// for it. Logs print the counter modulo the unknown size of the ring, so a
// counter is accepted whose missing bits would make the signature right and
// whose lap has the parity of the owner bit.
func CheckSignature(b *[64]byte, counter uint32) SignatureResult {
	counter &= 0xffffff
	diff := SignatureFold(b) ^ fold(counter)
	if diff == 0 {
		return SignatureRight
	}
	owner := b[63] & 1
	// Bit p of the counter lands in bit p mod 8 of the fold. If the ring
	// has 2^l entries, bit l is the owner bit and the bits above are free.
	for l := bits.Len32(counter); l < 24; l++ {
		var free uint8
		for p := l + 1; p < 24; p++ {
			free |= 1 << (p % 8)
		}
		if (diff^owner<<(l%8))&^free == 0 {
			return SignatureWrapped
		}
	}
	return SignatureWrong
}

func fold(counter uint32) uint8 {
	return uint8(counter) ^ uint8(counter>>8) ^ uint8(counter>>16)
}
