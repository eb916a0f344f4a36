package perf

// A peak remembers how far a stream was at some moments, to tell how fast its best stretch
// was: as perftest's, from the post of one message to the completion of one behind it.
type peak struct {
	marks []mark // within its capacity
	every int    // looks until one is remembered
	skip  int
}

type mark struct {
	at           int64 // ticks
	posted, done int64
}

// maxMarks bounds the memory, and the work of best, which looks at all pairs.
const maxMarks = 2048

func newPeak() *peak { return &peak{marks: touched[mark](maxMarks), every: 1} }

// add remembers a moment. Where there are too many, every other one is forgotten.
func (p *peak) add(at int64, posted, done int64) {
	if p.skip++; p.skip < p.every {
		return
	}
	p.skip = 0
	if len(p.marks) == cap(p.marks) {
		for i := range len(p.marks) / 2 {
			p.marks[i] = p.marks[2*i+1]
		}
		p.marks = p.marks[:len(p.marks)/2]
		p.every *= 2
	}
	p.marks = append(p.marks, mark{at, posted, done})
}

// best is the most messages in a tick: posted after one moment, and done at a later one.
func (p *peak) best() (rate float64) {
	for i, from := range p.marks {
		for _, to := range p.marks[i+1:] {
			if n, d := to.done-from.posted, to.at-from.at; n > 0 && d > 0 {
				rate = max(rate, float64(n)/float64(d))
			}
		}
	}
	return rate
}
