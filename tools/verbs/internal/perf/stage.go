package perf

import "github.com/goverbs/goverbs/uverbs"

// stage stages one request that has a completion.
func (s *stream) stage(q *queue, id uint64) {
	switch s.verb {
	case Send:
		switch {
		case s.ud && q.data != nil:
			q.sq.SendToInline(id, q.dest, q.data)
		case s.ud:
			q.sq.SendTo(id, q.dest, q.from)
		case q.data != nil:
			q.sq.SendInline(id, q.data)
		default:
			q.sq.Send(id, q.from)
		}
	case Write:
		if q.data != nil {
			q.sq.WriteInline(id, q.to, q.data)
		} else {
			q.sq.Write(id, q.to, q.from)
		}
	case Read:
		q.sq.Read(id, q.from, q.to)
	case Atomic:
		if s.swap {
			q.sq.CompareSwap(id, q.from, q.to, 0, 1)
		} else {
			q.sq.FetchAdd(id, q.from, q.to, 1)
		}
	}
}

// stageQuiet stages one that has none. It is stage with a flag: a flag that is no constant
// takes the library longer.
func (s *stream) stageQuiet(q *queue, id uint64) {
	switch s.verb {
	case Send:
		switch {
		case s.ud && q.data != nil:
			q.sq.SendToInline(id, q.dest, q.data, uverbs.Unsignaled)
		case s.ud:
			q.sq.SendTo(id, q.dest, q.from, uverbs.Unsignaled)
		case q.data != nil:
			q.sq.SendInline(id, q.data, uverbs.Unsignaled)
		default:
			q.sq.Send(id, q.from, uverbs.Unsignaled)
		}
	case Write:
		if q.data != nil {
			q.sq.WriteInline(id, q.to, q.data, uverbs.Unsignaled)
		} else {
			q.sq.Write(id, q.to, q.from, uverbs.Unsignaled)
		}
	case Read:
		q.sq.Read(id, q.from, q.to, uverbs.Unsignaled)
	case Atomic:
		if s.swap {
			q.sq.CompareSwap(id, q.from, q.to, 0, 1, uverbs.Unsignaled)
		} else {
			q.sq.FetchAdd(id, q.from, q.to, 1, uverbs.Unsignaled)
		}
	}
}
