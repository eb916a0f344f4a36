package mlx5

import (
	"encoding/binary"
	"slices"

	"github.com/goverbs/goverbs/cq"
)

// Posted reads back the send request that stands at a position of the queue: see
// cq.Requests.Place. ok is false when another one stands there. Of inline data only the
// length is there, in Length. Any goroutine may call it, beside the one that uses the
// queue; what it finds is no more than what stands there.
func (q *SQ) Posted(pos uint16) (r cq.SendRequest, ok bool) {
	at := uint32(pos) << blockShift
	first, second := q.peek(at)
	if uint16(first>>40) != pos || uint32(first>>8)&low24 != q.qpn {
		return r, false
	}
	op, found := postedOp(byte(first>>32), first&maxSegments)
	if !found {
		return r, false
	}
	r.Op = op
	if second>>32&ctrlSignal == 0 {
		r.Flags |= cq.Unsignaled
	}
	end := at + uint32(first&maxSegments)*segmentBytes
	at += controlBytes
	if q.addresses != nil {
		a, b := q.peek(at)
		r.QKey, r.DestQPN = uint32(a>>32), uint32(b>>32)&low24
		at += addressBytes
	}
	switch form := sendOps[op]; form.form {
	case formRemote, formAtomic:
		a, b := q.peek(at)
		r.RemoteAddr, r.RKey = a, uint32(b>>32)
		if at += remoteBytes; form.form == formAtomic {
			at += atomicBytes
		}
	case formUMR:
		r.InvalidateRKey, r.WindowRKey = uint32(second), uint32(second)
		if op == cq.OpBindMW {
			a, b := q.peek(at + umrBytes + mkeyBytes)
			r.InvalidateRKey, r.WindowBytes, r.WindowLKey, r.RemoteAddr = 0, a>>32, uint32(a), b
		}
		at = end
	default:
		if sendOps[op].invalidate != 0 {
			r.InvalidateRKey = uint32(second)
		}
	}
	for ; int32(end-at) > 0; at += pointerBytes {
		a, b := q.peek(at)
		if a>>63 != 0 {
			r.Flags |= cq.Inline
			r.Length = uint32(a>>32) &^ inlineMark
			break
		}
		r.SGEs = append(r.SGEs, cq.SGE{Addr: b, Length: uint32(a >> 32), LKey: uint32(a)})
		r.Length += uint32(a >> 32)
	}
	again, _ := q.peek(uint32(pos) << blockShift) // it may have been written over meanwhile
	return r, again == first
}

// postedOp is what an opcode stands for, in a request of so many segments.
func postedOp(opcode byte, segments uint64) (op cq.Opcode, ok bool) {
	const bind = (controlBytes + umrBytes + mkeyBytes + klmBytes) / segmentBytes
	if opcode == opcodeUMR && segments != bind {
		return cq.OpLocalInvalidate, true
	}
	for o := range sendOps {
		if s := &sendOps[o]; s.form != formNone && s.opcode == opcode && (opcode != opcodeUMR || cq.Opcode(o) == cq.OpBindMW) {
			return cq.Opcode(o), true
		}
	}
	return 0, false
}

// Posted reads back the elements of the receive that was put at a position of the
// queue. Which receive it is does not stand there: ask before and after whether its
// table remembers it. Any goroutine may call it, beside the one that uses the queue.
func (q *RQ) Posted(pos uint16) []cq.SGE {
	return q.elements(uint32(pos)<<q.shift, (uint32(pos)+1)<<q.shift, q.maxSGE)
}

// Posted is as that of an RQ, for the element at a position.
func (q *SRQ) Posted(pos uint16) []cq.SGE {
	return q.elements(uint32(pos)<<q.shift+sharedHeader, (uint32(pos)+1)<<q.shift, q.maxSGE)
}

// elements reads data pointers from pos on, as far as end or the terminator.
func (w *wqes) elements(pos, end uint32, most int) (sges []cq.SGE) {
	for ; pos != end && len(sges) < most; pos += pointerBytes {
		a, b := w.peek(pos)
		if uint32(a) == terminator && a>>32 == 0 {
			break
		}
		sges = append(sges, cq.SGE{Addr: b, Length: uint32(a >> 32), LKey: uint32(a)})
	}
	return sges
}

// Raw copies the request that Posted would read: the bytes that the device reads, data
// of requests that carry it included. It is nil when another one stands there.
func (q *SQ) Raw(pos uint16) []byte {
	at := uint32(pos) << blockShift
	first, _ := q.peek(at)
	if uint16(first>>40) != pos || uint32(first>>8)&low24 != q.qpn {
		return nil
	}
	b := q.bytes(at, uint32(first&maxSegments)*segmentBytes)
	if again, _ := q.peek(at); again != first {
		return nil
	}
	return b
}

// Raw copies the receive at a position, all of its room in the ring.
func (q *RQ) Raw(pos uint16) []byte { return q.bytes(uint32(pos)<<q.shift, 1<<q.shift) }

// Raw copies the element at a position, all of its room in the ring.
func (q *SRQ) Raw(pos uint16) []byte { return q.bytes(uint32(pos)<<q.shift, 1<<q.shift) }

// bytes copies n bytes, a multiple of 16, from a position on.
func (w *wqes) bytes(pos, n uint32) []byte {
	b := make([]byte, 0, n)
	for ; uint32(len(b)) < n; pos += segmentBytes {
		high, low := w.peek(pos)
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, high), low)
	}
	return b
}

// LastRead copies the entry that Poll has read last, all of its bytes. It is for the
// goroutine that polls, between two calls of Poll: the entry is the device's already,
// which comes back to it after one turn of the ring. It is nil before the first.
func (c *consumer) LastRead() []byte {
	if c.next == c.skew {
		return nil
	}
	return slices.Clone(c.ring.raw(c.next - 1))
}
