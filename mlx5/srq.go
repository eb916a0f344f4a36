package mlx5

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/cq"
)

// sharedHeader is the first segment of an element of a shared receive queue:
// struct mlx5_wqe_srq_next_seg, with the index of the element that is posted next
// in bytes 2 and 3.
const sharedHeader = 16

// SRQ is a shared receive queue. It is a [cq.RecvRing]: one goroutine at a time
// uses it, while pollers may Repost. Its elements are a list that the device
// follows: each says which comes after it, so an element's successor is fixed when
// it is posted, and the queue always keeps one more than it posts. Elements whose
// receives have ended go to the list's end when their places in the table of
// requests are used again.
type SRQ struct {
	wqes
	shift    uint32 // of the bytes of an element
	maxSGE   int
	record   *uint32
	requests *cq.SharedRequests

	// mu is held from the first Put of a batch to its end: nothing can be put
	// in line between requests that are staged.
	mu     sync.Mutex
	count  uint32         // receives so far
	staged []stagedShared // what was Put and not published

	// The list of elements that may be posted, which has one at least.
	head, tail uint32
	next       []uint16 // by element, what stands in its header
	// Which element, plus one, the receive stands in that a place of the table
	// was last used for.
	element []uint32

	// Elements that the device gave back with their receives. Whoever can take
	// mu puts them in line again.
	returned struct {
		sync.Mutex
		elements []uint16
		some     atomic.Bool
	}
}

type stagedShared struct{ place, element uint32 }

var _ cq.RecvRing = (*SRQ)(nil)

// SRQConfig is what a shared receive queue is made of.
type SRQConfig struct {
	// Memory is the ring, as many bytes as Size says, at a multiple of 64.
	Memory []byte
	// Record is the queue's doorbell record, 8 bytes.
	Record []byte
	// Size is what SizeShared computed.
	Size SharedSize
	// Requests is the table of what is posted to the queue, new and of no more
	// requests at a time than Size says. NewSRQ sets its Repost.
	Requests *cq.SharedRequests
}

// NewSRQ makes a shared receive queue and links its elements in the memory. The
// kernel is told of the memory afterwards.
func NewSRQ(c SRQConfig) (*SRQ, error) {
	s := c.Size
	switch {
	case len(c.Memory) != s.Bytes || uint64(s.Elements)<<s.Shift != uint64(s.Bytes) || s.Elements > maxShared || s.Shift < 5:
		return nil, fmt.Errorf("mlx5: %d bytes for a shared receive queue of %d elements of %d bytes", len(c.Memory), s.Elements, uint64(1)<<s.Shift)
	case sharedHeader+uint64(s.MaxSGE)*pointerBytes > 1<<s.Shift || s.Requests >= s.Elements:
		return nil, fmt.Errorf("mlx5: a shared receive queue of %d requests of %d data pointers in %d elements of %d bytes: take the size from SizeShared",
			s.Requests, s.MaxSGE, s.Elements, uint64(1)<<s.Shift)
	case c.Requests == nil || c.Requests.Depth() > int(s.Requests):
		return nil, fmt.Errorf("mlx5: a shared receive queue of %d requests needs a table of what is posted, of no more", s.Requests)
	}
	if _, off := wordAt(c.Memory, blockBytes); off != 0 {
		return nil, fmt.Errorf("mlx5: the memory of the shared receive queue starts %d bytes past a multiple of %d: allocate whole pages", off, blockBytes)
	}
	record, err := recordWord(c.Record, recordRecv)
	if err != nil {
		return nil, err
	}
	depth := c.Requests.Depth()
	q := &SRQ{
		wqes:     newWQEs(c.Memory),
		shift:    s.Shift,
		maxSGE:   int(s.MaxSGE),
		record:   record,
		requests: c.Requests,
		staged:   make([]stagedShared, 0, depth),
		tail:     s.Elements - 1,
		next:     make([]uint16, s.Elements),
		element:  make([]uint32, depth),
	}
	for i := range s.Elements - 1 {
		q.link(i, i+1)
	}
	c.Requests.Positions(int(s.Elements))
	c.Requests.Repost = q.Repost
	return q, nil
}

// link makes one element the successor of another.
func (q *SRQ) link(e, next uint32) {
	q.next[e] = uint16(next)
	*q.half(e << q.shift) = toBE32(next & 0xffff)
}

// Put writes a receive to the next element of the list. The caller has checked
// that there is room and that the queue takes so many elements; more than it was
// made for panic. Elements of length 0 are left out: to the device they would be
// 2^31 bytes long.
func (q *SRQ) Put(wrid uint64, sges []cq.SGE) {
	if len(sges) > q.maxSGE {
		panic("mlx5: Put: more elements than the shared receive queue was made for")
	}
	if len(q.staged) == 0 {
		q.mu.Lock()
	}
	place := requestNumber(wrid) & (cq.MaxSharedDepth - 1)
	if e := q.element[place]; e != 0 {
		// The receive that the place was used for before has ended.
		q.give(e - 1)
	}
	e := q.take(place)
	q.staged = append(q.staged, stagedShared{place, e})

	q.putReceive(e<<q.shift+sharedHeader, (e+1)<<q.shift, sges)
	q.requests.Place(requestNumber(wrid), uint16(e))
}

// take takes the next element of the list, for a place of the table.
func (q *SRQ) take(place uint32) uint32 {
	e := q.head
	q.head = uint32(q.next[e])
	q.element[place] = e + 1
	return e
}

// give puts an element at the end of the list.
func (q *SRQ) give(e uint32) {
	q.link(q.tail, e)
	q.tail = e
}

// Publish hands all that was Put to the device.
func (q *SRQ) Publish() {
	n := len(q.staged)
	if n == 0 {
		return
	}
	q.staged = q.staged[:0]
	q.count += uint32(n)
	storeRecord(q.record, q.count)
	q.release()
}

// Rollback takes the last n receives back. Published ones are the device's: they
// stay, since a message may be on its way into them.
func (q *SRQ) Rollback(n uint32) {
	n = min(n, uint32(len(q.staged)))
	if n == 0 {
		return
	}
	keep := len(q.staged) - int(n)
	for i := len(q.staged) - 1; i >= keep; i-- {
		s := q.staged[i]
		// It still says that the head comes after it.
		q.head = s.element
		q.element[s.place] = 0
	}
	q.staged = q.staged[:keep]
	if keep == 0 {
		q.release()
	}
}

// Repost puts the receive in line again that stands in an element which the
// device has given back unused: it could not reach the receive's memory yet. The
// poller has found it outstanding. Any goroutine may call it; if a batch is being
// staged, that is done when the batch ends.
func (q *SRQ) Repost(pos uint16) {
	q.returned.Lock()
	q.returned.elements = append(q.returned.elements, pos)
	q.returned.some.Store(true)
	q.returned.Unlock()
	if q.mu.TryLock() {
		q.release()
	}
}

// release puts in line again what the device gave back, and lets go of mu.
func (q *SRQ) release() {
	for {
		if q.returned.some.Load() {
			q.repostAll()
		}
		q.mu.Unlock()
		// Who came meanwhile found mu taken and left it to this.
		if !q.returned.some.Load() || !q.mu.TryLock() {
			return
		}
	}
}

// repostAll moves receives from the elements that the device gave back to the next
// of the list.
func (q *SRQ) repostAll() {
	q.returned.Lock()
	defer q.returned.Unlock()
	for _, pos := range q.returned.elements {
		seq, ok := q.requests.At(pos)
		place := seq & (cq.MaxSharedDepth - 1)
		if !ok || !q.requests.Posted(seq) || q.element[place] != uint32(pos)+1 {
			continue // the device gave it back twice
		}
		// libmlx5 lets the device have the element back after as many others
		// as it can, too: it may still write there.
		q.give(uint32(pos))
		e := q.take(place)
		from, to := uint32(pos)<<q.shift, e<<q.shift
		for off := uint32(sharedHeader); off < 1<<q.shift; off += segmentBytes {
			*q.segment(to + off) = *q.segment(from + off)
		}
		q.requests.Place(seq, uint16(e))
		q.count++
	}
	q.returned.elements = q.returned.elements[:0]
	q.returned.some.Store(false)
	storeRecord(q.record, q.count)
}

// Empty says whether all that was posted has ended. Any goroutine may call it.
func (q *SRQ) Empty() bool { return q.requests.Idle() }
