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
	// Failures, if not nil, remembers how the queue pair failed.
	Failures *Failures
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
	table atomic.Pointer[endpointTable]

	mu   sync.Mutex
	free []uint32
	last uint32 // highest index in use so far
}

// endpointTable has a place for each user index, a power of two of them. What a
// View finds at once is kept apart, and is never nil.
type endpointTable struct {
	endpoints  []atomic.Pointer[Endpoint]
	send, recv []atomic.Pointer[Requests]
}

// nothing is a table of no queue: it belongs to no CQ, and nothing is outstanding. It
// is what NewRequests(1, SendSide, NoQPN, nil) makes, but in the program's file: no
// program has to make it when it starts.
var nothing = &Requests{
	first: &noSlot, begin: &noSlot, depth: 1, side: SendSide, qpn: NoQPN, key: NoQPN << 32, kind: uint64(SendSide)<<48 | uint64(OpRecv)<<40,
}

var noSlot Slot

func newEndpointTable(n int) *endpointTable {
	t := &endpointTable{make([]atomic.Pointer[Endpoint], n), make([]atomic.Pointer[Requests], n), make([]atomic.Pointer[Requests], n)}
	for i := range n {
		t.set(uint32(i), nil)
	}
	return t
}

func (t *endpointTable) set(i uint32, e *Endpoint) {
	send, recv := nothing, nothing
	if e != nil && !e.Closed {
		if e.Send != nil {
			send = e.Send
		}
		if e.Recv != nil {
			recv = e.Recv
			if e.Datagram && recv.key&KeyDatagram == 0 { // else it may be in use
				recv.key |= KeyDatagram
			}
		}
	}
	t.send[i].Store(send)
	t.recv[i].Store(recv)
	t.endpoints[i].Store(e)
}

// MaxEndpoints is how many user indices there are: 24 bits, as in a QPN.
const MaxEndpoints = 1 << 24

// Get returns the Endpoint of user index i, or nil.
func (t *Endpoints) Get(i uint32) *Endpoint {
	s := t.table.Load()
	if s == nil || uint64(i) >= uint64(len(s.endpoints)) {
		return nil
	}
	return s.endpoints[i].Load()
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
	old := t.table.Load()
	if old != nil && n <= len(old.endpoints) {
		return
	}
	size := 16
	for size < n {
		size *= 2
	}
	s := newEndpointTable(size)
	if old != nil {
		for i := range old.endpoints {
			s.set(uint32(i), old.endpoints[i].Load())
		}
	}
	t.table.Store(s)
}

// Set puts e at a reserved index, or replaces what stands there. Afterwards e must
// not be changed.
func (t *Endpoints) Set(i uint32, e *Endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.table.Load().set(i, e)
}

// Release gives a user index back. No completion that names it may be left in
// any queue.
func (t *Endpoints) Release(i uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.table.Load().set(i, nil)
	t.free = append(t.free, i)
}
