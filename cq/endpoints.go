package cq

import (
	"sync"
	"sync/atomic"
)

// Endpoint is a queue pair as pollers of completion queues see it.
type Endpoint struct {
	QPN  uint32
	Send *Requests
	Recv *Requests
	// Closed marks the tombstone of a QP that is gone: completions that
	// still name it are dropped and counted as late.
	Closed bool
	// Datagram says that the sender of a message is part of its completion.
	Datagram bool
	// Shared, if not nil, is a shared receive queue. Where completions of its
	// receives name the queue pair, as on ConnectX, it is set on the queue
	// pair, whose Recv is nil then. Where they name the shared queue, as on
	// soft-RoCE, this is no queue pair at all: QPN is NoQPN, and Send and Recv
	// are nil.
	Shared *SharedRequests
	// Invalidated, if not nil, is told of every key that a message to this
	// queue pair has invalidated, before its completion is handed out.
	Invalidated func(rkey uint32)
}

// NoQPN is the number of no queue pair: theirs have 24 bits.
const NoQPN = 1 << 24

// Side returns the requests of one side.
func (e *Endpoint) Side(s Side) *Requests {
	if s == SendSide {
		return e.Send
	}
	return e.Recv
}

// Belongs says whether r completes on the CQ whose state is s.
func (r *Requests) Belongs(s *State) bool { return r.state == s }

// Endpoints finds an Endpoint by the small number, its user index, that the
// device hands back in completions. Look-ups take no lock.
type Endpoints struct {
	slots atomic.Pointer[[]atomic.Pointer[Endpoint]]

	mu   sync.Mutex
	free []uint32
	last uint32 // highest index in use so far
}

// MaxEndpoints is how many user indices there are: 24 bits, as in a QPN.
const MaxEndpoints = 1 << 24

// Get returns the Endpoint of user index i, or nil.
func (t *Endpoints) Get(i uint32) *Endpoint {
	s := t.slots.Load()
	if s == nil || uint64(i) >= uint64(len(*s)) {
		return nil
	}
	return (*s)[i].Load()
}

// View is what Get looks into, for a poller that looks up many. What is entered
// later may not be in it: take it after the completions were seen to be there.
func (t *Endpoints) View() EndpointView {
	if s := t.slots.Load(); s != nil {
		return EndpointView{*s}
	}
	return EndpointView{}
}

// EndpointView is the result of [Endpoints.View]: use it for one batch.
type EndpointView struct{ slots []atomic.Pointer[Endpoint] }

// Get returns the Endpoint of user index i, or nil.
func (v EndpointView) Get(i uint32) *Endpoint {
	if uint64(i) >= uint64(len(v.slots)) {
		return nil
	}
	return v.slots[i].Load()
}

// Reserve takes a free user index; ok is false when all are taken. 0 is never
// one: a ring whose memory was replaced by zero pages names nobody.
func (t *Endpoints) Reserve() (i uint32, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.free); n > 0 {
		i = t.free[n-1]
		t.free = t.free[:n-1]
		return i, true
	}
	if t.last == MaxEndpoints-1 {
		return 0, false
	}
	t.last++
	t.grow(int(t.last) + 1)
	return t.last, true
}

// grow makes room for n indices. Readers keep the old slice for one look-up
// more; entries are never changed in it afterwards, since Set takes the lock.
func (t *Endpoints) grow(n int) {
	old := t.slots.Load()
	if old != nil && n <= len(*old) {
		return
	}
	s := make([]atomic.Pointer[Endpoint], max(2*n, 16))
	if old != nil {
		for i := range *old {
			s[i].Store((*old)[i].Load())
		}
	}
	t.slots.Store(&s)
}

// Set puts e at a reserved index, or replaces what stands there.
func (t *Endpoints) Set(i uint32, e *Endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	(*t.slots.Load())[i].Store(e)
}

// Release gives a user index back. No completion that names it may be left in
// any queue.
func (t *Endpoints) Release(i uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	(*t.slots.Load())[i].Store(nil)
	t.free = append(t.free, i)
}
