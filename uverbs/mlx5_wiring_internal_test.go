package uverbs

import (
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// What the tests of how package mlx5 is wired look at, and a program cannot: they are in
// package uverbs_test, as package sim is not for tests inside of this one.

// Told is a store to a register that a device in software is told of.
type Told struct {
	Offset int // in the page
	Value  uint64
	Stored []byte // what the page has there
}

// WatchRegisters has seen called, besides the device, for what is stored to the newest
// page for BlueFlame by queue pairs that are made afterwards. It returns the offset and
// size of the register that the next one gets.
func (d *Device) WatchRegisters(seen func(Told)) (offset, size int) {
	u := &d.provider.(*mlx5Provider).uars
	page := u.own[len(u.own)-1]
	tell := page.mapping.Tell
	page.mapping.Tell = func(off int, value uint64) {
		seen(Told{off, value, page.mapping.Bytes()[off:][:8]})
		tell(off, value)
	}
	next := u.free.all[len(u.free.all)-1]
	return next.Offset, next.Bytes
}

// Waiters is how many queues of a channel have a waiter.
func (q *CQ) Waiters() int {
	q.channel.waited.Lock()
	defer q.channel.waited.Unlock()
	return len(q.channel.waited.queues)
}

// SendRing is the memory of a queue pair's requests.
func (qp *QP) SendRing() []byte {
	h := qp.half.(*mlx5QP)
	return h.memory.ring(h.size.Bytes())[h.size.SendOffset():]
}

// KernelDepth is how many receives the kernel says an SRQ takes, and ReservedDepth how
// many there is memory for.
func (s *SRQ) KernelDepth() (uint32, error) {
	in, out := &abi.UverbsQuerySRQ{SRQHandle: s.handle}, new(abi.UverbsQuerySRQResp)
	err := s.call("query SRQ", newCommand(s.dev.driver, abi.IB_USER_VERBS_CMD_QUERY_SRQ, in.Bytes(), out.Bytes()))
	return out.MaxWR, err
}

func (s *SRQ) ReservedDepth() uint32 { return s.half.(*mlx5SRQ).size.Elements - 1 }

// RecordPages is how many pages of doorbell records there are, and RecordsIdle says
// whether no queue has one.
func (d *Device) RecordPages() int {
	r := &d.provider.(*mlx5Provider).records
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pages)
}

func (d *Device) RecordsIdle() bool {
	for _, p := range d.provider.(*mlx5Provider).records.pages {
		if !p.Idle() {
			return false
		}
	}
	return true
}

// RecordAt is where the doorbell record of a queue is.
func (q *CQ) RecordAt() uintptr  { return uintptr(address(q.half.(*mlx5CQ).mem.record)) }
func (qp *QP) RecordAt() uintptr { return uintptr(address(qp.half.(*mlx5QP).memory.record)) }

// Register names the register that a queue pair has alone, nil if it shares one. It does
// not hold the queue pair.
func (qp *QP) Register() any {
	if r := qp.half.(*mlx5QP).memory.slot.register; r != nil {
		return r
	}
	return nil
}

// Collect lets what is unreachable be cleaned up.
func Collect() {
	for range 3 {
		runtime.GC()
		done := make(chan struct{})
		p := new([16]byte)
		runtime.AddCleanup(p, func(struct{}) { close(done) }, struct{}{})
		p = nil
		runtime.GC()
		<-done
	}
}

// Number is what requests name an address handle by.
func (h *AH) Number() uint32 { return h.number }

// slowSQ is a send ring whose Put or Publish takes as long as a test wants.
type slowSQ struct {
	*mlx5.SQ
	put, publish  atomic.Bool
	entered, goOn chan struct{}
}

func (s *slowSQ) wait(this *atomic.Bool) {
	if this.Swap(false) {
		close(s.entered)
		<-s.goOn
	}
}

func (s *slowSQ) Put(r *cq.SendRequest) { s.wait(&s.put); s.SQ.Put(r) }
func (s *slowSQ) Publish()              { s.wait(&s.publish); s.SQ.Publish() }

// Slow makes the next Put of the send ring, or with publish the next Publish, tell
// that it has begun and wait until it may go on.
func (qp *QP) Slow(publish bool) (entered, goOn chan struct{}) {
	s := &slowSQ{SQ: qp.sq.ring.(*mlx5.SQ), entered: make(chan struct{}), goOn: make(chan struct{})}
	s.put.Store(!publish)
	s.publish.Store(publish)
	qp.sq.ring, qp.sq.fast, qp.sq.limit = s, nil, qp.sq.requests.Next()
	return s.entered, s.goOn
}

// poorKernel is a machine without memory, poorFile a device file of which nothing can be
// mapped, or of which a test sees what is asked of the kernel.
type poorKernel struct{ kernel.Kernel }

func (poorKernel) Alloc(int, kernel.AllocOptions) (*kernel.Mapping, error) {
	return nil, syscall.ENOMEM
}

type poorFile struct{ kernel.File }

func (poorFile) Map(int64, int) (*kernel.Mapping, error) { return nil, syscall.EAGAIN }

type seenFile struct {
	kernel.File
	seen func(request []byte)
}

func (f seenFile) Ioctl(request []byte) error {
	f.seen(request)
	return f.File.Ioctl(request)
}

// WithoutMemory does something when the machine has none, WithoutMaps when the device
// file cannot be mapped.
func (d *Device) WithoutMemory(do func()) {
	k := d.kernel
	d.kernel = poorKernel{k}
	defer func() { d.kernel = k }()
	do()
}

func (d *Device) WithoutMaps(do func()) {
	f := d.file
	d.file = poorFile{f}
	defer func() { d.file = f }()
	do()
}

// LargeUAR makes a CQ where the uncached page has a number of more than 16 bits, which no
// device of the model has, and returns the number that the kernel was told in an
// attribute of its own.
func (d *Device) LargeUAR(number uint32) (told []uint64, err error) {
	u := d.provider.(*mlx5Provider).uars.shared
	file, was := d.file, u.PageID
	d.file = seenFile{file, func(request []byte) {
		const header, size = 24, 16
		for r := request[header:]; len(r) >= size; r = r[size:] {
			if native.Uint16(r) == abi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX && native.Uint16(r[2:]) == 4 {
				told = append(told, uint64(native.Uint32(r[8:])))
			}
		}
	}}
	u.PageID = number
	defer func() { d.file, u.PageID = file, was }()
	_, err = d.NewCQ(1, nil)
	return told, err
}

// NextRegister puts the register that the next queue pair gets into another UAR of its
// page: there are several in pages of more than 4 KiB, which the model has not.
func (d *Device) NextRegister(uar uint32) {
	all := d.provider.(*mlx5Provider).uars.free.all
	all[len(all)-1].UAR = uar
}

// ResizeLost is ResizeOwned where the device does not say in the old ring that this is
// its end.
func (q *CQ) ResizeLost(depth int) error {
	ring := q.half.(*mlx5CQ).mem.mapping
	file := q.dev.file
	q.dev.file = lostFile{file, ring.Bytes()}
	defer func() { q.dev.file = file }()
	return q.ResizeOwned(depth)
}

type lostFile struct {
	kernel.File
	ring []byte
}

func (f lostFile) Ioctl(request []byte) error {
	err := f.File.Ioctl(request)
	for i := cqeBytes - 1; i < len(f.ring); i += cqeBytes {
		f.ring[i] = 0xf0 // the device's
	}
	return err
}

// RegisterPages are the pages of registers that are mapped.
func (d *Device) RegisterPages() (pages [][]byte) {
	u := &d.provider.(*mlx5Provider).uars
	seen := make(map[*uar]bool) // the first static one is the shared one, too
	for _, page := range slices.Concat(u.own, u.static, []*uar{u.shared}) {
		if page != nil && !seen[page] {
			seen[page] = true
			pages = append(pages, page.mapping.Bytes())
		}
	}
	return pages
}

// Record is the doorbell record of a queue.
func (q *CQ) Record() []byte { return q.half.(*mlx5CQ).mem.record }

// Ring is the memory of a queue's ring.
func (q *CQ) Ring() []byte { return q.half.memory().Bytes() }

// Page is what the kernel says of the clock.
func (c *Clock) Page() []byte { return c.page.Bytes() }
