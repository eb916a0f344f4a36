package perf

import "github.com/goverbs/goverbs/uverbs"

// stage stages one request. Flags of none are no flags: 0 takes the library longer.
func (s *stream) stage(q *queue, id uint64, flags ...uverbs.SendFlags) {
	switch s.verb {
	case Send:
		switch {
		case s.ud && q.data != nil:
			q.sq.SendToInline(id, q.dest, q.data, flags...)
		case s.ud:
			q.sq.SendTo(id, q.dest, q.from, flags...)
		case q.data != nil:
			q.sq.SendInline(id, q.data, flags...)
		default:
			q.sq.Send(id, q.from, flags...)
		}
	case Write:
		if q.data != nil {
			q.sq.WriteInline(id, q.to, q.data, flags...)
		} else {
			q.sq.Write(id, q.to, q.from, flags...)
		}
	case Read:
		q.sq.Read(id, q.from, q.to, flags...)
	case Atomic:
		if s.swap {
			q.sq.CompareSwap(id, q.from, q.to, 0, 1, flags...)
		} else {
			q.sq.FetchAdd(id, q.from, q.to, 1, flags...)
		}
	}
}
