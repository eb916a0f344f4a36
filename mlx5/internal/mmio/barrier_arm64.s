#include "textflag.h"

// The operands of DMB and DSB are the architecture's numbers of a domain and of
// what is ordered: 1 outer shareable, loads; 2 outer shareable, stores; 14 full
// system, stores.

// func RequestBarrier()
TEXT ·RequestBarrier(SB), NOSPLIT, $0-0
	DMB $2
	RET

// func RecordBarrier()
TEXT ·RecordBarrier(SB), NOSPLIT, $0-0
	DSB $14
	RET

// func ReadBarrier()
TEXT ·ReadBarrier(SB), NOSPLIT, $0-0
	DMB $1
	RET

// func storeDoorbell64(p *uint64, v uint64)
TEXT ·storeDoorbell64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	MOVD R1, (R0)
	RET

// func storeWC(p *uint64, v uint64)
TEXT ·storeWC(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	DSB  $14
	MOVD R1, (R0)
	DSB  $14
	RET

// func copyWC(dst *[64]byte, ring *[64]byte, pos, mask, n uint32)
TEXT ·copyWC(SB), NOSPLIT, $0-28
	MOVD  dst+0(FP), R0
	MOVD  ring+8(FP), R1
	MOVWU pos+16(FP), R2
	MOVWU mask+20(FP), R3
	MOVWU n+24(FP), R4
	DSB   $14

block:
	AND R3, R2, R5
	ADD R1, R5, R5

	// One store instruction of 64 bytes, as rdma-core's is.
	VLD1   (R5), [V0.B16, V1.B16, V2.B16, V3.B16]
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)
	ADD    $64, R2, R2
	SUBSW  $1, R4, R4
	BNE    block
	DSB    $14
	RET
