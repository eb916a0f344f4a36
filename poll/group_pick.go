package poll

import (
	"errors"
	"sync"

	"github.com/goverbs/goverbs/cq"
)

// Pick returns the queue of the group on which the next queue pair is to complete, so
// that queue pairs spread over the queues, and those over the pollers: the queue that
// was picked least, and of several one whose poller was. Call back when the queue pair
// is closed; it may be called twice.
//
// It fails when the group has no queue.
func (g *Group) Pick() (q cq.Queue, back func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.members) == 0 {
		return nil, nil, errors.New("poll: pick a queue: the group has none")
	}
	load := make([]int, len(g.pollers)) // by poller
	for _, m := range g.members {
		load[m.p.index] += m.picks
	}
	best := g.members[0]
	for _, m := range g.members[1:] {
		if m.picks < best.picks || m.picks == best.picks && load[m.p.index] < load[best.p.index] {
			best = m
		}
	}
	best.picks++
	return best.q, sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		best.picks--
	}), nil
}
