package model

import "encoding/binary"

// Compressed completions of the basic layout: a title, which is a CQE that stands for
// the first of a session and says how many there are, and arrays of eight
// minis in the entries behind: the first array in the entry after the title, the next
// ones at the 8th, 16th ... entry of the session. The session takes as many indices as it
// has completions.
const (
	miniBytes     = 8
	minisPerEntry = cqeBytes / miniBytes
)

// compressible takes a completion into the session if it can be one of it. Only
// receives of one queue pair, one after the other and alike but for their length, are
// compressed.
func (q *cq) compressible(c *completion) bool {
	if c.opcode != opSend || c.srqn != 0 || c.inline != nil || c.solicited || q.size != cqeBytes {
		return false
	}
	if n := len(q.session); n > 0 {
		l := &q.session[n-1]
		if n == maxMinis || uint32(n) == q.entries/2 || l.qpn != c.qpn || l.source != c.source || l.slid != c.slid || l.counter+1 != c.counter {
			q.endSession()
		}
	}
	if len(q.session) == 0 {
		q.d.m.sessions = append(q.d.m.sessions, q)
	}
	q.session = append(q.session, *c)
	return true
}

// endSession writes what was held together.
func (q *cq) endSession() {
	n := uint32(len(q.session))
	if n == 0 || q.dead {
		return
	}
	s := q.session
	q.session = q.session[:0]
	if n == 1 {
		q.emit(&s[0])
		return
	}
	if !q.room(n) {
		return
	}
	// Arrays first: the owner byte of the title hands over all of it.
	for first := uint32(0); first < n; first += minisPerEntry {
		b := q.d.m.entry[:cqeBytes]
		clear(b)
		for i := range min(minisPerEntry, n-first) {
			// Bytes 0 to 3 are the hash or checksum, which RC, UC and UD have not.
			binary.BigEndian.PutUint32(b[i*miniBytes+4:], s[first+i].bytes)
		}
		q.publish(q.producer+max(1, first), b)
	}
	title := s[0]
	title.bytes = n
	b := q.d.m.entry[:cqeBytes]
	title.encode(b, q.f.ctx.version)
	b[63] |= formatCompressed | q.owner(q.producer)
	q.publish(q.producer, b)
	if q.d.m.observe != nil {
		for i := range s {
			q.tell(&s[i], q.producer+uint32(i), true)
		}
	}
	q.producer += n
	q.produced(n, false)
}
