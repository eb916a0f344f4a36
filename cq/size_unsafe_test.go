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
