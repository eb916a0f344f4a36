//go:build goverbs_lfence

#include "textflag.h"

// func ReadBarrier()
TEXT ·ReadBarrier(SB), NOSPLIT, $0-0
	LFENCE
	RET
