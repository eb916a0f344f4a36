package model_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
)

// checkSend checks the completion of a request that succeeded.
func checkSend(t testing.TB, q *pair, op uint8, index uint16, n uint32) cqe {
	t.Helper()
	c := q.scq.one()
	if c.opcode != 0 || c.sendOp != op || c.qpn != q.qpn || c.uidx != q.uidx || c.counter != index || c.bytes != n {
		t.Fatalf("completion %+v: want opcode %#x of QP %#x, index %d, %d bytes", c, op, q.qpn, index, n)
	}
	return c
}

// checkRecv checks the completion of a receive.
func checkRecv(t testing.TB, q, from *pair, opcode uint8, index uint16, n, imm uint32) cqe {
	t.Helper()
	c := q.rcq.one()
	if c.opcode != opcode || c.qpn != q.qpn || c.uidx != q.uidx || c.counter != index || c.bytes != n || c.imm != imm || c.source&0xffffff != from.qpn {
		t.Fatalf("completion %+v: want opcode %d of QP %#x, index %d, %d bytes, immediate %#x, from %#x", c, opcode, q.qpn, index, n, imm, from.qpn)
	}
	return c
}

// checkError checks the completion of a request that failed.
func checkError(t testing.TB, q *ring, opcode uint8, qpn uint32, index uint16, syndrome, vendor uint8) {
	t.Helper()
	c := q.one()
	if c.opcode != opcode || c.qpn != qpn || c.counter != index || c.syndrome != syndrome || c.vendor != vendor {
		t.Fatalf("completion: opcode %d QP %#x index %d syndrome %#x/%#x, want %d, %#x, %d, %#x/%#x",
			c.opcode, c.qpn, c.counter, c.syndrome, c.vendor, opcode, qpn, index, syndrome, vendor)
	}
}

func TestRCOperations(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	copy(w.ma.b, "the quick brown fox jumps over the lazy dog")

	r := w.qb.recv(sge(w.mb, 100, 4), sge(w.mb, 200, 100))
	i := w.qa.post(opSend, signaled, 0, sge(w.ma, 4, 5), sge(w.ma, 20, 5))
	checkRecv(t, w.qb, w.qa, 2, r, 10, 0)
	checkSend(t, w.qa, opSend, i, 0)
	if got := string(w.mb.b[100:104]) + string(w.mb.b[200:206]); got != "quickjumps" {
		t.Errorf("SEND: %q", got)
	}

	r = w.qb.recv(sge(w.mb, 0, 64))
	i = w.qa.post(opSendImm, signaled|solicited, 0x11223344, inline("inlined"))
	if c := checkRecv(t, w.qb, w.qa, 3, r, 7, 0x11223344); !c.solicited {
		t.Error("the completion is not solicited")
	}
	checkSend(t, w.qa, opSendImm, i, 0)
	if !bytes.HasPrefix(w.mb.b, []byte("inlined\x00")) {
		t.Errorf("inline: %q", w.mb.b[:8])
	}

	i = w.qa.post(opWrite, signaled, 0, raddr(w.mb, 1000), sge(w.ma, 0, 9))
	checkSend(t, w.qa, opWrite, i, 0)
	if string(w.mb.b[1000:1009]) != "the quick" {
		t.Errorf("WRITE: %q", w.mb.b[1000:1009])
	}
	w.qb.rcq.none()

	r = w.qb.recv()
	i = w.qa.post(opWriteImm, signaled, 0xaabbccdd, raddr(w.mb, 2000), sge(w.ma, 0, 3))
	checkRecv(t, w.qb, w.qa, 1, r, 3, 0xaabbccdd)
	checkSend(t, w.qa, opWriteImm, i, 0)

	copy(w.mb.b[3000:], "remote data")
	i = w.qa.post(opRead, signaled, 0, raddr(w.mb, 3000), sge(w.ma, 4000, 6), sge(w.ma, 5000, 5))
	checkSend(t, w.qa, opRead, i, 11)
	if got := string(w.ma.b[4000:4006]) + string(w.ma.b[5000:5005]); got != "remote data" {
		t.Errorf("READ: %q", got)
	}

	word := w.mb.b[4096:]
	binary.NativeEndian.PutUint64(word, 40)
	i = w.qa.post(opFAA, signaled, 0, raddr(w.mb, 4096), atomicOperands(2, 0), sge(w.ma, 8, 8))
	checkSend(t, w.qa, opFAA, i, 8)
	i = w.qa.post(opCAS, signaled, 0, raddr(w.mb, 4096), atomicOperands(7, 42), sge(w.ma, 16, 8))
	checkSend(t, w.qa, opCAS, i, 8)
	i = w.qa.post(opCAS, signaled, 0, raddr(w.mb, 4096), atomicOperands(9, 42), sge(w.ma, 24, 8))
	checkSend(t, w.qa, opCAS, i, 8)
	if a, b, c, d := binary.NativeEndian.Uint64(w.ma.b[8:]), binary.NativeEndian.Uint64(w.ma.b[16:]), binary.NativeEndian.Uint64(w.ma.b[24:]), binary.NativeEndian.Uint64(word); a != 40 || b != 42 || c != 7 || d != 7 {
		t.Errorf("atomics brought %d, %d, %d and left %d", a, b, c, d)
	}

	// A message of nothing, an unsignalled one, a no-op.
	r = w.qb.recv()
	w.qa.post(opSend, 0, 0)
	checkRecv(t, w.qb, w.qa, 2, r, 0, 0)
	w.qa.scq.none()
	checkSend(t, w.qa, opNop, w.qa.post(opNop, signaled, 0), 0)
	noViolations(t, w.m)
}

// Indices wrap in all rings, also in the middle of a request, and past 16 bits.
func TestRCWraps(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{blocks: 16, receives: 4, shift: 4}, usual)
	blocks := 0
	data := strings.Repeat("a request of several blocks goes around the end of the ring; ", 14)
	for n := range 10000 {
		size := n % len(data)
		r := w.qb.recv(sge(w.mb, 0, 1024))
		index := w.qa.post(opSendImm, signaled, uint32(n), inline(data[:size]))
		checkRecv(t, w.qb, w.qa, 3, r, uint32(size), uint32(n))
		checkSend(t, w.qa, opSendImm, index, 0)
		if string(w.mb.b[:size]) != data[:size] {
			t.Fatalf("round %d: %q", n, w.mb.b[:size])
		}
		blocks += int(w.qa.pi - index)
	}
	if blocks <= 1<<16 {
		t.Errorf("%d blocks: the counter has not wrapped", blocks)
	}
	noViolations(t, w.m)
}

func TestEvents(t *testing.T) {
	w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, usual)
	q := w.qb.rcq
	send := func(flags uint8) {
		w.qb.recv()
		w.qa.post(opSend, flags, 0)
	}
	send(0)
	if q.event() {
		t.Fatal("an event without an arm")
	}
	// Armed with a completion that was not polled: at once.
	q.arm(false)
	if !q.event() || q.event() {
		t.Fatal("not one event for a completion that was there")
	}
	// It was told: not again.
	q.arm(false)
	if q.event() {
		t.Fatal("a second event for the same completion")
	}
	send(0)
	if !q.event() {
		t.Fatal("no event")
	}
	q.all()
	// One event per arm.
	q.arm(false)
	send(0)
	send(0)
	if !q.event() || q.event() {
		t.Fatal("not one event for two completions")
	}
	q.all()
	// Solicited only.
	q.arm(true)
	send(0)
	if q.event() {
		t.Fatal("an event for a completion that is not solicited")
	}
	send(solicited)
	if !q.event() {
		t.Fatal("no event for a solicited completion")
	}
	q.all()
	// An arm with an old serial number is lost.
	q.serial--
	q.arm(false)
	send(0)
	if q.event() {
		t.Fatal("an event from an arm with an old serial number")
	}
	q.serial++
	q.arm(false)
	if !q.event() {
		t.Fatal("no event from the right arm")
	}
	// An error counts as solicited.
	q.all()
	q.arm(true)
	w.qb.recv()
	w.qb.to(stateErr)
	if !q.event() {
		t.Fatal("no event for a flushed receive")
	}
	select {
	case <-q.channel.Ready():
	default:
		t.Error("Ready has no value")
	}
	noViolations(t, w.m)
}

// A Notify function runs when an event comes.
func TestNotify(t *testing.T) {
	w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, usual)
	n := 0
	w.qb.rcq.channel.Notify(func() { n++ })
	w.qb.rcq.arm(false)
	w.qb.recv()
	w.qa.post(opSend, 0, 0)
	if n != 1 {
		t.Errorf("%d calls", n)
	}
}

// A device that nobody told of a doorbell does nothing; one that is polled finds it in
// the page, and the records of the others of the page if it is not strict.
func TestPoll(t *testing.T) {
	for _, strict := range []bool{false, true} {
		m := newModel(t, model.DeviceConfig{Name: "sim0"})
		c := open(t, m, "sim0")
		cq := c.cq(64, cqOptions{})
		q1, q2 := c.qp(rc, cq, cq, qpOptions{}), c.qp(rc, cq, cq, qpOptions{})
		connect(q1, q2, usual)
		q1.recv()
		q2.recv()
		_, first1 := q1.put(opSend, signaled, 0)
		q2.put(opSend, signaled, 0)
		page := registers{c.ncID: {0x800: first1}} // q2's store was hidden by q1's
		if !c.f.Poll(page, strict) || c.f.Poll(page, strict) {
			t.Error("Poll does not say once that there was a doorbell")
		}
		want := 4
		if strict {
			want = 2
		}
		if got := len(cq.all()); got != want {
			t.Errorf("strict %v: %d completions, want %d", strict, got, want)
		}
	}
}

// registers are UAR pages as maps.
type registers map[uint32]map[int]uint64

func (r registers) Take(page uint32, offset int) uint64 {
	v := r[page][offset]
	delete(r[page], offset)
	return v
}

// Registers of a context that has its pages from the start. Without write-combining they
// have no size, and programs count them from there: all rings are at the first.
func TestStaticUARs(t *testing.T) {
	for _, none := range []bool{false, true} {
		t.Run(fmt.Sprintf("no write-combining %v", none), func(t *testing.T) { testStaticUARs(t, none) })
	}
}

func testStaticUARs(t *testing.T, noBlueFlame bool) {
	m := newModel(t, model.DeviceConfig{Name: "sim0", StaticUARs: true, CQEVersion0: true, NoBlueFlame: noBlueFlame})
	c := open(t, m, "sim0")
	if c.ctx.TotBfregs != 16 || c.ctx.CQEVersion != 0 {
		t.Fatalf("context %+v", c.ctx)
	}
	p, err := c.f.Map(0, 4096, true)
	c.must("map", err)
	c.ncID = p.ID
	cq := c.cq(64, cqOptions{channel: true})
	for range 20 {
		a, b := c.qp(rc, cq, cq, qpOptions{}), c.qp(rc, cq, cq, qpOptions{})
		connect(a, b, usual)
		for range 2 {
			b.recv()
			cq.arm(false)
			a.post(opSend, signaled, 0)
			if got := cq.all(); len(got) != 2 || got[0].uidx != 0 || got[0].qpn != b.qpn || got[1].qpn != a.qpn || !cq.event() {
				t.Fatalf("completions %+v", got)
			}
			a, b = b, a
		}
	}
	noViolations(t, m)
}
