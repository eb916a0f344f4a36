package mlx5

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// Each call that a hostile device can lead astray, and what has to come of it.

func (h *hostile) poll(t *testing.T, batch int) {
	h.before = append(h.before[:0], h.device.mem...)
	record := [8]byte(h.record)
	o := h.expect(batch)
	h.calls = h.calls[:0]
	n, drained := h.q.Poll(h.wcs[:batch])
	if n < 0 || n > batch {
		t.Fatalf("%d completions in %d places", n, batch)
	}
	if !slices.Equal(h.wcs[:n], o.wcs) {
		t.Fatalf("completions\n%+v, want\n%+v", h.wcs[:n], o.wcs)
	}
	if got := h.q.Consumed() + h.q.skew; got != o.next {
		t.Fatalf("%d entries read of %d, want %d", got-h.next, h.device.n, o.next-h.next)
	}
	if drained == h.owned(o.next) {
		t.Fatalf("drained is %v after %d of %d entries", drained, o.next-h.next, h.device.n)
	}
	if !slices.Equal(h.calls, o.calls) {
		t.Fatalf("told of\n%+v, want\n%+v", h.calls, o.calls)
	}
	if !bytes.Equal(h.before, h.device.mem) {
		t.Fatal("Poll wrote to the ring")
	}
	if h.state.Load()&cq.Closed == 0 { // else the memory is not the device's word
		h.stray += o.stray
		h.late += o.late
	}
	h.gave(t, o.next, record)
	h.audit(t)
}

// gave checks that the entries before index next, and no others, went back to the
// device, whose record was what is given.
func (h *hostile) gave(t *testing.T, next uint32, record [8]byte) {
	if next != h.next && h.state.Load()&cq.Closed == 0 {
		h.given = next
		if !h.overrun {
			big.PutUint32(record[:], next&0xffffff)
		}
	}
	h.next = next
	if [8]byte(h.record) != record {
		t.Fatalf("the record is % x, want % x", h.record, record)
	}
}

// audit compares what the queue keeps of requests with the ledgers.
func (h *hostile) audit(t *testing.T) {
	if stray, late := h.state.Stray.Load(), h.state.Late.Load(); stray != h.stray || late != h.late {
		t.Fatalf("%d stray, %d late; want %d and %d", stray, late, h.stray, h.late)
	}
	for _, u := range h.users {
		for side, r := range []*cq.Requests{u.send, u.recv} {
			l := &u.queues[side]
			n := len(l.requests)
			for n > 0 && !l.requests[n-1].committed {
				n--
			}
			if r.Outstanding() != uint32(n) || r.Room() != l.room(false) || r.Idle() != (n == 0) {
				t.Fatalf("QP %#x, %v: %d outstanding, room for %d; want %d and %d", u.ep.QPN, cq.Side(side), r.Outstanding(), r.Room(), n, l.room(false))
			}
		}
	}
	if n := h.srq.table.Room(); n != h.sharedOwed.room(true) {
		t.Fatalf("room for %d shared receives, want %d", n, h.sharedOwed.room(true))
	}
}

// empty asks what any goroutine may ask.
func (h *hostile) empty(t *testing.T) {
	h.before = append(h.before[:0], h.device.mem...)
	if e := h.q.Empty(); e == h.owned(h.given) {
		t.Fatalf("empty is %v", e)
	}
	if n, want := h.q.Produced()-h.q.Consumed(), h.end(h.given)-h.next; n != want {
		t.Fatalf("%d entries produced and not consumed in a ring of %d, want %d", int32(n), h.device.n, int32(want))
	}
}

// sweep drops the completions of a queue pair.
func (h *hostile) sweep(t *testing.T, qpn uint32) {
	h.before = append(h.before[:0], h.device.mem...)
	record := [8]byte(h.record)
	end := h.end(h.next)
	var kept [][]byte
	for i, b := range h.entries(h.next, end) {
		b = b[len(b)-64:]
		if c := parseCompletion(b); endsRequest(c.opcode) && c.qpn == qpn {
			h.returned(b)
			h.late++
		} else {
			kept = append(kept, h.entries(h.next+uint32(i), h.next+uint32(i)+1)...)
		}
	}
	gap := end - h.next - uint32(len(kept))
	if got := h.q.Sweep(qpn); got != int(gap) {
		t.Fatalf("%d of %d entries swept, want %d", got, end-h.next, gap)
	}
	h.gave(t, h.next+gap, record)
	h.stands(t, h.next, kept)
	h.audit(t)
}

// stands checks that some entries, and no others, stand in the ring from index i on.
func (h *hostile) stands(t *testing.T, i uint32, want [][]byte) {
	h.before = append(h.before[:0], h.device.mem...)
	if got := h.entries(i, h.end(i)); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Fatalf("in the ring stand\n% x, want\n% x", got, want)
	}
}

// resize goes on in other memory, with a device that may not tell where the old ring
// ends.
func (h *hostile) resize(t *testing.T, mem []byte, ends bool) {
	if &mem[0] == &h.device.mem[0] {
		return
	}
	if ends {
		h.free()
		h.device.add(&completion{opcode: 5})
	}
	h.before = append(h.before[:0], h.device.mem...)
	record := [8]byte(h.record)
	kept, found := h.entries(h.next, h.end(h.next)), false
	for i, b := range kept {
		if found = b[len(b)-1]>>4 == 5; found {
			kept = kept[:i]
			break
		}
	}
	device := newCompleter(mem, h.record, h.size)
	if len(kept) >= device.n { // the end was not looked for beyond
		kept, found = kept[:device.n], false
	}
	q, err := h.q.Resize(mem, func() error { return nil })
	if q == nil || errors.Is(err, ErrResize) == found {
		t.Fatalf("%v, %v, with the end of the ring %v", q, err, found)
	}
	h.q, h.device, h.skew = q, device, h.skew+1
	h.gave(t, h.next+1, record)
	h.stands(t, h.next, kept)
	h.free()
	h.audit(t)
}

// returnShared gives shared receives back that nobody will poll.
func (h *hostile) returnShared(t *testing.T) {
	h.before = append(h.before[:0], h.device.mem...)
	for i, end := h.given, h.end(h.given); i != end; i++ {
		h.returned(h.at(i))
	}
	h.q.ReturnShared()
	h.audit(t)
}
