package poll

import (
	"sync"

	"github.com/goverbs/goverbs/cq"
)

// bells are what wakes a waiter that sleeps: its queues' descriptors and calls. A
// strategy that sleeps takes them over from the one before, so that no queue is without
// a waiter while one follows another.
type bells struct {
	fds       []int
	detachers []func()

	// Of the poller.
	armed     []bool // by queue: armed, and no event taken since
	solicited bool   // for solicited completions only
	rang      bool   // a park ended, and events were not taken since
	first     bool   // a queue wants them taken before it is polled

	mu   sync.Mutex
	park parker // who sleeps. Nil before somebody can, and after the waiter is closed
}

// hang attaches to the queues.
func hang(queues []cq.Queue) (*bells, error) {
	b := &bells{fds: make([]int, 0, len(queues)), armed: make([]bool, len(queues))}
	for _, q := range queues {
		fd, detach, err := q.Attach(b.wake)
		if err != nil {
			b.detach()
			return nil, err
		}
		b.detachers = append(b.detachers, detach)
		b.fds = append(b.fds, fd)
		f, ok := q.(cq.EventsFirst)
		b.first = b.first || ok && f.EventsFirst()
	}
	return b, nil
}

func (b *bells) wake() {
	b.mu.Lock()
	if b.park != nil {
		b.park.wake()
	}
	b.mu.Unlock()
}

func (b *bells) detach() {
	for _, d := range b.detachers {
		d()
	}
}
