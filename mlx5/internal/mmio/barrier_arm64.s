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

// func StartWC()
TEXT ·StartWC(SB), NOSPLIT, $0-0
	DSB $14
	RET

// func FlushWC()
TEXT ·FlushWC(SB), NOSPLIT, $0-0
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

// func copyBlueFlame(dst, src *[64]byte)
//
// One store instruction of 64 bytes, as rdma-core's is.
TEXT ·copyBlueFlame(SB), NOSPLIT, $0-16
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	VLD1 (R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VST1 [V0.B16, V1.B16, V2.B16, V3.B16], (R0)
	RET
