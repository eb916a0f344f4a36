package decode

import (
	"fmt"
	"strconv"
)

func hexNumber(v uint64) string { return "0x" + strconv.FormatUint(v, 16) }

// both writes a code in the two radixes that logs use for it.
func both(v uint64) string { return fmt.Sprintf("0x%02x (%d)", v, v) }
