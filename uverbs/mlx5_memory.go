package uverbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// queueMemory is the memory of one queue of a ConnectX: its ring and its doorbell
// record. Whoever may still look at the queue holds it; what it is made of is used
// again when nobody does, and the kernel has let go.
type queueMemory struct {
	anchor  kernel.Anchor
	mapping *kernel.Mapping // nil: no ring
	record  []byte
	slot    *recordSlot
	home    *records
}

// records are the pages of doorbell records of a device.
type records struct {
	mu    sync.Mutex
	pages []*recordPage
	kept  []*queueMemory // of queues that the kernel did not destroy
}

type recordPage struct {
	*mlx5.Records
	mapping *kernel.Mapping
}

// recordSlot is the place of a record, and what else only one queue uses. Nothing in it
// leads to the device; see freeRegisters.
type recordSlot struct {
	page     *recordPage
	off      int
	released atomic.Bool // the kernel does not know of it any more
	free     *freeRegisters
	register *uarRegister // or nil
}

// newMemory makes the memory of a queue whose ring has so many bytes, see alloc.
func (p *mlx5Provider) newMemory(bytes, node int) (*queueMemory, error) {
	slot, record, err := p.records.take(p)
	if err != nil {
		return nil, err
	}
	m := &queueMemory{record: record, slot: slot, home: &p.records}
	if bytes > 0 {
		if m.mapping, err = p.alloc(bytes, node); err != nil {
			slot.give()
			return nil, err
		}
	}
	m.anchor.OnCollect(slot.giveReleased)
	return m, nil
}

// alloc makes memory that a kernel can pin, on a NUMA node. wish is one more than the
// number of the node that it has to be; 0 leaves it to the library, which takes that of the
// device if it can. What the node has no room for, and all of it where the process may not
// use that node or the system knows none, is somewhere else then.
func (p *mlx5Provider) alloc(bytes, wish int) (*kernel.Mapping, error) {
	o := MemoryOptions{Node: NUMANode{wish}, collected: true}
	if wish == 0 && p.node != 0 {
		m, err := p.dev.kernel.Alloc(bytes, kernel.AllocOptions{Placed: true, Node: p.node - 1, Collected: true})
		if err == nil {
			return m, nil
		}
	}
	m, err := o.alloc(p.dev.kernel, bytes)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of queue memory%s: %w", bytes, o.where(), err)
	}
	return m, nil
}

// ring is the memory of the ring, of so many bytes.
func (m *queueMemory) ring(bytes int) []byte {
	if m.mapping == nil {
		return nil
	}
	return m.mapping.Bytes()[:bytes:bytes]
}

// detach lets go of the ring. destroyed says that the kernel has let go of all;
// otherwise the device may write there until its file is closed, and the memory stays
// as long as the device.
func (m *queueMemory) detach(destroyed bool) error {
	if !destroyed {
		m.home.mu.Lock()
		defer m.home.mu.Unlock()
		m.home.kept = append(m.home.kept, m)
		return nil
	}
	m.slot.released.Store(true)
	if m.mapping == nil {
		return nil
	}
	return m.mapping.Detach()
}

// take returns a free record.
func (r *records) take(p *mlx5Provider) (*recordSlot, []byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, page := range r.pages {
		if record, off, ok := page.Take(); ok {
			return &recordSlot{page: page, off: off, free: p.uars.free}, record, nil
		}
	}
	m, err := p.alloc(p.dev.kernel.PageSize(), 0)
	if err != nil {
		return nil, nil, err
	}
	table, err := mlx5.NewRecords(m.Bytes(), p.ctx.CacheLine)
	if err != nil {
		return nil, nil, err
	}
	page := &recordPage{table, m}
	r.pages = append(r.pages, page)
	record, off, _ := page.Take()
	return &recordSlot{page: page, off: off, free: p.uars.free}, record, nil
}

// give gives back what only one queue used.
func (s *recordSlot) give() {
	s.page.Give(s.off)
	if s.register != nil {
		s.free.give(s.register)
	}
}

// giveReleased is give, but for what the kernel may still use.
func (s *recordSlot) giveReleased() {
	if s.released.Load() {
		s.give()
	}
}
