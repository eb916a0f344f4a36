package mlx5

import (
	"bytes"

	"github.com/goverbs/goverbs/cq"
)

// What honest users keep of their requests, and from that what a Poll has to return
// whatever stands in the ring. It is written from what a CQ promises, over the bytes
// of an entry as the device's side reads them: a request ends when an entry names its
// queue pair and its position, and never again.

// owed is a request whose end is owed.
type owed struct {
	posted
	pos              uint16
	committed, ended bool
}

// ledger is one queue of requests, from the oldest on that has not ended.
type ledger struct {
	requests []owed
	depth    int
}

// find is the outstanding request at a position, or nil.
func (l *ledger) find(pos uint16) *owed {
	for i := range l.requests {
		if r := &l.requests[i]; r.committed && !r.ended && r.pos == pos {
			return r
		}
	}
	return nil
}

// end ends a request and, of a send queue, the quiet ones before it.
func (l *ledger) end(r *owed, side cq.Side) {
	r.ended = true
	for i := range l.requests {
		if &l.requests[i] == r || side == cq.RecvSide {
			break
		}
		l.requests[i].ended = l.requests[i].ended || l.requests[i].quiet
	}
	for len(l.requests) > 0 && l.requests[0].ended {
		l.requests = l.requests[1:]
	}
}

func (l *ledger) commit() {
	for i := range l.requests {
		l.requests[i].committed = true
	}
}

// room is how many more requests fit: those that end out of order hold their places
// in a queue of their own, and not in a shared one.
func (l *ledger) room(shared bool) int {
	n := l.depth - len(l.requests)
	for _, r := range l.requests {
		if shared && r.ended {
			n++
		}
	}
	return n
}

// user is a queue pair with honest users.
type user struct {
	*party
	queues    [2]ledger // by side
	elsewhere [2]bool   // its completions belong to another CQ
	shared    bool      // its receives are from the shared queue
	closed    bool
	member    *cq.Member
}

// call is what a Poll tells by other ways than completions.
type call struct {
	kind string
	qpn  uint32
	side cq.Side
	pos  uint16
	key  uint32
	n    int
	data [64]byte
}

// account is what a Poll has to come to.
type account struct {
	wcs         []cq.WC
	next        uint32
	stray, late uint64
	calls       []call
}

// owned says whether entry i of the snapshot is software's.
func (h *hostile) owned(i uint32) bool {
	b := h.at(i)
	return b[63]&1 == h.device.owner(i) && b[63]>>4 != 0xf
}

// at is the CQE at index i of the snapshot.
func (h *hostile) at(i uint32) []byte {
	off := int(i) & (h.device.n - 1) * h.device.size
	return h.before[off+h.device.size-64 : off+h.device.size]
}

// end is the first index from i on whose entry is not software's, or a lap later.
func (h *hostile) end(i uint32) uint32 {
	lap := i + uint32(h.device.n)
	for i != lap && h.owned(i) {
		i++
	}
	return i
}

// whose is the queue pair that a completion names, or nil.
func (h *hostile) whose(c *completion) *user {
	for _, u := range h.users {
		if u.ep.QPN == c.qpn && (h.version == 0 || u.index == c.uidx) {
			return u
		}
	}
	return nil
}

// expect works out what a Poll with a batch of that size comes to, and enters it.
func (h *hostile) expect(batch int) *account {
	o := &h.want
	o.wcs, o.calls, o.stray, o.late = o.wcs[:0], o.calls[:0], 0, 0
	lap := h.next + uint32(h.device.n)
	for o.next = h.next; len(o.wcs) < batch && o.next != lap && h.owned(o.next); o.next++ {
		b := h.at(o.next)
		c := parseCompletion(b)
		if c.stamp = 0; h.stamps {
			c.stamp = big.Uint64(b[48:])
		}
		if c.format == 2 && h.size == 128 {
			off := int(o.next) & (h.device.n - 1) * 128
			c.data = h.before[off : off+64]
		}
		if w, show := h.expectOne(&c, o); show {
			o.wcs = append(o.wcs, w)
		}
	}
	return o
}

func (h *hostile) expectOne(c *completion, o *account) (w cq.WC, show bool) {
	side, failed := cq.RecvSide, false
	switch c.opcode {
	case 0:
		side = cq.SendSide
	case 1, 2, 3, 4:
	case 13:
		side, failed = cq.SendSide, true
	case 14:
		failed = true
	case 12:
		if c.format == 3 || !h.signed {
			o.stray++
		} else {
			o.calls = append(o.calls, call{kind: "signature", qpn: c.qpn})
		}
		return w, false
	default:
		o.stray++
		return w, false
	}
	u := h.whose(c)
	if u == nil || c.format == 3 {
		o.stray++
		return w, false
	}
	shared := side == cq.RecvSide && u.shared
	l := &u.queues[side]
	switch {
	case shared:
		l = &h.sharedOwed
	case u.closed:
		o.late++
		return w, false
	case u.elsewhere[side]:
		o.stray++
		return w, false
	}
	r := l.find(c.counter)
	if r == nil {
		o.stray++
		return w, false
	}
	w = cq.WC{ID: r.id, QPN: c.qpn, Side: side}
	switch {
	case failed:
		w.Status, w.VendorErr = Syndrome(c.syndrome).Status(), uint32(c.vendor)
		if shared && c.syndrome == 0x22 && w.VendorErr == uint32(VendorODPFault) {
			o.calls = append(o.calls, call{kind: "repost", pos: c.counter})
			return w, false
		}
	case c.format != 0 && !(shared && u.closed):
		w.Status = h.expectData(c, side, o)
	}
	quiet := r.quiet
	op, room := r.op, r.bytes
	l.end(r, side)
	if u.closed {
		o.late++
		return w, false
	}
	if w.Status != cq.StatusSuccess {
		return w, true
	}
	h.succeeded(&w, c, u, op, room, o)
	return w, !quiet
}

// expectData is what becomes of data in the entry.
func (h *hostile) expectData(c *completion, side cq.Side, o *account) cq.Status {
	n := c.bytes
	if side == cq.SendSide && (c.sendOpcode == 0x11 || c.sendOpcode == 0x12 || c.sendOpcode == 0x14 || c.sendOpcode == 0x15) {
		n = 8
	}
	switch {
	case !h.scatters || c.data == nil:
		return cq.StatusGeneral
	case n > uint32(len(c.data)):
		return cq.StatusLocalLength
	}
	x := call{kind: "data", qpn: c.qpn, side: side, pos: c.counter, n: int(n)}
	copy(x.data[:], c.data[:n])
	o.calls = append(o.calls, x)
	return cq.Status(n & 1)
}

// succeeded fills in what the completion of a success says.
func (h *hostile) succeeded(w *cq.WC, c *completion, u *user, op cq.Opcode, room uint32, o *account) {
	w.Opcode, w.Bytes, w.Timestamp = op, room, c.stamp
	if w.Side == cq.SendSide {
		return
	}
	w.Bytes = min(room, c.bytes)
	switch c.opcode {
	case 1:
		w.Opcode, w.Bytes = cq.OpRecvWriteImm, c.bytes
		w.SetImm(c.imm)
	case 3:
		w.SetImm(c.imm)
	case 4:
		w.SetInvalidatedRKey(c.imm)
		o.calls = append(o.calls, call{kind: "invalidated", qpn: c.qpn, key: c.imm})
	}
	if !u.ep.Datagram {
		return
	}
	w.SrcQPN = c.source & 0xffffff
	if c.source>>28&3 != 0 {
		w.Flags |= cq.FlagGRH
	}
	switch {
	case !h.ethernet:
		w.SLID, w.SL = c.slid, byte(c.source>>24&15)
	case c.headers&1 != 0:
		w.SL = byte(c.vlan >> 13)
	}
}

// endsRequest says whether an entry with that opcode is the end of a request, and
// endsReceive of a receive.
func endsRequest(opcode byte) bool { return opcode == 0 || opcode == 13 || endsReceive(opcode) }
func endsReceive(opcode byte) bool { return opcode >= 1 && opcode <= 4 || opcode == 14 }

// returned ends the receive of the shared queue, if any, that an entry is the
// completion of and that nobody hears of.
func (h *hostile) returned(b []byte) {
	c := parseCompletion(b)
	if u := h.whose(&c); endsReceive(c.opcode) && u != nil && u.shared {
		if r := h.sharedOwed.find(c.counter); r != nil {
			h.sharedOwed.end(r, cq.RecvSide)
		}
	}
}

// entries are copies of the entries of a ring from index i up to end, without their
// owner bits.
func (h *hostile) entries(i, end uint32) (all [][]byte) {
	for ; i != end; i++ {
		b := bytes.Clone(h.device.entry(i))
		b[len(b)-1] &^= 1
		all = append(all, b)
	}
	return all
}
