//go:build amd64 || arm64

package simproc

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/mlx5/model"
)

// Server serves the devices of a model to programs. Make it with [Serve] and close it
// when done.
type Server struct {
	model   *model.Model
	noMount bool
	strict  bool

	mu       sync.Mutex
	contexts map[uint64]*context // by inode
	list     []*context          // the same, never changed in place
	cmds     map[*Cmd]struct{}
	closed   bool

	opening sync.Mutex

	calls, opens, looks, doorbells, events atomic.Uint64
	// denied is set when the memory of a program could not be reached.
	denied atomic.Bool

	waker   int // an eventfd
	asleep  atomic.Bool
	woken   atomic.Bool
	resting atomic.Bool
	stop    atomic.Bool
	over    chan struct{}
}

// Serve begins to serve the devices of m: the n-th is uverbs and n, and has the name that it
// has in the model. It starts no process. The model may be used by this process at the same
// time.
func Serve(m *model.Model, o *Options) (*Server, error) {
	if o == nil {
		o = &Options{}
	}
	if err := probe(); err != nil {
		return nil, err
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("simproc: eventfd: %w", err)
	}
	s := &Server{
		model: m, noMount: o.NoMount, strict: o.Strict, waker: fd, over: make(chan struct{}),
		contexts: make(map[uint64]*context), cmds: make(map[*Cmd]struct{}),
	}
	go s.look()
	return s, nil
}

var errClosed = errors.New("simproc: the server is closed")

// Close kills the programs that still run, waits for them and ends serving.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	s.closed = true
	var cmds []*Cmd
	for c := range s.cmds {
		cmds = append(cmds, c)
	}
	s.mu.Unlock()
	for _, c := range cmds {
		c.Kill()
		<-c.gone
	}
	s.stop.Store(true)
	s.wake()
	<-s.over
	s.mu.Lock()
	list := s.list
	s.list, s.contexts = nil, nil
	s.mu.Unlock()
	for _, c := range list {
		c.end()
	}
	unix.Close(s.waker)
	return nil
}

// Stats says what was done so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	open := len(s.list)
	s.mu.Unlock()
	return Stats{Calls: s.calls.Load(), Opens: s.opens.Load(), Looks: s.looks.Load(), Doorbells: s.doorbells.Load(), Events: s.events.Load(), Open: open}
}

// add enters an open device.
func (s *Server) add(c *context) {
	s.opens.Add(1)
	s.mu.Lock()
	s.contexts[c.ino] = c
	s.list = append(s.list[:len(s.list):len(s.list)], c)
	s.mu.Unlock()
	s.wake()
}

// open are the devices that are open.
func (s *Server) open() []*context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// sweep closes devices that no program has any more.
func (s *Server) sweep() {
	for _, c := range s.open() {
		if !c.released() {
			continue
		}
		s.mu.Lock()
		mine := s.contexts[c.ino] == c
		if mine {
			delete(s.contexts, c.ino)
			keep := make([]*context, 0, len(s.list))
			for _, o := range s.list {
				if o != c {
					keep = append(keep, o)
				}
			}
			s.list = keep
		}
		s.mu.Unlock()
		if mine {
			c.end()
		}
	}
}

// wake has the thread look soon. It may be called with the model's lock held.
func (s *Server) wake() {
	s.woken.Store(true)
	if s.asleep.CompareAndSwap(true, false) {
		_, _ = unix.Write(s.waker, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // full, it wakes too
	}
}

// Rest has the thread that looks for doorbells sleep until Rest is called with false, so that it
// takes no time and no memory of the programs'. Meanwhile what a program rings for is done
// when it makes its next request of the device, and no events come to it. It is for who measures programs.
func (s *Server) Rest(on bool) {
	s.resting.Store(on)
	s.wake()
}

// sweepEvery is how often the thread asks whether a device was closed.
const sweepEvery = 2 * time.Millisecond

// look looks for doorbells until Close.
func (s *Server) look() {
	// The thread keeps its timers exact; it is given up at the end, because the setting
	// would stay with it.
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without, sleeping takes longer
	defer close(s.over)
	var busy, swept time.Time
	for !s.stop.Load() {
		if s.resting.Load() {
			s.woken.Store(false)
			if s.resting.Load() { // or Rest has said otherwise, and was not heard
				s.sleep(-1)
			}
			continue
		}
		list := s.open()
		found := s.woken.Swap(false)
		for _, c := range list {
			if s.visit(c) {
				found = true
			}
		}
		now := time.Now()
		if found {
			busy = now
		}
		if now.Sub(swept) >= sweepEvery {
			swept = now
			s.sweep()
		}
		if d := pace(len(list), now.Sub(busy)); d != 0 {
			s.sleep(d)
		}
	}
}

// visit looks at one device, and says whether there was anything.
func (s *Server) visit(c *context) bool {
	r := &c.registers
	r.mu.Lock()
	found := !r.ended && c.file.Poll(r, s.strict)
	r.mu.Unlock()
	s.looks.Add(1)
	if found {
		s.doorbells.Add(1)
	}
	for _, e := range c.events.list() {
		if !e.dirty.Load() {
			continue
		}
		if n := e.pump(); n > 0 {
			s.events.Add(uint64(n))
			found = true
		}
	}
	return found
}

// pace is how long to sleep after a look, when the last thing happened so long ago: 0
// is not at all, and less than 0 without end. Where there are fewer processors than those who
// spin, one that does so only keeps the programs from running.
func pace(open int, idle time.Duration) time.Duration {
	switch {
	case open == 0:
		return -1
	case idle < 100*time.Microsecond && open+1 < runtime.NumCPU():
		return 0
	case idle < 20*time.Millisecond:
		return 50 * time.Microsecond
	case idle < 200*time.Millisecond:
		return 200 * time.Microsecond
	case idle < 2*time.Second:
		return time.Millisecond
	}
	return 5 * time.Millisecond
}

// sleep sleeps for a time, or until it is woken.
func (s *Server) sleep(d time.Duration) {
	s.asleep.Store(true)
	defer s.asleep.Store(false)
	if s.woken.Load() || s.stop.Load() {
		return
	}
	var limit *unix.Timespec
	if d > 0 {
		t := unix.NsecToTimespec(int64(d))
		limit = &t
	}
	p := []unix.PollFd{{Fd: int32(s.waker), Events: unix.POLLIN}}
	if n, err := unix.Ppoll(p, limit, nil); err == nil && n > 0 {
		var b [8]byte
		_, _ = unix.Read(s.waker, b[:])
	}
}
