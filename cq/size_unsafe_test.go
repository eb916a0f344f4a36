package cq

import (
	"testing"
	"unsafe"
)

func TestWCSize(t *testing.T) {
	if n := unsafe.Sizeof(WC{}); n > 48 {
		t.Errorf("a WC takes %d bytes, more than 48", n)
	}
}

// Succeeding copies the beginning of a slot to that of a completion.
func TestSlotLikeWC(t *testing.T) {
	var s Slot
	var w WC
	for what, at := range map[string][2]uintptr{
		"id":     {unsafe.Offsetof(s.id), unsafe.Offsetof(w.ID)},
		"bytes":  {unsafe.Offsetof(s.bytes), unsafe.Offsetof(w.Bytes)},
		"state":  {unsafe.Offsetof(s.tag), unsafe.Offsetof(w.Flags)},
		"opcode": {unsafe.Offsetof(s.tag) + 1, unsafe.Offsetof(w.Opcode)},
		"pos":    {unsafe.Offsetof(s.tag) + 2, unsafe.Offsetof(w.Side)},
		"pos, 2": {unsafe.Offsetof(s.tag) + 3, unsafe.Offsetof(w.SL)},
		"end":    {unsafe.Sizeof(s), unsafe.Offsetof(w.Timestamp)},
	} {
		if at[0] != at[1] {
			t.Errorf("%s: at %d of a slot, %d of a completion", what, at[0], at[1])
		}
	}
}
