package model_test

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
)

// held are two queue pairs that complete to one queue, connected to a peer and held.
type held struct {
	*two
	cq *ring
	q  [2]*pair
}

func newHeld(t *testing.T) *held {
	h := &held{two: newTwo(t, rc, cqOptions{}, qpOptions{}, usual)}
	h.cq = h.a.cq(16, cqOptions{})
	for i := range h.q {
		h.q[i] = h.a.qp(rc, h.cq, h.cq, qpOptions{})
		peer := h.b.qp(rc, h.b.cq(16, cqOptions{}), h.b.cq(16, cqOptions{}), qpOptions{})
		connect(h.q[i], peer, usual)
	}
	if err := h.a.d.Hold(h.q[0].qpn); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *held) fill(n, want int, o model.FillOptions) {
	h.a.t.Helper()
	got, err := h.a.d.Fill(h.q[1].qpn, n, o)
	if err != nil || got != want {
		h.a.t.Fatalf("Fill(%d, %+v): %d, %v, want %d", n, o, got, err, want)
	}
}

// write posts a write of no bytes, which needs no receive.
func (h *held) write(i int, flags uint8) uint16 {
	return h.q[i].post(0x08, flags, 0, raddr(h.mb, 0))
}

func TestFill(t *testing.T) {
	h := newHeld(t)
	const signal = 0x08
	// The second is long, and the one after it not signalled.
	want := []cqe{{qpn: h.q[0].qpn, counter: h.write(0, signal)}, {}, {}, {}}
	long := h.q[0].post(0x0a, signal, 0, inline(strings.Repeat("x", 64)))
	h.write(0, 0)
	last := h.write(0, signal)
	want[1] = cqe{qpn: h.q[1].qpn, counter: h.write(1, signal)}
	want[2], want[3] = cqe{qpn: h.q[0].qpn, counter: long}, cqe{qpn: h.q[0].qpn, counter: last}
	h.cq.none()
	h.fill(3, 3, model.FillOptions{})
	got := h.cq.all()
	h.fill(5, 1, model.FillOptions{})
	got = append(got, h.cq.all()...)
	if len(got) != len(want) {
		t.Fatalf("%d completions, want %d", len(got), len(want))
	}
	for i, c := range got {
		if c.opcode != 0 || c.qpn != want[i].qpn || c.counter != want[i].counter {
			t.Errorf("completion %d: opcode %d, QP %#x, counter %d, want success, QP %#x, %d", i, c.opcode, c.qpn, c.counter, want[i].qpn, want[i].counter)
		}
	}
	if got[2].sendOp != 0x0a || got[0].sendOp != 0x08 {
		t.Errorf("opcodes of the requests: %#x and %#x", got[2].sendOp, got[0].sendOp)
	}
	h.fill(1, 0, model.FillOptions{})

	// Laps of the ring, and of the queue.
	for range 5 {
		for range 8 {
			h.write(0, signal)
			h.write(1, signal)
		}
		h.fill(100, 16, model.FillOptions{})
		if n := len(h.cq.all()); n != 16 {
			t.Fatalf("%d completions, want 16", n)
		}
	}
	noViolations(t, h.m)
}

func TestFillErrors(t *testing.T) {
	h := newHeld(t)
	h.write(0, 0) // quiet ones that fail are told of
	h.write(0, 0x08)
	h.q[1].recv(sge(h.ma, 0, 8))
	h.q[1].recv(sge(h.ma, 0, 8))
	h.fill(9, 2, model.FillOptions{Flush: true})
	h.fill(1, 1, model.FillOptions{Recv: true})
	h.fill(9, 1, model.FillOptions{Recv: true, Flush: true})
	want := []cqe{{opcode: 13, syndrome: 5}, {opcode: 13, syndrome: 5, counter: 1}, {opcode: 2}, {opcode: 14, syndrome: 5, counter: 1}}
	got := h.cq.all()
	if len(got) != len(want) {
		t.Fatalf("%d completions, want %d", len(got), len(want))
	}
	for i, c := range got {
		if w := want[i]; c.opcode != w.opcode || w.syndrome != 0 && c.syndrome != w.syndrome || c.counter != w.counter || c.bytes != 0 {
			t.Errorf("completion %d: opcode %d, syndrome %d, counter %d, %d bytes, want %d, %d, %d, 0", i, c.opcode, c.syndrome, c.counter, c.bytes, w.opcode, w.syndrome, w.counter)
		}
	}
	if s := h.q[0].state(); s != stateRTS {
		t.Errorf("the queue pair is in state %d, want RTS", s)
	}

	// What cannot be filled.
	if err := h.a.d.Hold(0x77); err == nil {
		t.Error("a queue pair that is not there is held")
	}
	if _, err := h.a.d.Fill(h.qa.qpn, 1, model.FillOptions{}); err == nil {
		t.Error("a queue pair that is not held is filled")
	}
	fresh := h.a.qp(rc, h.cq, h.cq, qpOptions{})
	if err := h.a.d.Hold(fresh.qpn); err == nil {
		t.Error("a queue pair in RESET is held")
	}
	if _, first := h.q[0].put(0x3f, 0x08, 0); first == 0 {
		t.Fatal("no request")
	}
	if _, err := h.a.d.Fill(h.q[0].qpn, 1, model.FillOptions{}); err == nil {
		t.Error("an opcode that is none is completed")
	}
	noViolations(t, h.m)
}

// A queue that is full is not filled further: it overruns, as with requests that are carried.
func TestFillOverrun(t *testing.T) {
	h := newHeld(t)
	for range 9 {
		h.write(0, 0x08)
		h.write(1, 0x08)
	}
	if n, err := h.a.d.Fill(h.q[0].qpn, 18, model.FillOptions{}); n != 16 || err == nil {
		t.Errorf("%d completions written, %v: the queue has 16 entries", n, err)
	}
}
