package uverbs

import (
	"math/bits"
	"sync/atomic"

	"github.com/goverbs/goverbs/cq"
)

// samples are the posted requests of a CQ whose time was noted. A place belongs to the
// poster who set its bit in taken, and from the moment on when the bit in set is set to
// the poller, who clears both.
type samples struct {
	taken, set atomic.Uint32
	places     [8]sampled
}

// sampled is a request whose time was noted.
type sampled struct {
	by   *sampler
	seq  uint32
	at   int64
	life uint32 // of by
	era  uint32 // the epoch of the queue pair
}

// sampler is the ring of a send queue that notes when some of the requests are
// published. It stands before the ring so that a queue which notes nothing does not
// even look whether it should.
type sampler struct {
	cq.SendRing
	m     *cqMeter
	sq    *SendQueue
	seen  uint32 // requests before this one were published
	left  uint32 // how many more go by before the next that is noted
	dice  uint32
	lives atomic.Uint32 // counts what was taken back; what was noted before is void
}

// nopSampler is a sampler of a ring that has a request which does nothing.
type nopSampler struct {
	sampler
	nops interface{ PutNop(wrid uint64) }
}

func (s *nopSampler) PutNop(wrid uint64) { s.nops.PutNop(wrid) }

// inner is the ring that it stands before.
func (s *sampler) inner() cq.SendRing { return s.SendRing }

func (m *cqMeter) sample(sq *SendQueue) {
	if m.every == 0 {
		return
	}
	s := sampler{SendRing: sq.ring, m: m, sq: sq, seen: sq.requests.Tail(), dice: sq.qp.qpn | 1<<31}
	if nops, ok := sq.ring.(interface{ PutNop(wrid uint64) }); ok {
		n := &nopSampler{nops: nops}
		n.SendRing, n.m, n.sq, n.seen, n.dice = s.SendRing, s.m, s.sq, s.seen, s.dice
		sq.ring = n
		return
	}
	sq.ring = &s
}

// Publish notes the time, of one request in so many, before the device sees any.
func (s *sampler) Publish() {
	tail := s.sq.requests.Tail()
	if n := tail - s.seen; n > s.left {
		s.note(tail)
	} else {
		s.left -= n
	}
	s.seen = tail
	s.SendRing.Publish()
}

// note notes the first request from seen+left on of which the program hears.
func (s *sampler) note(tail uint32) {
	r := s.sq.requests
	seq := s.seen + s.left
	for ; seq != tail && !r.Shows(seq); seq++ {
	}
	s.left = 0
	if seq == tail {
		return // all of them are quiet: the next that is not
	}
	// The distances vary, so that a program which posts in a regular way does not have
	// the same one of its requests noted each time.
	s.dice ^= s.dice << 13
	s.dice ^= s.dice >> 17
	s.dice ^= s.dice << 5
	gap := 1 + uint32(uint64(s.dice)*uint64(2*s.m.every-1)>>32)
	if rest := tail - seq; gap > rest {
		s.left = gap - rest
	}
	all := &s.m.samples
	for {
		taken := all.taken.Load()
		i := bits.TrailingZeros32(^taken)
		if i >= len(all.places) {
			return // so many are noted and not ended: this one is not
		}
		if all.taken.CompareAndSwap(taken, taken|1<<i) {
			all.places[i] = sampled{by: s, seq: seq, life: s.lives.Load(), era: s.sq.qp.epoch(), at: s.m.now()}
			all.set.Or(1 << i)
			s.m.q.state.Set(cq.Look)
			return
		}
	}
}

// Rollback takes requests back. If they were published, others will have their numbers.
func (s *sampler) Rollback(n uint32) {
	r := s.sq.requests
	if end := r.Tail() + r.Staged() - n; int32(s.seen-end) > 0 {
		s.seen = end
		s.lives.Add(1)
	}
	s.SendRing.Rollback(n)
}

// collect records how long those of the noted requests took that have ended, in a poll
// that found a failure or not. Poller's side.
func (m *cqMeter) collect(failed bool) {
	all, now := &m.samples, int64(0)
	for set := all.set.Load(); set != 0; set &= set - 1 {
		i := bits.TrailingZeros32(set)
		p := &all.places[i]
		qp := p.by.sq.qp
		switch void := qp.closing.Load() || qp.epoch() != p.era || p.by.lives.Load() != p.life; {
		case void:
		case !p.by.sq.requests.Passed(p.seq):
			continue
		case failed: // this one, maybe: it took as long as its retries
		default:
			if now == 0 {
				now = m.now()
			}
			m.postToComplete.Record(uint64(max(now-p.at, 0)))
		}
		p.by = nil
		all.set.And(^uint32(1 << i))
		all.taken.And(^uint32(1 << i))
	}
}
