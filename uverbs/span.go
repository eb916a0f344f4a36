package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

// Span is n bytes of the region from offset off on, to send from or receive
// into. A span that does not lie inside the region, or whose region was closed,
// makes the Flush of the request that uses it fail. It stays good when the
// region is re-registered.
func (mr *MR) Span(off, n int) Span { return Span{mr, off, n} }

// All is the whole region.
func (mr *MR) All() Span { return Span{mr, 0, mr.Len()} }

// Span is a piece of a memory region.
type Span struct {
	mr  *MR
	off int
	n   int
}

// sge checks the span and turns it into what a ring takes. ok is false when it
// lies outside its region.
func (s Span) sge() (e cq.SGE, ok bool) {
	if s.mr == nil {
		return cq.SGE{}, false
	}
	r := s.mr.now.Load()
	if !r.holds(s) {
		return cq.SGE{}, false
	}
	return cq.SGE{Addr: r.addr + uint64(s.off), Length: uint32(s.n), LKey: r.lkey}, true
}

// holds says whether requests may use the span.
func (r *region) holds(s Span) bool {
	return s.off >= 0 && s.n >= 0 && s.off <= r.usable-s.n && uint64(s.n) <= maxMessage
}

// writable says whether the device may write to the span's region.
func (s Span) writable() bool { return s.mr.Access()&LocalWrite != 0 }

// err says what is wrong with a span that sge refused.
func (s Span) err() error {
	if s.mr == nil {
		return fmt.Errorf("span without a memory region: %w", ErrBounds)
	}
	r := s.mr.now.Load()
	switch {
	case r.why != nil:
		return r.why
	case r.holds(s):
		return errChanging // when sge looked; it is over
	case uint64(max(s.n, 0)) > maxMessage:
		return fmt.Errorf("span of %d bytes: at most %d: %w", s.n, maxMessage, ErrBounds)
	}
	return fmt.Errorf("span of %d bytes at offset %d does not lie in the memory region of %d bytes: %w", s.n, s.off, r.length, ErrBounds)
}

// maxMessage is the longest message of any transport: 2^31 bytes.
const maxMessage uint64 = 1 << 31

// Remote is a memory region of the peer, as the peer described it: an address
// in the peer's process, a length in bytes and the key. Send it over a
// connection of your own, or let Handshake do that.
type Remote struct {
	Addr   uint64
	Length uint64
	RKey   uint32
}

// Remote describes the region to a peer.
func (mr *MR) Remote() Remote {
	r := mr.now.Load()
	return Remote{Addr: r.addr, Length: uint64(r.length), RKey: r.rkey}
}

// At is the place off bytes into the peer's region. A write or read that begins
// or ends outside makes its Flush fail.
func (r Remote) At(off uint64) RemoteAddr { return RemoteAddr{r, off} }

// RemoteAddr is a place in the peer's memory.
type RemoteAddr struct {
	region Remote
	off    uint64
}

// address checks that n bytes at the place lie in the region.
func (a RemoteAddr) address(n uint64) (uint64, bool) {
	if a.off > a.region.Length || n > a.region.Length-a.off || a.region.Addr > ^uint64(0)-a.off {
		return 0, false
	}
	return a.region.Addr + a.off, true
}
