//go:build amd64 || arm64

package simproc

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/mlx5/model"
)

// eventFile is an event queue of the model as a file of a program: a pipe of packets, of
// which one read returns one event. What the program has not read yet stays in the
// model's queue too, and is taken out once it is gone from the pipe: the device counts
// events that were read, and forgets those of queues that are destroyed.
type eventFile struct {
	queue *model.EventQueue
	dirty atomic.Bool

	mu     sync.Mutex
	w      int // the end to write to, -1 when closed
	size   int // of a record, 0 before the first
	handed int // how many records of the queue are in the pipe
}

// newPipe makes an event file and the descriptor that the program gets.
func newPipe() (e *eventFile, r int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_DIRECT|unix.O_CLOEXEC); err != nil {
		return nil, -1, err
	}
	// The program's end is a description of its own, and blocks unless it says otherwise.
	if err := unix.SetNonblock(p[1], true); err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return nil, -1, err
	}
	return &eventFile{w: p[1]}, p[0], nil
}

// settle takes out of the queue what the program has read.
func (e *eventFile) settle() {
	if e.handed == 0 {
		return
	}
	bytes, err := unix.IoctlGetInt(e.w, unix.TIOCINQ)
	if err != nil {
		return
	}
	e.taken(e.handed - bytes/e.size)
}

// taken takes n records out of the queue.
func (e *eventFile) taken(n int) {
	var b [16]byte
	for ; n > 0; n-- {
		if _, err := e.queue.Read(b[:]); err != nil {
			break
		}
		e.handed--
	}
}

// pump moves records to the pipe. It says how many, and tries again later when there is
// no room.
func (e *eventFile) pump() (moved int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pumpLocked()
}

func (e *eventFile) pumpLocked() (moved int) {
	e.dirty.Store(false)
	if e.w < 0 {
		return 0
	}
	e.settle()
	var b [16]byte
	for {
		n, err := e.queue.Peek(e.handed, b[:])
		if err != nil {
			if err != errAgain && e.handed == 0 {
				e.close() // the device is gone, and all is read
			} else if err != errAgain {
				e.dirty.Store(true)
			}
			return moved
		}
		if _, err := unix.Write(e.w, b[:n]); err != nil {
			if err == unix.EAGAIN {
				e.dirty.Store(true)
			}
			return moved
		}
		e.size = n
		e.handed++
		moved++
	}
}

// recall takes back what the program has not read, which then stands in the queue alone, until
// resume. Nobody else uses the file meanwhile.
func (e *eventFile) recall() {
	e.mu.Lock()
	if e.handed == 0 || e.w < 0 {
		return
	}
	r, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", e.w), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(r)
	var b [16]byte
	unread := 0
	for {
		if n, err := unix.Read(r, b[:]); n <= 0 || err != nil {
			break
		}
		unread++
	}
	e.taken(e.handed - unread)
	e.handed = 0
}

// resume ends recall.
func (e *eventFile) resume() (moved int) {
	defer e.mu.Unlock()
	return e.pumpLocked()
}

// abandoned says whether the program has closed its end.
func (e *eventFile) abandoned() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.w < 0 {
		return true
	}
	p := []unix.PollFd{{Fd: int32(e.w)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLERR != 0
}

// end closes the queue and our end of the pipe.
func (e *eventFile) end() {
	_ = e.queue.Close() // of a file that is closed it was
	e.mu.Lock()
	defer e.mu.Unlock()
	e.close()
}

func (e *eventFile) close() {
	if e.w >= 0 {
		unix.Close(e.w)
		e.w = -1
	}
}
