package model_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

// Peek shows what Read would return later, and changes nothing.
func TestPeek(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	c := open(t, m, "sim0")
	var b, r [16]byte
	peek := func(n int, want error) {
		t.Helper()
		if _, err := c.async.Peek(n, b[:]); !errors.Is(err, want) {
			t.Errorf("Peek(%d): %v, want %v", n, err, want)
		}
	}
	peek(0, request.EAGAIN)
	c.must("down", c.d.SetPort(1, false))
	c.must("up", c.d.SetPort(1, true))
	peek(2, request.EAGAIN)
	peek(-1, request.EINVAL)
	if _, err := c.async.Peek(0, b[:8]); !errors.Is(err, request.EINVAL) {
		t.Errorf("half a record: %v", err)
	}
	for left := 2; left > 0; left-- {
		if n, err := c.async.Peek(left-1, b[:]); n != 16 || err != nil || ne.Uint32(b[8:]) != 9 {
			t.Errorf("the last of %d: % x, %d, %v", left, b, n, err)
		}
		if n, err := c.async.Peek(0, b[:]); n != 16 || err != nil {
			t.Errorf("the first of %d: %d, %v", left, n, err)
		}
		if n, err := c.async.Read(r[:]); n != 16 || err != nil || !bytes.Equal(r[:], b[:]) {
			t.Errorf("Read: % x, %v, and Peek % x", r, err, b)
		}
	}
	peek(0, request.EAGAIN)
	c.d.Fail()
	if _, err := c.async.Peek(0, b[:]); err != nil || ne.Uint32(b[8:]) != 8 {
		t.Errorf("% x, %v", b, err)
	}
	peek(1, request.EIO)
	c.must("close", c.async.Close())
	peek(0, os.ErrClosed)
}
