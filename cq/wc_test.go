package cq

import (
	"errors"
	"strings"
	"testing"
)

func TestErr(t *testing.T) {
	ok := WC{}
	if err := ok.Err(); err != nil {
		t.Errorf("success is an error: %v", err)
	}
	bad := WC{ID: 7, Side: RecvSide, QPN: 18, Status: StatusRetryExceeded, VendorErr: 0x81}
	err := bad.Err()
	if !errors.Is(err, StatusRetryExceeded) || errors.Is(err, StatusFlushed) {
		t.Errorf("errors.Is does not tell the status of %v", err)
	}
	for _, part := range []string{"recv request 7", "QP 18", "status 12", "transport retry exceeded", "0x81"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
	bad.ID = 3<<32 | 9
	if text := bad.Err().Error(); !strings.Contains(text, "recv request 0x300000009 ") {
		t.Errorf("%q: an id made of two numbers is not to be read", text)
	}
}

func TestUnknownNumbers(t *testing.T) {
	for s, want := range map[interface{ String() string }]string{
		Status(27):      "Status(27)",
		Status(1 << 31): "Status(2147483648)",
		Opcode(200):     "Opcode(200)",
		Side(9):         "Side(9)",
		StatusFlushed:   "flushed",
		OpRead:          "read",
		RecvSide:        "recv",
	} {
		if s.String() != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
	if !strings.Contains(Status(1<<31).Describe(), "2147483648") {
		t.Error(Status(1 << 31).Describe())
	}
}

func TestImm(t *testing.T) {
	var w WC
	if _, ok := w.Imm(); ok {
		t.Error("immediate data where none was set")
	}
	w.SetImm(5)
	if v, ok := w.Imm(); !ok || v != 5 {
		t.Error("immediate data lost")
	}
	if _, ok := w.InvalidatedRKey(); ok {
		t.Error("immediate data read as rkey")
	}
}
