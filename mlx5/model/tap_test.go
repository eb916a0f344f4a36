package model_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

// listening is a memory that keeps what the device read and published there.
type listening struct {
	model.Memory
	read, published [][]byte
}

func (l *listening) Read(addr uint64, p []byte) error {
	err := l.Memory.Read(addr, p)
	l.read = append(l.read, bytes.Clone(p))
	return err
}

func (l *listening) Publish(addr uint64, p []byte) error {
	l.published = append(l.published, bytes.Clone(p))
	return l.Memory.Publish(addr, p)
}

// Who taps sees the request that stands in the queue, the doorbell and the completion as they are,
// and ioctls before they are carried out.
func TestTap(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	var mem listening
	var told []string
	tap := model.Tap{
		Memory: func(program string, of model.Memory) model.Memory {
			mem.Memory = of
			return &mem
		},
		Request: func(program string, in request.Memory, addr uint64) {
			told = append(told, program+" asks "+request.Title(in, addr))
		},
		Doorbell: func(program string, page uint32, offset int, value uint64) {
			told = append(told, fmt.Sprintf("%s rings %#x at %#x: %#x", program, page, offset, value))
		},
	}
	m.Tap(tap)
	c := openWith(t, m, "sim0", &model.OpenOptions{Program: "me"})
	q := c.cq(16, cqOptions{})
	a, b := c.qp(rc, q, q, qpOptions{}), c.qp(rc, q, q, qpOptions{})
	connect(a, b, usual)
	told, mem.read = nil, nil

	a.post(0, signaled, 0)
	wqe := slices.IndexFunc(mem.read, func(p []byte) bool { return bytes.Equal(p, a.b[len(a.b)-64*64:][:64]) })
	if wqe < 0 || len(mem.published) != 1 || !bytes.Equal(mem.published[0], q.b[:64]) {
		t.Errorf("read % x, published % x", mem.read, mem.published)
	}
	a.to(stateErr)
	want := []string{
		fmt.Sprintf("me rings %#x at 0x800: %#x", c.ncID, uint64(a.qpn)<<8|1),
		"me asks DEVICE.INVOKE_WRITE MODIFY_QP",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	m.Tap(model.Tap{})
	a.to(stateReset)
	if len(told) != len(want) {
		t.Errorf("told %q after the end", told[len(want):])
	}
}
