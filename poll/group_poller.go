package poll

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// groupPoller is one goroutine of a group.
type groupPoller struct {
	count pollerCounters // first, as such counters have to be

	g     *Group
	index int

	// Guarded by the group's mu.
	wanted []*member          // whom it is to serve
	cancel context.CancelFunc // has it look at wanted, while it serves
	bound  []int              // the processors that it may run on, or nil
	waits  *Waiter            // what it waits by at the moment, or nil
	waited pollerWaits        // what earlier ones have counted

	// The poller's own.
	serving  []*member
	buf      []cq.WC       // a budget
	found    []cq.WC       // what a Waiter counts in, one for each member
	spinning *Waiter       // with Busy: on all members at once, whoever they are
	failing  bool          // one of the members has an error to settle
	threaded bool          // the poller has its thread for itself
	handling time.Duration // what handlers have taken so far, if that is measured

	looks  int  // visits in this round
	fruit  bool // one of them found something
	taking bool // events are being taken
}

// pollerCounters are raised by the poller alone.
type pollerCounters struct{ rounds, empty, parks cq.Counter }

func newGroupPoller(g *Group, index int) *groupPoller {
	return &groupPoller{g: g, index: index, buf: make([]cq.WC, g.o.Budget)}
}

// interrupt has the poller look at who is wanted. The group's mu is held.
func (p *groupPoller) interrupt() {
	if p.cancel != nil {
		p.cancel()
	}
}

// open takes what the poller needs before it runs.
func (p *groupPoller) open() error {
	if _, ok := p.g.o.Strategy.(Busy); !ok {
		return nil
	}
	// A busy waiter is one for the life of the poller, so that its place among the
	// processors is not lost when queues come and go.
	w, err := NewWaiter(p.g.o.Strategy, everyone{p})
	p.spinning = w
	return err
}

func (p *groupPoller) close() {
	if p.spinning != nil {
		p.spinning.Close()
	}
}

// run serves until ctx ends.
func (p *groupPoller) run(ctx context.Context) {
	err := errHandlerLeft // and stays that if a handler ends the goroutine, or panics
	defer func() {
		if err != nil {
			p.g.stop(err)
		}
		p.leave()
	}()
	if err = p.serveUntil(ctx); err == errNeedsThread {
		err = errHandlerLeft
		err = p.onThread(func() error { return p.serveUntil(ctx) })
	}
}

var (
	errHandlerLeft = errors.New("a handler ended the goroutine of its poller")
	errNeedsThread = errors.New("a thread is needed")
)

// onThread calls f on a thread that runs nothing else, and ends with f.
func (p *groupPoller) onThread(f func() error) error {
	p.threaded = true
	runtime.LockOSThread()
	if !onMainThread() {
		// It is never unlocked: so the thread ends with the goroutine, and
		// nobody gets one that is bound.
		return f()
	}
	// A main thread does not end. Whoever asks for the processors of the process asks
	// for those of this thread, which must not be bound therefore.
	err := errHandlerLeft
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		err = f()
	}()
	<-done
	runtime.UnlockOSThread()
	return err
}

// serveUntil returns nil when ctx ends.
func (p *groupPoller) serveUntil(ctx context.Context) error {
	for {
		turn, cancel := context.WithCancel(ctx)
		p.adopt(cancel)
		err := p.place()
		switch {
		case err != nil, ctx.Err() != nil:
		case len(p.serving) == 0:
			<-turn.Done()
		case p.failing:
			everyone{p}.Poll(nil) // it cannot wait while a queue cannot be waited for
			err = p.settle()
		default:
			if err = p.serve(turn); p.failing {
				err = p.settle()
			}
		}
		cancel()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// adopt makes those who are wanted those who are served. cancel is for the next time.
func (p *groupPoller) adopt(cancel context.CancelFunc) {
	for _, m := range p.serving {
		if m.out.Load() {
			m.unmoderate()
		}
	}
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.cancel = cancel
	for _, m := range p.serving {
		if m.out.Load() {
			m.letGo()
		}
	}
	clear(p.serving)
	p.serving = append(p.serving[:0], p.wanted...)
	for _, m := range p.serving {
		if !m.served {
			m.served, m.visited = true, p.handling
		}
	}
	p.found = slices.Grow(p.found[:0], len(p.serving))[:len(p.serving)]
	p.looks, p.fruit = 0, false
}

// leave lets go of everybody.
func (p *groupPoller) leave() {
	for _, m := range p.serving {
		m.unmoderate()
	}
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.cancel = nil
	for _, m := range p.serving {
		m.letGo()
	}
	p.serving = nil
}

// serve polls until ctx ends, which is when somebody else is wanted, or until a queue has
// failed.
func (p *groupPoller) serve(ctx context.Context) error {
	w := p.spinning
	if w == nil {
		var err error
		if w, err = p.waiter(); err != nil {
			return err
		}
		defer w.Close()
	}
	p.waitBy(w)
	defer p.waitBy(nil)
	for {
		_, err := w.Wait(ctx, p.found)
		switch {
		case p.failing, ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// waiter makes one on the members.
func (p *groupPoller) waiter() (*Waiter, error) {
	queues := make([]cq.Queue, len(p.serving))
	for i, m := range p.serving {
		queues[i] = m
	}
	if s, ok := p.g.o.Strategy.(threadStrategy); ok && p.threaded {
		// The runtime's poller wakes a thread that belongs to a goroutine
		// late; it sleeps in the kernel, unless the queues have nothing
		// there to sleep on.
		if w, err := NewWaiter(s.onThread(), queues...); err == nil || p.failing {
			return w, err
		}
	}
	return NewWaiter(p.g.o.Strategy, queues...)
}

// threadStrategy is one that can park the thread.
type threadStrategy interface{ onThread() Strategy }

func (e Event) onThread() Strategy {
	e.Thread = true
	return e
}

func (a Adaptive) onThread() Strategy {
	a.Thread = true
	return a
}

// settle sees the queues off that have failed, which nobody waits for by now. Those that
// cannot be waited for, and have completions, are left for the next time. It returns an
// error when the group is to end.
func (p *groupPoller) settle() error {
	p.failing = false
	for _, m := range p.serving {
		if m.out.Load() || m.pollErr == nil && m.waitErr == nil {
			continue
		}
		err := m.pollErr
		if err == nil {
			if m.visit() > 0 {
				p.failing = true
				continue
			}
			err = m.waitErr
		}
		m.unmoderate()
		p.g.drop(m)
		if p.g.o.Failed == nil {
			return fmt.Errorf("a queue failed: %w", err)
		}
		p.g.o.Failed(m.q, err)
	}
	return nil
}

// everyone is the members of a poller as one queue, for a waiter that only polls.
type everyone struct{ p *groupPoller }

// Poll is one round.
func (e everyone) Poll([]cq.WC) (n int, err error) {
	for _, m := range e.p.serving {
		n |= m.visit()
	}
	return n, nil
}

func (everyone) Arm(bool) error           { return errOnlyPolled }
func (everyone) TakeEvent() (bool, error) { return false, errOnlyPolled }
func (everyone) Attach(func()) (int, func(), error) {
	return -1, nil, errOnlyPolled
}

var errOnlyPolled = errors.New("poll: a busy group waits for no event")
