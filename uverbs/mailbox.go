package uverbs

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/cq"
)

// mailbox is how the rest of the program leaves work to the poller of a CQ. The
// poller looks into it only while a bit of the CQ's state word is set.
type mailbox struct {
	mu      sync.Mutex
	tombs   []tomb
	orphans []orphan
	waiters []roomWaiter
	resizes []resize
	dead    error // what Poll returns once all else is delivered
}

// tomb is a closed QP some of whose completions may still be in the ring.
type tomb struct {
	index   *userIndex
	credits int // completions that the QP had claimed on this CQ
	lap     lap
	srq     *SRQ       // where its receives that complete on this CQ came from, or nil
	member  *cq.Member // of srq
}

// passed says that no completion of the QP is left in q.
func (t *tomb) passed(q *CQ) {
	q.returnCredits(t.credits)
	t.index.passed()
	if t.srq != nil {
		t.srq.leave(q, t.member)
	}
}

// orphan is requests that the device will not end any more.
type orphan struct {
	requests *cq.Requests // nil: nobody's
	until    uint32       // those before this number: a queue pair may be used again
	carried  bool         // see cq.Requests.Abandon
	lap      lap

	// shared, if not nil, ends the receives of an SRQ instead.
	shared func(wcs []cq.WC) (n int, done bool)
}

// end makes up ends, and says how many and whether none is left.
func (o *orphan) end(wcs []cq.WC) (n int, done bool) {
	switch {
	case o.shared != nil:
		return o.shared(wcs)
	case o.requests == nil:
		return 0, true
	}
	return o.requests.Abandon(wcs, o.until, o.carried)
}

// lap is the value of ring.Consumed at which the poller has read all that was in
// the ring when it first met the mail; 0 before that: only the poller knows
// where it is.
type lap uint32

// over says whether the poller has come that far.
func (l *lap) over(q *CQ) bool {
	now := q.ring.Consumed()
	if *l == 0 {
		*l = lap(max(now+q.ring.Capacity(), 1))
	}
	return int32(now-uint32(*l)) >= 0
}

// roomWaiter wants to know when so many requests can be posted.
type roomWaiter struct {
	requests *cq.Requests
	n        int
	ready    chan struct{}
}

// userIndex is the place of a QP in the device's look-up table. It is free
// again when no CQ can hold a completion that names it.
type userIndex struct {
	n    uint32
	cqs  atomic.Int32
	home *cq.Endpoints
}

// passed says that one CQ has no completion left that names the index.
func (u *userIndex) passed() {
	if u.cqs.Add(-1) == 0 {
		u.home.Release(u.n)
	}
}

// bury leaves a closed QP to the poller; or, when the ring is empty by now,
// forgets it at once. The kernel has destroyed the QP: no completion of it will
// be added, and the ends of its requests are nobody's business any more.
func (m *mailbox) bury(q *CQ, t tomb, gone ...*cq.Requests) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.orphans {
		if o := &m.orphans[i]; slices.Contains(gone, o.requests) {
			*o = orphan{} // a loop that forgets is less code than another slices.DeleteFunc
		}
	}
	m.waiters = slices.DeleteFunc(m.waiters, func(w roomWaiter) bool {
		if !slices.Contains(gone, w.requests) {
			return false
		}
		close(w.ready)
		return true
	})
	if q.state.Load()&cq.Closed != 0 || q.ring.Empty() {
		t.passed(q)
		return
	}
	m.tombs = append(m.tombs, t)
	q.state.Set(cq.Mail)
}

// adopt leaves requests to the poller whose ends the device will not report;
// unless Close, which discards them, is under way: bury may be over by now.
func (m *mailbox) adopt(q *CQ, closing *atomic.Bool, r *cq.Requests, carried bool) {
	m.take(q, closing, orphan{requests: r, until: r.Tail(), carried: carried})
	q.wakeWaiter()
}

func (m *mailbox) take(q *CQ, closing *atomic.Bool, o orphan) {
	m.mu.Lock()
	if !closing.Load() {
		m.orphans = append(m.orphans, o)
		q.state.Set(cq.Mail)
	}
	m.mu.Unlock()
}

// kill makes err the end of all completions of the queue. The first one stays.
func (m *mailbox) kill(q *CQ, err error) {
	m.mu.Lock()
	m.die(q, err)
	m.mu.Unlock()
	q.wakeWaiter()
}

// die is kill for the poller. The caller holds mu.
func (m *mailbox) die(q *CQ, err error) {
	if m.dead != nil {
		return
	}
	m.dead = err
	q.state.Set(cq.Dead)
	for _, w := range m.waiters { // no more room will come
		close(w.ready)
	}
	for _, r := range m.resizes {
		r.done <- err
	}
	m.waiters, m.resizes = nil, nil
}

// watch returns a channel that is closed when n more requests can be posted, or
// never again. It fails when the queue is dead.
func (m *mailbox) watch(q *CQ, r *cq.Requests, n int) (<-chan struct{}, error) {
	w := roomWaiter{r, n, make(chan struct{})}
	m.mu.Lock()
	if m.dead != nil {
		m.mu.Unlock()
		return nil, m.dead
	}
	m.waiters = append(m.waiters, w)
	q.state.Set(cq.Mail)
	m.mu.Unlock()
	// The poller may have made room before it could see the waiter, and may
	// sleep now: let it look.
	q.wakeWaiter()
	return w.ready, nil
}

// unwatch forgets a watch.
func (m *mailbox) unwatch(ready <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiters = slices.DeleteFunc(m.waiters, func(w roomWaiter) bool { return w.ready == ready })
}

// read is the poller's turn. It delivers ends that the library makes up, once
// the device's own that came before are delivered, into wcs, and returns how
// many, and the error that stands at the end of the queue, if all is delivered.
func (m *mailbox) read(q *CQ, wcs []cq.WC) (n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// The look at the ring comes after the lock. What the poller saw of it
	// earlier does not count: since then the device may have added the
	// completions that go before the mail.
	drained := q.ring.Empty()
	keep := m.tombs[:0]
	for _, t := range m.tombs {
		if t.lap.over(q) || drained {
			t.passed(q)
			continue
		}
		keep = append(keep, t)
	}
	clear(m.tombs[len(keep):])
	m.tombs = keep
	for len(m.orphans) > 0 {
		o := &m.orphans[0]
		if !o.lap.over(q) && !drained {
			break
		}
		k, done := o.end(wcs[n:])
		n += k
		if !done {
			break
		}
		m.orphans = m.orphans[1:]
	}
	m.waiters = slices.DeleteFunc(m.waiters, func(w roomWaiter) bool {
		if w.requests.Vacant() < w.n {
			return false
		}
		close(w.ready)
		return true
	})
	resizes := m.resizes
	m.resizes = nil // whatever becomes of them
	for _, r := range resizes {
		r.done <- r.do()
	}
	if len(m.tombs) == 0 && len(m.orphans) == 0 && len(m.waiters) == 0 {
		q.state.Clear(cq.Mail)
	}
	if n == 0 && len(m.orphans) == 0 && m.dead != nil && q.ring.Empty() {
		err = m.dead
	}
	return n, err
}

// abandon gives back what a closed queue still held, its ring included.
func (m *mailbox) abandon(q *CQ, destroyed bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	q.ring.ReturnShared()
	for _, t := range m.tombs {
		t.passed(q)
	}
	for _, w := range m.waiters {
		close(w.ready)
	}
	for _, r := range m.resizes {
		r.done <- q.closedError()
	}
	m.tombs, m.orphans, m.waiters, m.resizes = nil, nil, nil, nil
	return q.half.detach(destroyed)
}

// claimCredits counts n more completions that may be outstanding on the queue.
// It returns false when they do not fit. The device's mu is held.
func (q *CQ) claimCredits(n int) bool {
	if q.committed+n > q.depth() {
		return false
	}
	q.committed += n
	return true
}

// returnCredits takes n claimed completions back.
func (q *CQ) returnCredits(n int) {
	q.dev.mu.Lock()
	q.committed -= n
	q.dev.mu.Unlock()
}
