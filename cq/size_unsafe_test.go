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

// What the poller looks at is on one cache line, and what the poster writes is not on
// that, nor on the one beside it.
func TestRequestsOnLines(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		return // 32-bit machines have it closer together
	}
	var r Requests
	const line = 64
	if n := unsafe.Sizeof(r); n != 4*line {
		t.Errorf("a table takes %d bytes: objects of that size do not begin with a line", n)
	}
	if end := unsafe.Offsetof(r.side); end >= line {
		t.Errorf("the poller's part reaches to %d", end)
	}
	if a, b := unsafe.Offsetof(r.staged), unsafe.Offsetof(r.tail); a != 2*line || b != 3*line {
		t.Errorf("the poster's parts are at %d and %d", a, b)
	}
}
