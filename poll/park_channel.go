package poll

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// newParker chooses how to sleep: on the queues' descriptors, or, where they
// have none and wake by themselves, on a Go channel.
func newParker(fds []int, thread bool) (parker, error) {
	without := 0
	for _, fd := range fds {
		if fd < 0 {
			without++
		}
	}
	switch {
	case without == 0:
		// Queues may report on one channel together.
		slices.Sort(fds)
		return newFDParker(slices.Compact(fds), thread)
	case without < len(fds):
		return nil, fmt.Errorf("poll: %d of %d completion queues have no descriptor: wait for those and the others separately", without, len(fds))
	case thread:
		return nil, errors.New("poll: Event.Thread needs completion queues with a descriptor")
	}
	return &channelParker{wakes: make(chan struct{}, 1)}, nil
}

// channelParker sleeps on a Go channel. Simulated devices have no descriptors.
type channelParker struct{ wakes chan struct{} }

func (p *channelParker) park(time.Duration) error {
	<-p.wakes
	return nil
}

func (p *channelParker) wake() {
	select {
	case p.wakes <- struct{}{}:
	default: // one wake that was not seen yet is enough
	}
}

func (p *channelParker) close() error { return nil }
