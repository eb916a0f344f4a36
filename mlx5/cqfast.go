package mlx5

import "github.com/goverbs/goverbs/cq"

// The hot path. Most completions are the success of the oldest request of their
// queue, and one comparison tells. All else is for decoder.end.
//
// In the loops, inlined calls share a line with other work: else the compiler puts
// a NOP in their place. They call nothing, so that all that they work with stays in
// registers.

// What of the last eight bytes of an entry, as one big-endian number, must be as
// the request says: the QPN, the position of the request, the opcode and the format.
// What is left is the opcode of a request, the signature, the solicited bit and the
// owner.
const (
	kindMask = 0xf0 | formatMask
	sameMask = low24<<32 | 0xffff<<16 | kindMask
)

// bodies decodes count entries from index next on, all of which are software's and
// follow one another in memory, behind the first n completions in wcs. There is
// room for all. It returns how many completions there are then.
func (q *CQ) bodies(next, count uint32, wcs []cq.WC, n int) int {
	if q.decode.endpoints == nil {
		return q.slowly(next, count, wcs, n)
	}
	view := q.decode.endpoints.View()
	for count > 0 {
		var left uint32
		e, w := q.ring.entry(next), &wcs[n : n+int(count)][0]
		if q.ring.stride == 64 {
			left = run[[64]byte](q, e, w, count, view)
		} else {
			left = run[[128]byte](q, e, w, count, view)
		}
		done := count - left
		n += int(done)
		if done == 0 {
			n, done = q.slowly(next, 1, wcs, n), 1
		}
		next += done
		count -= done
	}
	return n
}

// run decodes entries from e on, left of them, which are software's and follow one
// another in memory, to w and after it. There is one at least. It stops where it
// wants to, maybe at once, and returns how many are left then.
func run[E entrySize](q *CQ, e *cqe, w *cq.WC, left uint32, view cq.EndpointView) uint32 {
	var now uint32
	switch e.kind() {
	case cqeRequester << 4:
		return sends[E](q, e, w, left, view)
	case cqeSend << 4:
		if now = receives[E, [cqeSend]byte, messages](q, e, w, left, view); now == left {
			now = receives[E, [cqeSend]byte, datagrams](q, e, w, left, view)
		}
		return now
	case cqeSendImm << 4:
		if now = receives[E, [cqeSendImm]byte, messages](q, e, w, left, view); now == left {
			now = receives[E, [cqeSendImm]byte, datagrams](q, e, w, left, view)
		}
		return now
	case cqeWriteImm << 4:
		return receives[E, [cqeWriteImm]byte, messages](q, e, w, left, view)
	}
	return left
}

// slowly is bodies for all kinds of entries.
func (q *CQ) slowly(next, count uint32, wcs []cq.WC, n int) int {
	for end := next + count; next != end; next++ {
		if q.decode.end(&q.ring, next, next-q.skew, &wcs[n]) {
			n++
		}
	}
	return n
}

// sends is run for successes of the oldest requests of send queues. It stops at the
// first entry that is none.
func sends[E entrySize](q *CQ, e *cqe, w *cq.WC, left uint32, view cq.EndpointView) uint32 {
	var r *cq.Requests
	var s *cq.Slot
	var index, head uint32
	var key uint64
	for {
		if index = fromBE32(e.index()); view.Past(index) {
			return left
		}
		if r = view.Send(index); !r.Belongs(q.state) {
			return left
		}
		if head = r.Head(); !r.Dry(head) {
			if s, key = r.Front(head), r.Key(); (e.tail()^s.Expected()^key)&sameMask != 0 {
				return left
			}
			s.Sent(w, key, e.timestamp.Uint64()&q.decode.stampMask)
			if r.Pop(head); left == 1 {
				return 0
			}
			e, w, left = nextEntry[E](e), nextWC(w), left-1
		} else if !r.Fill(head) {
			return left
		}
	}
}

// receiveKind is the opcode of a receive, as a size, to make it a constant in
// functions that have it as a type parameter.
type receiveKind interface {
	[cqeWriteImm]byte | [cqeSend]byte | [cqeSendImm]byte
}

// origin is, likewise, the lowest bits of the Key of a queue: they say whether
// completions have to tell where a message came from.
type origin interface{ messages | datagrams }

type (
	messages  [0]byte
	datagrams [cq.KeyDatagram]byte
)

// receives is sends for receive queues, and entries of one kind and origin.
func receives[E entrySize, K receiveKind, O origin](q *CQ, e *cqe, w *cq.WC, left uint32, view cq.EndpointView) uint32 {
	kind, from := uint64(len(*new(K))), uint64(len(*new(O)))
	var r *cq.Requests
	var s *cq.Slot
	var index, head uint32
	var key, message uint64
	for {
		if index = fromBE32(e.index()); view.Past(index) {
			return left
		}
		if r = view.Recv(index); !r.Belongs(q.state) {
			return left
		}
		if head = r.Head(); !r.Dry(head) {
			if s, key = r.Front(head), r.Key(); (e.tail()^s.Expected()^key^kind<<4^from)&sameMask != 0 {
				return left
			}
			key ^= from
			message = uint64(e.byteCount.Uint32())
			if kind != cqeWriteImm {
				message = r.Kind() | min(message, uint64(s.Bytes()))
			} else {
				message |= r.Kind() ^ uint64(cq.OpRecv^cq.OpRecvWriteImm)<<40
			}
			if kind != cqeSend {
				message |= uint64(cq.FlagImm) << 32
				key |= uint64(e.imm.Uint32())
			}
			s.Received(w, key, e.timestamp.Uint64()&q.decode.stampMask, message)
			if from != 0 {
				flags := e.flagsRQPN.Uint32()
				w.SrcQPN = flags & low24
				if flags>>grhShift&grhMask != 0 {
					w.Flags |= cq.FlagGRH
				}
				if !q.decode.ethernet {
					w.SLID, w.SL = e.slid.Uint16(), uint8(flags>>slShift&slMask)
				} else if e.headers&1 != 0 {
					w.SL = uint8(e.vlan.Uint16() >> 13)
				}
			}
			if r.Pop(head); left == 1 {
				return 0
			}
			e, w, left = nextEntry[E](e), nextWC(w), left-1
		} else if !r.Fill(head) {
			return left
		}
	}
}
