package decode

import "slices"

// queue holds findings back for a few lines, because the lines that follow may
// tell more of the same completion, or take a finding back.
type queue struct {
	waiting []*Finding
	emit    func(*Finding)
	qps     history
}

const (
	// A line of text belongs to the dump that follows it closely, or that
	// it follows more closely still.
	beforeDump = 12
	behindDump = 5
	// Two lines of text of different kinds that agree and stand this close
	// speak of one completion.
	beside = 3
	// mostWaiting bounds the queue.
	mostWaiting = 256
)

// dump takes what a dump says. The lines of text before it that agree with it,
// one of each kind, announced it.
func (q *queue) dump(f *Finding) {
	for i := len(q.waiting) - 1; i >= 0; i-- {
		g := q.waiting[i]
		near := beforeDump
		if f.QPN.OK && f.QPN.V != 0 && g.QPN == f.QPN {
			near = reach // it names the queue: others may have printed in between
		}
		if g.dead || g.dump != nil || f.LastLine-g.LastLine > near || !sameKey(f.key, g.key) || !f.agrees(g) || f.told(g) {
			continue
		}
		f.absorb(g)
		g.dead = true
	}
	q.add(f)
}

// text takes what a line says.
func (q *queue) text(f *Finding) {
	for i := len(q.waiting) - 1; i >= 0; i-- {
		g := q.waiting[i]
		near := beside
		if g.dump != nil {
			near = behindDump
		}
		if g.dead || f.Line-g.LastLine > near || !sameKey(f.key, g.key) || !f.agrees(g) || f.told(g) {
			continue
		}
		if !f.decoded() && !g.decoded() {
			continue
		}
		g.absorb(f)
		return
	}
	q.add(f)
}

// told says whether a line of the same kind as g has told of f before: then g
// is about another completion.
func (f *Finding) told(g *Finding) bool {
	for _, a := range f.shapes {
		for _, b := range g.shapes {
			if a == b {
				return true
			}
		}
	}
	return false
}

// add puts a finding where its first line belongs: a dump ends after lines that
// began later.
func (q *queue) add(f *Finding) {
	if len(q.waiting) == mostWaiting {
		q.pop(1)
	}
	i := len(q.waiting)
	for i > 0 && q.waiting[i-1].Line > f.Line {
		i--
	}
	q.waiting = slices.Insert(q.waiting, i, f)
}

// expire lets go of what no line from here on can change.
func (q *queue) expire(line int) {
	n := 0
	for n < len(q.waiting) && (q.waiting[n].dead || line-q.waiting[n].LastLine > reach) {
		n++
	}
	q.pop(n)
}

func (q *queue) end() { q.pop(len(q.waiting)) }

func (q *queue) pop(n int) {
	for _, f := range q.waiting[:n] {
		if !f.dead && f.decoded() {
			q.qps.place(f)
			q.emit(f)
		}
	}
	q.waiting = append(q.waiting[:0], q.waiting[n:]...)
}

// history remembers which QPs have failed, to tell first errors from the flushes
// and the further errors that follow.
type history struct {
	lines map[uint32]int // QPN to line of its first error
	last  int            // line of the last first error
}

// mostQPs bounds the memory of a log without end.
const mostQPs = 4096

func (h *history) place(f *Finding) {
	if h.lines == nil {
		h.lines = make(map[uint32]int)
	}
	line, known := 0, false
	if f.knownQP() {
		line, known = h.lines[f.QPN.V]
	}
	if f.IsFlush() {
		f.Consequence = true
		f.FlushOf, f.SameQP = h.last, known
		if known {
			f.FlushOf = line
		}
		return
	}
	if known {
		f.Consequence, f.SameQP, f.FlushOf = true, true, line
		return
	}
	h.last = f.Line
	if f.knownQP() {
		if len(h.lines) == mostQPs {
			for qpn := range h.lines {
				delete(h.lines, qpn)
				break
			}
		}
		h.lines[f.QPN.V] = f.Line
	}
}
