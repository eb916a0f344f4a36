package sim

import (
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// events is an event queue of the model as a file. Who waits does so on channels
// alone, which is what lets time pass in a synctest bubble.
type events struct {
	queue *model.EventQueue
	// turn is full while somebody parks: of those who wait at the queue only one
	// learns that there is something to read.
	turn chan struct{}
	over chan struct{} // closed by Close

	mu       sync.Mutex
	closed   bool
	deadline time.Time
	moved    chan struct{} // closed when the deadline changes
}

func newEvents(q *model.EventQueue) *events {
	return &events{queue: q, turn: make(chan struct{}, 1), over: make(chan struct{}), moved: make(chan struct{})}
}

// Read implements [kernel.EventFile].
func (e *events) Read(p []byte) (int, error) {
	n, err := e.queue.Read(p)
	return n, systemError(err)
}

// ReadWait implements [kernel.EventFile].
func (e *events) ReadWait(p []byte) (int, error) {
	mine := false
	defer func() {
		if mine {
			<-e.turn
		}
	}()
	for {
		expired, moved, err := e.limit()
		if err != nil {
			return 0, err
		}
		if mine {
			n, err := e.Read(p)
			if err != syscall.EAGAIN {
				expired.stop()
				return n, err
			}
		}
		ready, turn := e.queue.Ready(), e.turn
		if mine {
			turn = nil
		} else {
			ready = nil
		}
		select {
		case turn <- struct{}{}:
			mine = true
		case <-ready:
		case <-moved:
		case <-expired.c:
		case <-e.over:
		}
		expired.stop()
	}
}

// limit is how long a wait may take as of now: until the deadline, and no longer than
// it stays where it is. Like the runtime's poller it looks at the deadline before
// anything is read.
func (e *events) limit() (expired alarm, moved <-chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return alarm{}, nil, os.ErrClosed
	}
	if !e.deadline.IsZero() {
		left := time.Until(e.deadline)
		if left <= 0 {
			return alarm{}, nil, os.ErrDeadlineExceeded
		}
		t := time.NewTimer(left)
		expired = alarm{t, t.C}
	}
	return expired, e.moved, nil
}

// alarm is a timer, or none.
type alarm struct {
	timer *time.Timer
	c     <-chan time.Time
}

func (a alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// SetReadDeadline implements [kernel.EventFile].
func (e *events) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return os.ErrClosed
	}
	e.deadline = t
	close(e.moved)
	e.moved = make(chan struct{})
	return nil
}

// FD implements [kernel.EventFile]: the number by which requests name the queue.
func (e *events) FD() int { return int(e.queue.FD()) }

// PollFD implements [kernel.EventFile]: the system knows nothing of the queue.
func (e *events) PollFD() int { return -1 }

// Notify implements [kernel.EventFile].
func (e *events) Notify(f func()) { e.queue.Notify(f) }

// Close implements [kernel.EventFile].
func (e *events) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return os.ErrClosed
	}
	e.closed = true
	close(e.over)
	return systemError(e.queue.Close())
}

var _ kernel.EventFile = (*events)(nil)
