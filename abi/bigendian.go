package abi

// Be16 is a __be16: a 16-bit number in network byte order, on every machine.
// It is made of bytes, so a copy of it is the wire's bytes.
type Be16 [2]byte

// MakeBe16 returns v in network byte order.
func MakeBe16(v uint16) Be16 { return Be16{byte(v >> 8), byte(v)} }

// Uint16 returns the number in the machine's byte order.
func (b Be16) Uint16() uint16 { return uint16(b[0])<<8 | uint16(b[1]) }

// Be32 is a __be32: a 32-bit number in network byte order, on every machine.
type Be32 [4]byte

// MakeBe32 returns v in network byte order.
func MakeBe32(v uint32) Be32 {
	return Be32{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
}

// Uint32 returns the number in the machine's byte order.
func (b Be32) Uint32() uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// Be64 is a __be64: a 64-bit number in network byte order, on every machine.
type Be64 [8]byte

// MakeBe64 returns v in network byte order.
func MakeBe64(v uint64) Be64 {
	return Be64{
		byte(v >> 56), byte(v >> 48), byte(v >> 40), byte(v >> 32),
		byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v),
	}
}

// Uint64 returns the number in the machine's byte order.
func (b Be64) Uint64() uint64 {
	return uint64(b[0])<<56 | uint64(b[1])<<48 | uint64(b[2])<<40 | uint64(b[3])<<32 |
		uint64(b[4])<<24 | uint64(b[5])<<16 | uint64(b[6])<<8 | uint64(b[7])
}
