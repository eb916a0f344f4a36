package poll

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/cq"
)

// Queue is a completion queue; *uverbs.CQ is one.
type Queue = cq.Queue

// Group polls many completion queues with few goroutines, its pollers, and hands what
// they find to one handler.
//
// Each queue is served by one poller. In each round a poller takes at most
// GroupOptions.Budget completions from each of its queues, so that a flooded queue
// delays the others by one budget a round and no more. When all its queues are empty it
// waits as GroupOptions.Strategy says.
//
// All methods may be called from any goroutine, a handler's included, but for what
// Remove says.
type Group struct {
	handler func(q cq.Queue, wcs []cq.WC)
	o       GroupOptions
	pollers []*groupPoller

	mu      sync.Mutex
	members []*member
	leaving []*member // removed, and not let go of yet
	number  int       // of the next queue
	state   groupState
	end     context.CancelCauseFunc // ends Run, while it runs
	allowed []int                   // the processors that the process may use, where it matters
}

type groupState uint8

const (
	groupNew groupState = iota
	groupRuns
	groupEnds  // Run is about to return
	groupEnded // nothing is polled any more
)

// errGroupClosed is how Close ends Run.
var errGroupClosed = errors.New("poll: the group was closed")

// DefaultBudget is how many completions of one queue a poller of a Group handles before
// it looks at its other queues.
const DefaultBudget = 64

// MaxBudget is the largest GroupOptions.Budget. Each poller has room for so many
// completions at once.
const MaxBudget = 1 << 16

// GroupOptions are the choices of NewGroup. The zero value, and nil, are one poller that
// sleeps.
type GroupOptions struct {
	// Name tells the group from others in Metrics.
	Name string
	// Pollers is how many goroutines poll; 0 means one for each of CPUs, or one.
	Pollers int
	// Strategy is how a poller waits that finds all its queues empty; nil means
	// Event{}. A poller that has its thread for itself sleeps in the kernel, as with
	// Event.Thread.
	Strategy Strategy
	// Budget is how many completions a poller takes from one queue at a time; 0 means
	// DefaultBudget, and MaxBudget is the most. The handler never gets more at once.
	//
	// A flooded queue delays the poller's others by what the handler takes for a budget.
	// With a strategy that sleeps that is little beside the time to wake up. Beside Busy,
	// which finds a completion in a microsecond, it is all: two completions of 500 ns
	// each are less than that, and eight are three times as much.
	Budget int

	// CPUs are the processors that pollers are bound to: the i-th to the i-th of
	// these, and so on from the beginning. NearDevice and Vector.CPU say which are
	// good. Each has to be one that the process may use.
	//
	// Without CPUs a poller is bound to the NUMA node of its queues' device as soon
	// as its queues tell of one, as those of package uverbs do, and stays on the
	// processors of that node. Where the system knows of no node, nothing is bound.
	CPUs []int
	// Unpinned binds nothing where CPUs is empty.
	Unpinned bool
	// Locked gives each poller a thread for itself, as runtime.LockOSThread does.
	// Pollers that are bound have one anyway.
	Locked bool

	// Failed is told of a queue that failed or was closed, by the poller that served
	// it. The queue has left the group, after all its completions were handled; the
	// others go on. Without Failed the first failure ends the group: Run returns it.
	// As a handler, it calls no Remove.
	Failed func(q cq.Queue, err error)

	// Moderation, unless nil, has the pollers moderate those of their queues that can
	// be: see Moderator.
	Moderation *Moderation

	// MeasureGaps has the group find out the longest time between two visits of each
	// queue. It costs two looks at the clock for each batch.
	MeasureGaps bool
}

// NewGroup makes a group that hands completions to handler. It polls nothing until Run.
//
// The handler gets the completions of one queue, at least one and at most a budget, and
// must not keep the slice. It is called by the queue's poller, so that one queue's
// completions come one after the other and those of two queues may come at a time.
// What it takes delays all queues of that poller. A panic in it ends the program, as
// one in any goroutine does.
func NewGroup(handler func(q cq.Queue, wcs []cq.WC), opts *GroupOptions) (*Group, error) {
	if handler == nil {
		return nil, errors.New("poll: NewGroup without a handler")
	}
	g := &Group{handler: handler}
	if opts != nil {
		g.o = *opts
	}
	o := &g.o
	if o.Pollers < 0 || o.Budget < 0 || o.Budget > MaxBudget {
		return nil, fmt.Errorf("poll: NewGroup with %d pollers and a budget of %d: both are at least 1, or 0 for the default, and a budget at most %d", o.Pollers, o.Budget, MaxBudget)
	}
	if s, ok := o.Strategy.(interface{ check() error }); ok { // what it asks of queues they are asked when it runs
		if err := s.check(); err != nil {
			return nil, err
		}
	}
	if err := checkCPUs(o.CPUs); err != nil {
		return nil, err
	}
	if o.Moderation != nil {
		if err := o.Moderation.check(); err != nil {
			return nil, err
		}
	}
	o.CPUs = slices.Clone(o.CPUs)
	if o.Pollers == 0 {
		o.Pollers = max(1, len(o.CPUs))
	}
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.Strategy == nil {
		o.Strategy = Event{}
	}
	for i := range o.Pollers {
		g.pollers = append(g.pollers, newGroupPoller(g, i))
	}
	return g, nil
}

// Pollers is how many pollers the group has; AddTo numbers them from 0.
func (g *Group) Pollers() int { return len(g.pollers) }

// Add gives the group a queue, whose poller it becomes. The queue goes to the poller
// that has the fewest.
func (g *Group) Add(q cq.Queue) error { return g.add(-1, q) }

// AddTo gives a queue to one poller, as when that is bound to the processor which
// serves the queue's completion vector.
func (g *Group) AddTo(poller int, q cq.Queue) error {
	if poller < 0 || poller >= len(g.pollers) {
		return fmt.Errorf("poll: add queue to poller %d: the group has %d, numbered from 0", poller, len(g.pollers))
	}
	return g.add(poller, q)
}

func (g *Group) add(poller int, q cq.Queue) error {
	if q == nil {
		return errors.New("poll: add queue to group: the queue is nil")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state >= groupEnds {
		return fmt.Errorf("poll: add queue to group: %w", os.ErrClosed)
	}
	if find(g.members, q) != nil {
		return errors.New("poll: add queue to group: it is in it")
	}
	p := g.pollers[max(poller, 0)]
	if old := find(g.leaving, q); old != nil {
		// It may not have two pollers at a time.
		if poller >= 0 && old.p != p {
			return fmt.Errorf("poll: add queue to poller %d: poller %d has not let go of it yet: Remove waits for that", poller, old.p.index)
		}
		p = old.p
	} else if poller < 0 {
		for _, o := range g.pollers {
			if len(o.wanted) < len(p.wanted) {
				p = o
			}
		}
	}
	m := newMember(p, q, g.number)
	g.number++
	g.members = append(g.members, m)
	p.wanted = append(p.wanted, m)
	p.interrupt()
	return nil
}

// find returns the queue's member, or nil.
func find(members []*member, q cq.Queue) *member {
	for _, m := range members {
		if m.q == q {
			return m
		}
	}
	return nil
}

// Remove takes a queue out of the group and returns when its poller has let go of it.
// The queue stays open; what is in it is the caller's. When ctx ends first the queue
// leaves all the same, and Remove returns the cause.
//
// A handler does not call it: it would wait for itself. See RemoveOwned.
func (g *Group) Remove(ctx context.Context, q cq.Queue) error {
	m, err := g.remove(q)
	if m == nil {
		return err
	}
	select {
	case <-m.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("poll: remove queue from group: %w", context.Cause(ctx))
	}
}

// RemoveOwned is Remove for a handler that is called by the queue's own poller, as it is
// with completions of that queue. The queue is not polled any more; until the handler has
// returned no other Waiter can have it.
func (g *Group) RemoveOwned(q cq.Queue) error {
	_, err := g.remove(q)
	return err
}

// remove returns who is to be waited for, if anybody.
func (g *Group) remove(q cq.Queue) (*member, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := find(g.members, q)
	if m == nil {
		return nil, errors.New("poll: remove queue from group: it is not in it")
	}
	g.forget(m)
	if !m.served || m.freed {
		m.letGo()
		return nil, nil
	}
	g.leaving = append(g.leaving, m)
	m.out.Store(true)
	m.p.interrupt()
	return m, nil
}

// drop lets go of a queue that has failed.
func (g *Group) drop(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(m)
	m.letGo()
}

// forget takes a member off the lists of who is wanted. g.mu is held.
func (g *Group) forget(m *member) {
	same := func(o *member) bool { return o == m }
	g.members = slices.DeleteFunc(g.members, same)
	m.p.wanted = slices.DeleteFunc(m.p.wanted, same)
}

// Run polls until ctx ends, Close is called, or, without GroupOptions.Failed, a queue
// fails. It returns when every completion that was taken from a queue has been handled
// and no poller touches a queue any more. The error is nil after Close, wraps the cause
// of ctx when that ended, and is else what went wrong. A group runs once.
func (g *Group) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if err := g.begin(end); err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, p := range g.pollers {
		all.Go(func() { p.run(ctx) })
	}
	all.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = groupEnded
	for _, p := range g.pollers {
		p.close()
	}
	switch err := context.Cause(ctx); err {
	case errGroupClosed:
		return nil
	default:
		return fmt.Errorf("poll: run group: %w", err)
	}
}

// begin lets Run run once.
func (g *Group) begin(end context.CancelCauseFunc) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.state {
	case groupNew:
	case groupRuns:
		return errors.New("poll: run group: it runs already")
	default:
		return fmt.Errorf("poll: run group: %w", os.ErrClosed)
	}
	for i, p := range g.pollers {
		if err := p.open(); err != nil {
			for _, o := range g.pollers[:i] {
				o.close()
			}
			return err
		}
	}
	if !g.o.Unpinned && len(g.o.CPUs) == 0 {
		g.allowed, _ = allowedCPUs() // without which nothing is bound
	}
	g.state, g.end = groupRuns, end
	return nil
}

// stop has Run return err.
func (g *Group) stop(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == groupRuns {
		g.state = groupEnds
		g.end(err)
	}
}

// Close ends Run. It does not wait for that, so that a handler may call it: the queues
// are free when Run has returned. A second Close returns os.ErrClosed, as does one after Run has
// ended by itself.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.state {
	case groupNew:
		g.state = groupEnded
		return nil
	case groupRuns:
		g.state = groupEnds
		g.end(errGroupClosed)
		return nil
	}
	return fmt.Errorf("poll: close group: %w", os.ErrClosed)
}
