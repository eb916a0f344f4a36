package poll

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func newFDParker(fds []int, thread bool) (parker, error) {
	if thread {
		return newThreadParker(fds)
	}
	return newGoroutineParker(fds)
}

// goroutineParker parks the goroutine on Go's own poller: an epoll set of the
// queues' descriptors is itself a descriptor that the runtime can watch.
type goroutineParker struct {
	epoll *os.File
	raw   syscall.RawConn
	ready func(fd uintptr) bool // made once: a closure a call would be an allocation a call
	event [1]unix.EpollEvent
	err   error
	woken atomic.Bool
	over  atomic.Bool // close was called
}

func newGoroutineParker(fds []int) (*goroutineParker, error) {
	efd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("poll: make an epoll set: %w", err)
	}
	for i, fd := range fds {
		if err := unix.EpollCtl(efd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			unix.Close(efd)
			return nil, fmt.Errorf("poll: watch the channel of completion queue %d: %w", i, err)
		}
	}
	// The runtime takes only non-blocking descriptors onto its poller.
	if err := unix.SetNonblock(efd, true); err != nil {
		unix.Close(efd)
		return nil, fmt.Errorf("poll: make an epoll set: %w", err)
	}
	p := &goroutineParker{epoll: os.NewFile(uintptr(efd), "completion channels")}
	if p.raw, err = p.epoll.SyscallConn(); err == nil {
		err = p.epoll.SetReadDeadline(time.Time{}) // fails unless the runtime polls
	}
	if err != nil {
		p.epoll.Close()
		return nil, fmt.Errorf("poll: put the epoll set on the runtime's poller: %w", err)
	}
	p.ready = func(fd uintptr) bool {
		for {
			n, err := unix.EpollWait(int(fd), p.event[:], 0)
			if err == unix.EINTR {
				continue
			}
			p.err = err
			return n != 0
		}
	}
	return p, nil
}

func (p *goroutineParker) park(time.Duration) error {
	if p.woken.Swap(false) {
		p.epoll.SetReadDeadline(time.Time{})
		return nil
	}
	err := p.raw.Read(p.ready)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		// wake moved the deadline. Its flag stays set and ends the next
		// park too, so that a second wake meanwhile is not lost.
		p.epoll.SetReadDeadline(time.Time{})
		return nil
	case err != nil && p.over.Load():
		return nil // the caller sees that the waiter is closed
	case err == nil:
		err = p.err
	}
	if err != nil {
		return fmt.Errorf("poll: sleep on completion channels: %w", err)
	}
	return nil
}

func (p *goroutineParker) wake() {
	p.woken.Store(true)
	p.epoll.SetReadDeadline(time.Unix(1, 0))
}

func (p *goroutineParker) close() error {
	p.over.Store(true)
	return p.epoll.Close()
}
