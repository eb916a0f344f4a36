package mlx5

import (
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5/internal/mmio"
)

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

// Type parameters choose what is the same for all completions of a queue or a run:
// the compiler makes a function for each, in which they are constants, as lengths of
// arrays. stamps are whether completions have a time stamp.
type stamps interface{ plain | stamped }

type (
	plain   [0]byte
	stamped [1]byte
)

// receiveKind is the opcode of a receive, or that of the first entry, whatever it is.
type receiveKind interface {
	anyKind | [cqeWriteImm]byte | [cqeSend]byte | [cqeSendImm]byte
}

type anyKind [0]byte

// origin is the lowest bits of the Key of a queue: they say whether completions have
// to tell where a message came from.
type origin interface{ messages | datagrams }

type (
	messages  [0]byte
	datagrams [cq.KeyDatagram]byte
)

// bodies decodes what is software's of the want entries from index next on, behind
// the first n completions in wcs. The entries follow one another in memory, the first
// is software's, and there is room for all. It returns how many completions there are
// then, and the index after the last entry that it took.
//
// First come the owner words, so that the loads of entries that are not in the cache
// overlap, then the bodies. One pass was measured to save a tenth where the entries are
// in the cache already, and to take twice as long where another core wrote them.
func bodies[E entrySize, T stamps](q *CQ, next, want uint32, wcs []cq.WC, n int) (int, uint32) {
	count := want
	if want > 1 {
		// A device that takes back what it wrote could make it none.
		count = max(want-scan[E](q.ring.entry(next), want, q.lap(next), q.ring.stride), 1)
	}
	mmio.ReadBarrier()
	view := q.decode.endpoints.View()
	for {
		e, w, left := q.ring.entry(next), &wcs[n], count
		switch kind := e.kind(); {
		case kind == cqeRequester<<4:
			if left = sends[E, T](q, e, w, left, view, sameMask); left == count && q.skip(e, view) {
				left = sends[E, T](q, e, w, left, view, sameMask)
			}
		case len(*new(E)) == 0: // of the rarer queues, kinds of receives share a function too
			if kind == cqeSend<<4 || kind == cqeSendImm<<4 || kind == cqeWriteImm<<4 {
				left = receives[E, T, anyKind, messages](q, e, w, left, view, sameMask)
			}
			if left == count && (kind == cqeSend<<4 || kind == cqeSendImm<<4) {
				left = receives[E, T, anyKind, datagrams](q, e, w, left, view, sameMask)
			}
		case kind == cqeSend<<4:
			if left = receives[E, T, [cqeSend]byte, messages](q, e, w, left, view, sameMask); left == count {
				left = receives[E, T, [cqeSend]byte, datagrams](q, e, w, left, view, sameMask)
			}
		case kind == cqeSendImm<<4:
			if left = receives[E, T, [cqeSendImm]byte, messages](q, e, w, left, view, sameMask); left == count {
				left = receives[E, T, [cqeSendImm]byte, datagrams](q, e, w, left, view, sameMask)
			}
		case kind == cqeWriteImm<<4:
			left = receives[E, T, [cqeWriteImm]byte, messages](q, e, w, left, view, sameMask)
		}
		done := count - left
		n += int(done)
		if done == 0 {
			n, done = q.slowly(next, 1, wcs, n), 1
		}
		next += done
		if count -= done; count == 0 {
			return n, next
		}
	}
}

// numbered is bodies for a device that tells queue pairs by QPN.
func (q *CQ) numbered(next, want uint32, wcs []cq.WC, n int) (int, uint32) {
	count := max(q.scan(next, want), 1) // see bodies
	mmio.ReadBarrier()
	return q.slowly(next, count, wcs, n), next + count
}

// skip ends the quiet requests before the one whose success e is, and says whether
// that one is the oldest of its queue now.
//
//go:noinline
func (q *CQ) skip(e *cqe, view cq.EndpointView) bool {
	tail, index := e.tail(), uint64(fromBE32(e.index()))&low24
	if view.Past(index) {
		return false
	}
	r := view.Send(index)
	return r.Belongs(q.state) && (tail^r.Key())&(sameMask&^(0xffff<<16)) == 0 && r.Skip(uint16(tail>>16))
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

// sends decodes entries from e on, left of them, which are software's and follow one
// another in memory, to w and after it, where there is room. There is one at least.
// It stops at the first that is not the success of the oldest request of a send
// queue, and returns how many are left then. Same is sameMask, as an argument so that
// it stays in a register: the compiler would load a constant anew each time.
func sends[E entrySize, T stamps](q *CQ, e *cqe, w *cq.WC, left uint32, view cq.EndpointView, same uint64) uint32 {
	var r *cq.Requests
	var s *cq.Slot
	var head uint32
	var index, key, stamp uint64
	state := q.state
	for {
		if index = uint64(fromBE32(e.index())) & low24; view.Past(index) {
			return left
		}
		if r = view.Send(index); !r.Belongs(state) {
			return left
		}
		if head = r.Head(); r.Dry(head) && !r.Fill(head) {
			return left
		}
		if s, key = r.Front(head), r.Key(); (e.tail()^s.Expected()^key)&same != 0 {
			return left
		}
		if stamp = 0; len(*new(T)) != 0 {
			stamp = e.timestamp.Uint64() & q.decode.stampMask
		}
		s.Sent(w, key, stamp)
		if r.Pop(head); left == 1 {
			return 0
		}
		e, w, left = nextEntry[E](e, q.ring.stride), nextWC(w), left-1
	}
}

// receives is sends for receive queues, and entries of one kind and origin.
func receives[E entrySize, T stamps, K receiveKind, O origin](q *CQ, e *cqe, w *cq.WC, left uint32, view cq.EndpointView, same uint64) uint32 {
	kind, from := uint64(len(*new(K))), uint64(len(*new(O)))
	if kind == 0 {
		// It is read again, so looked at again.
		if kind = uint64(e.kind() >> 4); kind != cqeSend && kind != cqeSendImm && (kind != cqeWriteImm || from != 0) {
			return left
		}
	}
	var r *cq.Requests
	var s *cq.Slot
	var head, n uint32
	var index, key, stamp, message uint64
	state := q.state
	for {
		if index = uint64(fromBE32(e.index())) & low24; view.Past(index) {
			return left
		}
		if r = view.Recv(index); !r.Belongs(state) {
			return left
		}
		if head = r.Head(); r.Dry(head) && !r.Fill(head) {
			return left
		}
		if s, key = r.Front(head), r.Key(); (e.tail()^s.Expected()^key^kind<<4^from)&same != 0 {
			return left
		}
		// The bit of the origin is one of the format's too: of a queue of the other
		// origin, an entry with that bit would be what is expected.
		if key ^= from; uint32(key) != 0 {
			return left
		}
		if n = e.byteCount.Uint32(); kind != cqeWriteImm && n > s.Bytes() {
			return left // longer than it can be
		}
		if message = uint64(n); kind == cqeWriteImm {
			message |= uint64(cq.OpRecv^cq.OpRecvWriteImm) << 40
		}
		if kind != cqeSend {
			message |= uint64(cq.FlagImm) << 32
			key |= uint64(e.imm.Uint32())
		}
		if stamp = 0; len(*new(T)) != 0 {
			stamp = e.timestamp.Uint64() & q.decode.stampMask
		}
		s.Received(w, key, stamp, message^r.Kind())
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
		e, w, left = nextEntry[E](e, q.ring.stride), nextWC(w), left-1
	}
}
