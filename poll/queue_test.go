package poll

import (
	"fmt"
	"os"
	"sync"

	"github.com/goverbs/goverbs/cq"
)

// fakeQueue is a completion queue with a scripted device. hook runs at every
// point at which a device, or another goroutine, could interfere.
type fakeQueue struct {
	hook func()

	mu       sync.Mutex
	ready    []cq.WC
	armed    bool
	events   int // records that were not taken
	wake     func()
	err      error // what Poll returns when drained
	armErr   error
	takeErr  error
	noEvents error // what Attach says of a queue that has none
	closed   bool
	attached int
	arms     int
	polls    int

	r, w *os.File // the channel, when the queue has a descriptor
}

func (q *fakeQueue) step() {
	if q.hook != nil {
		q.hook()
	}
}

// add is the device: completions, and one event if the queue was armed.
func (q *fakeQueue) add(ids ...uint64) {
	q.mu.Lock()
	for _, id := range ids {
		q.ready = append(q.ready, cq.WC{ID: id})
	}
	fire := q.armed
	if fire {
		q.armed = false
		q.events++
	}
	q.mu.Unlock()
	if fire {
		q.signal()
	}
}

func (q *fakeQueue) signal() {
	if q.w != nil {
		q.w.Write(make([]byte, 8))
		return
	}
	q.poke()
}

func (q *fakeQueue) poke() {
	q.mu.Lock()
	wake := q.wake
	q.mu.Unlock()
	if wake != nil {
		wake()
	}
}

func (q *fakeQueue) fail(err error) {
	q.mu.Lock()
	q.err = err
	q.mu.Unlock()
	q.poke()
}

func (q *fakeQueue) Poll(wcs []cq.WC) (int, error) {
	q.step()
	defer q.step()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.polls++
	n := copy(wcs, q.ready)
	q.ready = q.ready[n:]
	if n == 0 && len(q.ready) == 0 {
		return 0, q.err
	}
	return n, nil
}

func (q *fakeQueue) Arm(bool) error {
	q.step()
	defer q.step()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arms++
	if q.armErr != nil {
		return q.armErr
	}
	q.armed = true
	return nil
}

func (q *fakeQueue) TakeEvent() (bool, error) {
	q.step()
	defer q.step()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.takeErr != nil {
		return false, q.takeErr
	}
	if q.events == 0 {
		return false, nil
	}
	q.events--
	if q.r != nil {
		var b [8]byte
		if n, err := q.r.Read(b[:]); n != 8 || err != nil {
			return false, fmt.Errorf("record of %d bytes: %v", n, err)
		}
	}
	return true, nil
}

func (q *fakeQueue) Attach(wake func()) (int, func(), error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.noEvents != nil {
		return -1, nil, q.noEvents
	}
	q.wake = wake
	q.attached++
	fd := -1
	if q.r != nil {
		fd = int(q.r.Fd())
	}
	return fd, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.wake = nil
		q.attached--
	}, nil
}
