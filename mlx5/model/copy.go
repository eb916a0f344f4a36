package model

// span is a range of memory, or of bytes that are at hand.
type span struct {
	mem  Memory
	addr uint64
	n    uint64
	b    []byte // if not nil
}

// side says at which end a copy failed.
type side uint8

const (
	copied side = iota
	readFailed
	writeFailed
)

// copy moves n bytes from m.src to m.dst, which both hold as many. It may have moved
// a part of them when it fails, as the device may.
func (m *Model) copy(n uint64) side {
	src, dst := m.src, m.dst
	var si, di int
	var so, do uint64
	for n > 0 {
		for so == src[si].n {
			si, so = si+1, 0
		}
		for do == dst[di].n {
			di, do = di+1, 0
		}
		k := min(n, src[si].n-so, dst[di].n-do, uint64(len(m.chunk)))
		b := m.chunk[:k]
		if s := &src[si]; s.b != nil {
			b = s.b[so:][:k]
		} else if s.mem.Read(s.addr+so, b) != nil {
			return readFailed
		}
		if d := &dst[di]; d.b != nil {
			copy(d.b[do:], b)
		} else if d.mem.Write(d.addr+do, b) != nil {
			return writeFailed
		}
		so, do, n = so+k, do+k, n-k
	}
	return copied
}

// spans finds the memory of data pointers and appends it to list, n bytes at most.
// The reason says why a key does not give the right.
func (q *qp) spans(list []span, segments []segment, n uint64, access uint32) ([]span, uint8) {
	for _, s := range segments {
		k := min(s.bytes(), n)
		if k == 0 {
			break
		}
		key, at, reason := q.localKey(s.key, s.addr, k, access)
		if reason != keyGood {
			return list, reason
		}
		list = append(list, span{mem: key.f.mem, addr: at, n: k})
		n -= k
	}
	return list, keyGood
}

// gather makes m.src of what a request sends.
func (q *qp) gather(w *wqe) (reason uint8) {
	m := q.d.m
	if w.hasInline {
		m.src = append(m.src[:0], span{b: w.inline, n: uint64(len(w.inline))})
		return keyGood
	}
	m.src, reason = q.spans(m.src[:0], w.local, w.length, 0)
	return reason
}
