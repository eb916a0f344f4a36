package poll

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// threadParker parks the thread in ppoll: on the queues' descriptors and on an
// eventfd that wake writes to.
type threadParker struct {
	fds     []unix.PollFd // the eventfd last
	yielded time.Duration // when other goroutines could run last

	parked sync.Mutex // held by park, so that close does not pull the eventfd away
	closed bool
}

func newThreadParker(fds []int) (*threadParker, error) {
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("poll: make an eventfd: %w", err)
	}
	p := &threadParker{}
	for _, fd := range append(fds, efd) {
		p.fds = append(p.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return p, nil
}

func (p *threadParker) eventfd() int { return int(p.fds[len(p.fds)-1].Fd) }

// A goroutine that sleeps in the kernel and wakes there keeps its processor of the
// runtime's, which counts that as running without rest: after 10 ms the runtime
// interrupts it, wherever it is, with a signal if it has just woken, and if it sleeps
// takes the processor away and looks every 20 us for a while whether there is another to take.
// Yielding before that, and before a sleep, costs less than a tenth, and when nobody
// waits for it.
const yieldEvery = 5 * time.Millisecond

func (p *threadParker) park(now time.Duration) error {
	if now-p.yielded >= yieldEvery {
		p.yielded = now
		runtime.Gosched()
	}
	p.parked.Lock()
	defer p.parked.Unlock()
	if p.closed {
		return nil
	}
	for {
		_, err := unix.Ppoll(p.fds, nil, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("poll: sleep on completion channels: %w", err)
		}
		break
	}
	if p.fds[len(p.fds)-1].Revents != 0 {
		var count [8]byte
		unix.Read(p.eventfd(), count[:]) // takes all wakes together
	}
	return nil
}

func (p *threadParker) wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	unix.Write(p.eventfd(), one[:]) // EAGAIN: 2^64-2 wakes are enough
}

func (p *threadParker) close() error {
	p.parked.Lock()
	defer p.parked.Unlock()
	p.closed = true
	return unix.Close(p.eventfd())
}
