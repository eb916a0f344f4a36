package fakekernel

import "math/bits"

// Layout of struct rxe_queue_buf in rdma/rdma_user_rxe.h.
const (
	ringLog2     = 0
	ringMask     = 4
	ringProducer = 128
	ringConsumer = 256
	ringData     = 384
)

// ring is a queue that the program maps. The kernel and the program each own
// one of the indices; the kernel keeps its own in private and publishes it.
type ring struct {
	what   string
	ctx    *context
	shared []byte // what the program maps
	buf    []byte // what the kernel uses: shared, until it is detached
	log2   uint
	mask   uint32
	token  int64
}

func newRing(what string, atLeast, element int) *ring {
	stride := 1 << bits.Len(uint(max(element, 64)-1))
	slots := 1 << bits.Len(uint(atLeast)) // one stays free
	n := (ringData + slots*stride + pageSize - 1) &^ (pageSize - 1)
	r := &ring{what: what, shared: pages(n), log2: uint(bits.TrailingZeros(uint(stride))), mask: uint32(slots - 1)}
	r.buf = r.shared
	r.describe()
	return r
}

func (r *ring) describe() {
	word(r.buf, ringLog2).Store(uint32(r.log2))
	word(r.buf, ringMask).Store(r.mask)
}

func (r *ring) producer() uint32     { return word(r.buf, ringProducer).Load() }
func (r *ring) consumer() uint32     { return word(r.buf, ringConsumer).Load() }
func (r *ring) setProducer(i uint32) { word(r.buf, ringProducer).Store(i) }
func (r *ring) setConsumer(i uint32) { word(r.buf, ringConsumer).Store(i) }

// slot is the element at an index.
func (r *ring) slot(i uint32) []byte {
	return r.buf[ringData+int(i&r.mask)<<r.log2:][: 1<<r.log2 : 1<<r.log2]
}

// detach is what mapping zero pages over the ring does: the program keeps its
// addresses, the kernel another copy. The program's bytes are left as they are;
// overwriting them here would be seen as a race with those who still read
// them. What was posted and not processed is lost.
//
// Mapping a copy over it is the same here: the program's bytes stay. But what the
// kernel's queue pairs would still write would be lost, so there must not be any.
func (r *ring) detach(keep bool) error {
	k := r.ctx.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.rings[r] {
		return nil
	}
	if err := k.faults.check(Call{Op: Detach}); err != nil {
		return err
	}
	if keep && !r.ctx.dev.gone && r.what == "the ring of a CQ" {
		for _, o := range r.ctx.objects {
			if q, ok := o.(*cq); ok && q.ring == r {
				k.violation("the ring of a CQ that exists was copied")
			}
		}
	}
	r.drop()
	return nil
}

// unmap is munmap.
func (r *ring) unmap() error {
	k := r.ctx.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rings[r] {
		r.drop()
	}
	return nil
}

func (r *ring) drop() {
	delete(r.ctx.k.rings, r)
	producer, consumer := r.producer(), r.consumer()
	r.buf = make([]byte, len(r.shared))
	r.describe()
	r.setProducer(producer)
	r.setConsumer(consumer)
	r.ctx.mapped--
	r.ctx.release()
}
