#include "textflag.h"

// func storeDoorbell64(p *uint64, v uint64)
TEXT ·storeDoorbell64(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET

// func storeWC(p *uint64, v uint64)
TEXT ·storeWC(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), CX
	SFENCE
	MOVQ CX, (AX)
	SFENCE
	RET

// func copyWC(dst *[64]byte, ring *[64]byte, pos, mask, n uint32)
TEXT ·copyWC(SB), NOSPLIT, $0-28
	MOVQ dst+0(FP), DI
	MOVQ ring+8(FP), BX
	MOVL pos+16(FP), DX
	MOVL n+24(FP), R10
	SFENCE

block:
	ANDL mask+20(FP), DX
	LEAQ (BX)(DX*1), SI

	// Ascending 8-byte stores, the width that every write-combining buffer merges.
	MOVQ 0(SI), AX
	MOVQ 8(SI), CX
	MOVQ 16(SI), R8
	MOVQ 24(SI), R9
	MOVQ AX, 0(DI)
	MOVQ CX, 8(DI)
	MOVQ R8, 16(DI)
	MOVQ R9, 24(DI)
	MOVQ 32(SI), AX
	MOVQ 40(SI), CX
	MOVQ 48(SI), R8
	MOVQ 56(SI), R9
	MOVQ AX, 32(DI)
	MOVQ CX, 40(DI)
	MOVQ R8, 48(DI)
	MOVQ R9, 56(DI)
	ADDQ $64, DI
	ADDL $64, DX
	DECL R10
	JNZ  block
	SFENCE
	RET
