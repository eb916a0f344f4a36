//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64

package cq

import "math/bits"

// little32 returns the number whose bytes in memory are those of v, the lowest first.
func little32(v uint32) uint32 { return bits.ReverseBytes32(v) }
