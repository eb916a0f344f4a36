package mlx5

import (
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

// RQ is the receive queue of a queue pair. It is a [cq.RecvRing]: one goroutine at
// a time uses it. There is no doorbell: the device reads the doorbell record when
// a message arrives.
type RQ struct {
	wqes
	shift     uint32 // of the bytes of a receive
	next      uint32 // receives so far
	published uint32
	maxSGE    int
	record    *uint32
	requests  *cq.Requests
}

var _ cq.RecvRing = (*RQ)(nil)

// RQConfig is what a receive queue is made of.
type RQConfig struct {
	// Memory is the ring, as many bytes as Size says, at a multiple of 64.
	Memory []byte
	// Record is the doorbell record of the queue pair, 8 bytes. The receive
	// queue has the first word of it.
	Record []byte
	// Size is what SizeRecv computed.
	Size RecvSize
	// Requests is the table of what is posted to the queue, of no more
	// requests at a time than Size says.
	Requests *cq.Requests
}

// NewRQ makes the receive queue of a queue pair that was just created or reset.
func NewRQ(c RQConfig) (*RQ, error) {
	s := c.Size
	switch {
	case s.Requests == 0:
		return nil, fmt.Errorf("mlx5: a receive queue of no requests: it has no memory and nothing to do")
	case len(c.Memory) != s.Bytes || s.Bytes&(s.Bytes-1) != 0 || uint64(s.Requests)<<s.Shift != uint64(s.Bytes):
		return nil, fmt.Errorf("mlx5: %d bytes for a receive queue of %d requests of %d bytes", len(c.Memory), s.Requests, uint64(1)<<s.Shift)
	case uint64(s.MaxSGE)*pointerBytes > 1<<s.Shift:
		return nil, fmt.Errorf("mlx5: a receive queue of %d elements in %d bytes: take the size from SizeRecv", s.MaxSGE, uint64(1)<<s.Shift)
	case c.Requests == nil || c.Requests.Depth() > int(s.Requests):
		return nil, fmt.Errorf("mlx5: a receive queue of %d requests needs a table of what is posted, of no more", s.Requests)
	}
	if _, off := wordAt(c.Memory, blockBytes); off != 0 {
		return nil, fmt.Errorf("mlx5: the memory of the receive queue starts %d bytes past a multiple of %d: allocate whole pages", off, blockBytes)
	}
	record, err := recordWord(c.Record, recordRecv)
	if err != nil {
		return nil, err
	}
	return &RQ{wqes: newWQEs(c.Memory), shift: s.Shift, maxSGE: int(s.MaxSGE), record: record, requests: c.Requests}, nil
}

// Put writes a receive to the next place. Elements of length 0 are left out. The
// caller has checked that there is room and that the queue takes so many
// elements; more than it was made for panic.
func (q *RQ) Put(wrid uint64, sges []cq.SGE) {
	if len(sges) > q.maxSGE {
		panic("mlx5: Put: more elements than the receive queue was made for")
	}
	q.putReceive(q.next<<q.shift, (q.next+1)<<q.shift, sges)
	q.requests.Place(requestNumber(wrid), uint16(q.next))
	q.next++
}

// putReceive writes elements from pos on, and the terminator if there is room
// before end.
func (w *wqes) putReceive(pos, end uint32, sges []cq.SGE) {
	for i := range sges {
		if e := &sges[i]; e.Length != 0 {
			w.segment(pos).putPointer(e.Length, e.LKey, e.Addr)
			pos += pointerBytes
		}
	}
	if pos != end {
		w.segment(pos).putPointer(0, terminator, 0)
	}
}

// Publish hands all that was Put to the device.
func (q *RQ) Publish() {
	storeRecord(q.record, q.next)
	q.published = q.next
}

// Rollback takes the last n receives back. Published ones are the device's: they
// stay, since a message may be on its way into them.
func (q *RQ) Rollback(n uint32) { q.next -= min(n, q.next-q.published) }

// Reset begins anew, after the queue pair was reset: the device counts from 0
// again. Nothing may be outstanding or staged.
func (q *RQ) Reset() {
	q.next, q.published = 0, 0
	cq.StoreRelease32(q.record, 0)
}

// Empty says whether all that was posted has ended. Any goroutine may call it.
func (q *RQ) Empty() bool { return q.requests.Idle() }
