package mlx5

import "github.com/goverbs/goverbs/cq"

// Store puts a part of a message into local memory, at an address that a data
// pointer of a request names by the given lkey, and says whether that is memory
// which the key covers.
type Store func(lkey uint32, addr uint64, part []byte) bool

// scatter stores data along at most n data pointers from pos on. It ends at the
// terminator of a receive.
func (w *wqes) scatter(pos, n uint32, data []byte, store Store) cq.Status {
	for ; n > 0 && len(data) > 0; n-- {
		s := w.segment(pos)
		pos += pointerBytes
		length, lkey := uint32(toBE64(s[0])>>32), uint32(toBE64(s[0]))
		if length == 0 && lkey == terminator {
			break
		}
		part := data[:min(uint64(length), uint64(len(data)))]
		if len(part) > 0 && !store(lkey, toBE64(s[1]), part) {
			return cq.StatusLocalProtection
		}
		data = data[len(part):]
	}
	if len(data) > 0 {
		return cq.StatusLocalLength
	}
	return cq.StatusSuccess
}

// Scatter stores the data of a read, or the former value of an atomic, that the
// device left in the completion of the request at a position: see
// [CQConfig.Scatter]. The request is outstanding; the poller calls it.
func (q *SQ) Scatter(pos uint16, data []byte, store Store) cq.Status {
	begin := uint32(pos) << blockShift
	control := q.segment(begin)
	before := uint32(2)
	switch control.opcode() {
	case opcodeRead:
	case opcodeCompareSwap, opcodeFetchAdd:
		before = 3
	default:
		return cq.StatusGeneral
	}
	if n := control.segments(); n >= before {
		return q.scatter(begin+before<<segmentShift, n-before, data, store)
	}
	return cq.StatusGeneral
}

// Scatter stores a message that the device left in the completion of the receive
// at a position: see [CQConfig.Scatter]. The receive is outstanding; the poller
// calls it.
func (q *RQ) Scatter(pos uint16, data []byte, store Store) cq.Status {
	return q.scatter(uint32(pos)<<q.shift, 1<<q.shift>>segmentShift, data, store)
}

// Scatter stores a message that the device left in the completion of the receive
// in an element: see [CQConfig.Scatter]. The receive is outstanding; the poller
// calls it.
func (q *SRQ) Scatter(pos uint16, data []byte, store Store) cq.Status {
	begin := uint32(pos)<<q.shift + sharedHeader
	return q.scatter(begin, 1<<q.shift>>segmentShift-1, data, store)
}
