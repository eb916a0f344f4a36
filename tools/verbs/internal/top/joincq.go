package top

import (
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/top/trace"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// A seenCQ is what the tracer saw of a queue, for rates.
type seenCQ struct {
	trace.CQ
	at time.Time
}

// cq joins what netlink and the tracer say of a completion queue.
func (j *joiner) cq(x nldev.CQ) *CQ {
	ctx := users(x.Owner, x.Context)
	q := &CQ{ID: x.ID, Context: ctx, Depth: x.Depth, Users: x.Users, Adaptive: x.AdaptiveModeration, Owner: j.owner(x.Owner, ctx)}
	id := trace.CQID{DeviceIndex: j.from.link.Index, ResID: x.ID}
	s, ok := j.raw.cqs[id]
	if !ok {
		return q
	}
	q.seen = &seenCQ{s, j.from.cqsAt}
	q.Vector, q.Errors = &s.Vector, s.Errors
	handle := uint64(0)
	if s.User != nil {
		handle = s.User.Handle
		q.Pending, q.EventsRead, q.AsyncRead = &s.User.Pending, &s.User.EventsRead, &s.User.ErrorsRead
	}
	if s.Events != nil {
		q.Events = &s.Events.Count
	}
	if p := s.Posts; p != nil {
		q.CQEs, q.Dropped, q.Failed = &p.CQEs, &p.Dropped, make(map[string]uint64)
		for status, n := range p.ByStatus {
			if status != 0 && n != 0 {
				q.Failed[statusName(status)] = n
			}
		}
	}
	if r := s.Ring; r != nil {
		armed := r.Armed.String()
		q.Slots, q.Occupied, q.Armed = &r.Usable, &r.Occupied, &armed
		h := j.collector.high[id]
		if h.handle != handle {
			h = high{handle: handle}
		}
		h.most = max(h.most, r.Occupied)
		j.collector.high[id] = h
		exact := s.Posts != nil
		most := h.most
		if exact {
			most = max(most, s.Posts.HighWater)
		}
		q.HighWater, q.Exact = &most, &exact
	}
	return q
}
