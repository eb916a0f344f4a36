#include "textflag.h"

// func StartWC()
TEXT ·StartWC(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func FlushWC()
TEXT ·FlushWC(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func storeDoorbell64(p *uint64, v uint64)
TEXT ·storeDoorbell64(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET

// func copyBlueFlame(dst, src *[64]byte)
//
// Ascending 8-byte stores, the width that every write-combining buffer merges.
TEXT ·copyBlueFlame(SB), NOSPLIT, $0-16
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ 0(SI), AX
	MOVQ 8(SI), CX
	MOVQ 16(SI), DX
	MOVQ 24(SI), R8
	MOVQ 32(SI), R9
	MOVQ 40(SI), R10
	MOVQ 48(SI), R11
	MOVQ 56(SI), R12
	MOVQ AX, 0(DI)
	MOVQ CX, 8(DI)
	MOVQ DX, 16(DI)
	MOVQ R8, 24(DI)
	MOVQ R9, 32(DI)
	MOVQ R10, 40(DI)
	MOVQ R11, 48(DI)
	MOVQ R12, 56(DI)
	RET
