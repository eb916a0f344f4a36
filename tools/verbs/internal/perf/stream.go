package perf

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A stream is all that one side posts and takes in a phase of a test of bandwidth. Its
// loop allocates nothing.
type stream struct {
	*wait
	queues []queue
	verb   Verb
	swap   bool // atomics: CompareSwap
	ud     bool
	lossy  bool

	list, depth, every, refills int

	duration time.Duration // send for so long; 0: as many as the queues' limits say
	peaks    *peak         // nil: nobody wants to know
	tell     func(sent int64) error
	count    *atomic.Int64 // nil: nobody looks

	total    int64 // messages to send
	expected int64 // and to receive
	sent     int64 // with completions
	received int64
	told     bool // the other side knows that all was sent
	drain    bool // the other side has sent everything

	stretch
	first, last int64       // ticks, of what is measured
	ahead       int64       // messages that were there at first
	over        atomic.Bool // the duration is
	wcs         [64]uverbs.WC
}

// unknown stands for a number that only time tells.
const unknown = math.MaxInt64

// newStream makes a stream for a phase of n messages a queue, or of a duration.
func (s *Side) newStream(w *wait, l *link, n int64, duration time.Duration) *stream {
	c := &s.cfg
	st := &stream{
		wait: w, queues: s.queues, verb: c.Test.Verb, swap: c.Atomic == CompareSwap, ud: c.Transport == "UD", lossy: c.lossy(),
		list: c.PostList, depth: c.SendDepth, every: c.SignalEvery, refills: c.RecvList, duration: duration, tell: l.tell,
	}
	all := int64(unknown)
	if duration == 0 {
		all = n * int64(len(s.queues))
	} else {
		n = unknown
	}
	if c.sends() {
		st.total = all
	} else {
		n, st.told = 0, true
	}
	if c.receives() {
		st.expected = all
	}
	for i := range s.queues {
		q := &s.queues[i]
		q.limit, q.posted, q.done, q.quiet = n, 0, 0, c.SignalEvery
	}
	return st
}

// run sends and receives to the end.
func (s *stream) run() error {
	s.start()
	defer s.end()
	if s.total == unknown {
		defer time.AfterFunc(s.duration, func() { s.over.Store(true) }).Stop()
	}
	if s.peaks != nil {
		s.peaks.add(0, 0, 0)
	}
	s.rested = s.at
	for {
		if err := s.post(); err != nil {
			return err
		}
		if s.sent == s.total && !s.told {
			s.told = true
			s.last = s.now()
			if err := s.tell(s.sent); err != nil {
				return err
			}
		}
		if s.told && s.received >= s.expected {
			if s.expected > 0 {
				s.last = s.now()
			}
			return nil
		}
		n, err := s.some()
		if err != nil || n == 0 {
			return err
		}
		if err := s.take(n); err != nil {
			return err
		}
		s.rest()
	}
}

// some takes completions: none where no more come.
func (s *stream) some() (int, error) {
	for {
		if s.drain && s.lossy && s.told {
			n, err := s.grace(s.wcs[:])
			if n > 0 {
				s.last = s.now()
			}
			return n, err
		}
		n, err := s.next(s.wcs[:])
		if errors.Is(err, errPeerSent) {
			s.drain = true
			if s.expected > 0 {
				s.expected, s.last = s.phase.told.Load(), s.now()
				if s.told && s.received >= s.expected {
					return 0, nil
				}
			}
			continue
		}
		return n, err
	}
}

// post fills the send queues.
func (s *stream) post() error {
	for i := range s.queues {
		if err := s.fill(&s.queues[i], uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

// quietly is how requests are posted that have no completion.
var quietly = []uverbs.SendFlags{uverbs.Unsignaled}

// fill fills a send queue with requests of an id.
func (s *stream) fill(q *queue, id uint64) error {
	for q.posted < q.limit {
		n := min(int64(s.list), q.limit-q.posted)
		if q.posted-q.done+n > int64(s.depth) {
			break
		}
		for range n {
			q.posted++
			flags := quietly
			if q.quiet--; q.quiet <= 0 || q.posted == q.limit {
				q.quiet, flags = s.every, nil
			}
			s.stage(q, id, flags...)
		}
		if err := q.sq.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// take takes n completions, and posts receives in the place of those that ended.
func (s *stream) take(n int) error {
	if s.received == 0 && s.sent == 0 && s.total == 0 {
		// Who only receives begins with the first message.
		s.first, s.ahead = s.now(), int64(n)
	}
	for i := range s.wcs[:n] {
		w := &s.wcs[i]
		if w.Status != uverbs.StatusSuccess {
			return w.Err()
		}
		if w.ID >= uint64(len(s.queues)) {
			continue // no request has such an id
		}
		q := &s.queues[w.ID]
		if w.Side == uverbs.SendSide {
			step := min(int64(s.every), q.limit-q.done)
			q.done += step
			s.sent += step
			continue
		}
		s.received++
		if q.taken++; q.taken >= s.refills {
			if err := q.refill(w.ID, q.taken); err != nil {
				return err
			}
			q.taken = 0
		}
	}
	if s.count != nil {
		s.count.Store(s.sent + s.received)
	}
	if s.peaks != nil {
		var posted int64
		for i := range s.queues {
			posted += s.queues[i].posted
		}
		s.peaks.add(s.now(), posted, s.sent)
	}
	if s.total == unknown && s.over.Load() {
		s.total = 0
		for i := range s.queues {
			q := &s.queues[i]
			// What has no completion is followed by what has.
			every := int64(s.every)
			q.limit = (q.posted + every - 1) / every * every
			s.total += q.limit
		}
	}
	return nil
}

// took is how many nanoseconds the phase took, as far as it came. What was there at first
// has come before it, so the others tell how long all took; or, where there are no others,
// the whole phase.
func (s *stream) took() int64 {
	if s.last == 0 {
		s.last = s.ticks
	}
	ticks := float64(s.last - s.first)
	if others := s.received - s.ahead; s.ahead > 0 && others > 0 {
		ticks *= float64(s.received) / float64(others)
	} else if s.ahead > 0 {
		ticks = float64(s.last)
	}
	return int64(max(ticks*s.nsec(), 1))
}
