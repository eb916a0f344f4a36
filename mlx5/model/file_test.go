package model_test

import (
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

// holed is the memory of this process without a part, as if it had been unmapped.
type holed struct {
	model.Local
	from, to uint64
}

func (h *holed) gone(addr uint64, n int) bool { return addr < h.to && addr+uint64(n) > h.from }

func (h *holed) Read(addr uint64, p []byte) error {
	if h.gone(addr, len(p)) {
		return request.EFAULT
	}
	return h.Local.Read(addr, p)
}

func (h *holed) Write(addr uint64, p []byte) error {
	if h.gone(addr, len(p)) {
		return request.EFAULT
	}
	return h.Local.Write(addr, p)
}

func (h *holed) Publish(addr uint64, p []byte) error {
	if h.gone(addr, len(p)) {
		return request.EFAULT
	}
	return h.Local.Publish(addr, p)
}

func (h *holed) Load32(addr uint64) (uint32, error) {
	if h.gone(addr, 4) {
		return 0, request.EFAULT
	}
	return h.Local.Load32(addr)
}

// Memory that is gone below the device: requests end with the syndrome of the side it is
// on, and nothing hangs.
func TestMemoryGone(t *testing.T) {
	for name, c := range map[string]struct {
		gone             func(w *two) []byte
		op               uint8
		syndrome, vendor uint8
		peer             uint8
	}{
		"source of a send":     {func(w *two) []byte { return w.ma.b }, opSend, 0x04, 0x51, 0},
		"source of a write":    {func(w *two) []byte { return w.ma.b }, opWrite, 0x04, 0x51, 0},
		"target of a read":     {func(w *two) []byte { return w.ma.b }, opRead, 0x04, 0x21, 0},
		"target of an atomic":  {func(w *two) []byte { return w.ma.b }, opFAA, 0x04, 0x21, 0},
		"target of a send":     {func(w *two) []byte { return w.mb.b }, opSend, 0x14, 0x89, 0x04},
		"target of a write":    {func(w *two) []byte { return w.mb.b }, opWrite, 0x13, 0x88, 0},
		"source of a read":     {func(w *two) []byte { return w.mb.b }, opRead, 0x13, 0x88, 0},
		"word of an atomic":    {func(w *two) []byte { return w.mb.b }, opFAA, 0x13, 0x88, 0},
		"send queue":           {func(w *two) []byte { return w.qa.b }, opSend, 0x02, 0x68, 0},
		"peer's receive queue": {func(w *two) []byte { return w.qb.b }, opSend, 0x14, 0x89, 0x05},
	} {
		t.Run(name, func(t *testing.T) {
			mem := &holed{}
			w := &two{m: newModel(t, model.DeviceConfig{Name: "sim0"}, model.DeviceConfig{Name: "sim1"})}
			w.a, w.b = openIn(t, w.m, "sim0", mem, nil), openIn(t, w.m, "sim1", mem, nil)
			w.qa = w.a.qp(rc, w.a.cq(32, cqOptions{}), w.a.cq(64, cqOptions{}), qpOptions{})
			w.qb = w.b.qp(rc, w.b.cq(32, cqOptions{}), w.b.cq(64, cqOptions{}), qpOptions{})
			w.ma, w.mb = w.a.mr(4096, allAccess), w.b.mr(4096, allAccess)
			connect(w.qa, w.qb, usual)
			w.qb.recv(sge(w.mb, 0, 64))
			var segments [][]byte
			if c.op != opSend {
				segments = append(segments, raddr(w.mb, 0))
			}
			if c.op == opFAA {
				segments = append(segments, atomicOperands(1, 0))
			}
			_, first := w.qa.put(c.op, signaled, 0, append(segments, sge(w.ma, 0, 8))...)
			b := c.gone(w)
			mem.from, mem.to = at(b), at(b)+uint64(len(b))
			w.qa.ring(first)
			e := w.qa.scq.one()
			if e.syndrome != c.syndrome || e.vendor != c.vendor {
				t.Errorf("syndrome %#x/%#x, want %#x/%#x", e.syndrome, e.vendor, c.syndrome, c.vendor)
			}
			if p, _ := w.qb.rcq.poll(); p.syndrome != c.peer && c.peer != 0 {
				t.Errorf("the peer's receive has syndrome %#x, want %#x", p.syndrome, c.peer)
			}
		})
	}
}

// A second store to the arm register hides the first; the record still has it.
func TestPollFindsHiddenArms(t *testing.T) {
	for _, strict := range []bool{false, true} {
		m := newModel(t, model.DeviceConfig{Name: "sim0"})
		c := openWith(t, m, "sim0", &model.OpenOptions{Polled: true})
		q1, q2 := c.cq(16, cqOptions{channel: true}), c.cq(32, cqOptions{channel: true})
		p1, p2 := c.qp(rc, q1, q1, qpOptions{}), c.qp(rc, q2, q2, qpOptions{})
		connect(p1, p2, usual)
		// Both arms are of serial number 0 and index 0: the word is zero.
		store(q1.db[4:], 0)
		store(q2.db[4:], 0)
		c.f.Poll(registers{c.ncID: {0x20: uint64(q2.cqn)}}, strict)
		_, first := p1.put(opNop, signaled, 0)
		c.f.Poll(registers{c.ncID: {0x800: first}}, strict)
		_, first = p2.put(opNop, signaled, 0)
		c.f.Poll(registers{c.ncID: {0x800: first}}, strict)
		if q1.event() == strict || !q2.event() {
			t.Errorf("strict %v: the wrong queues tell", strict)
		}
	}
}

// An arm that was never seen, since the one after it came to the same register before, was
// answered to a device, which sees both: two events, of which the second is for what comes
// after. Without a completion in between the number is a wrong one.
func TestPollFindsJoinedArms(t *testing.T) {
	for _, completed := range []bool{true, false} {
		m := newModel(t, model.DeviceConfig{Name: "sim0"})
		c := openWith(t, m, "sim0", &model.OpenOptions{Polled: true})
		q := c.cq(16, cqOptions{channel: true})
		p := c.qp(rc, q, q, qpOptions{})
		connect(p, c.qp(rc, q, q, qpOptions{}), usual)
		post := func() {
			_, first := p.put(opNop, signaled, 0)
			c.f.Poll(registers{c.ncID: {0x800: first}}, true)
		}
		const serial, index = 1, 1
		if completed {
			post()
		}
		word := uint32(serial<<28 | index)
		store(q.db[4:], word)
		c.f.Poll(registers{c.ncID: {0x20: uint64(word)<<32 | uint64(q.cqn)}}, true)
		if q.event() != completed || q.event() {
			t.Errorf("completed %v: other events than those of the arm that was not seen", completed)
		}
		post()
		if q.event() != completed || q.event() {
			t.Errorf("completed %v: other events than those of the arm that was", completed)
		}
	}
}

// Descriptors are whatever the front of the model says.
func TestDescriptors(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	next := int32(7)
	var failing bool
	c := openWith(t, m, "sim0", &model.OpenOptions{NewFD: func(*model.EventQueue) (int32, error) {
		if failing {
			return 0, request.ENOMEM
		}
		next++
		return next, nil
	}})
	if c.async.FD() != 8 || c.f.EventQueue(8) != c.async || c.f.Device() != c.d || c.d.Name() != "sim0" || c.d.Ports() != 1 || m.Devices()[0] != c.d {
		t.Errorf("descriptor %d", c.async.FD())
	}
	failing = true
	wantErrno(t, "no descriptor", ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, core(make([]byte, 8)), coreOut(make([]byte, 4)))...), request.ENOMEM)
	failing = false
	q := c.cq(8, cqOptions{channel: true})
	if err := q.channel.Close(); err != nil {
		t.Error(err)
	}
	if err := q.channel.Close(); err != os.ErrClosed {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := q.channel.Read(make([]byte, 8)); err != os.ErrClosed {
		t.Errorf("read of a closed queue: %v", err)
	}
	<-q.channel.Ready() // a waiter wakes up
	// Events for a closed channel go nowhere.
	p := c.qp(rc, q, q, qpOptions{})
	p.init(usual)
	p.join(p, usual)
	q.arm(false)
	p.post(opNop, signaled, 0)
	q.one()
	wantErrno(t, "a closed channel", ioctl(c.f, abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE, object(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, 0),
		in(abi.UVERBS_ATTR_CREATE_CQ_CQE, u32(7)), in(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, u64(0)), in(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, u32(0)),
		out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, make([]byte, 4)), object(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, uint32(q.channel.FD())),
		uhw((&abi.MLX5IBCreateCQ{CQESize: 64}).Bytes()), uhwOut(make([]byte, 8))), request.EBADF)
	// A record does not fit into less.
	c.must("down", c.d.SetPort(1, false))
	if _, err := c.async.Read(make([]byte, 8)); !errors.Is(err, request.EINVAL) {
		t.Errorf("read of half a record: %v", err)
	}
	c.must("close", c.f.Close())
	if _, _, ok := c.asyncEvent(); !ok {
		t.Error("an event from before Close is lost")
	}
	if _, err := c.async.Read(make([]byte, 16)); !errors.Is(err, request.EIO) {
		t.Errorf("read after Close: %v", err)
	}
}

func TestUARs(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	c := open(t, m, "sim0")
	id, handle := c.uar(uint64(abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF))
	destroy := func() error {
		return ioctl(c.f, abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_DESTROY, object(abi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, handle))
	}
	// A BlueFlame page has two registers of two halves.
	nc := c.ncID
	c.ncID = id
	q := c.cq(32, cqOptions{})
	p := c.qp(rc, q, q, qpOptions{})
	p.init(usual)
	p.join(p, usual)
	for _, off := range []uint32{0x800, 0xa00} {
		p.register = off
		p.post(opNop, signaled, 0)
		p.post(opNop, signaled, 0)
		q.one()
		q.one()
	}
	noViolations(t, m)
	wantErrno(t, "destroy below a QP", destroy(), request.EBUSY)
	c.ncID = nc
	wantErrno(t, "no such type", ioctl(c.f, abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_ALLOC, object(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0), in(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, u64(2)),
		out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, make([]byte, 8)), out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, make([]byte, 4)), out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, make([]byte, 4))), request.EOPNOTSUPP)
	_, handle = c.uar(uint64(abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC))
	c.must("destroy", destroy())
	for name, x := range map[string]struct {
		offset int64
		n      int
	}{"static page": {0, 4096}, "beyond": {99 << 28, 4096}, "two pages": {7 << 20, 8192}, "crooked": {7<<20 + 8, 4096}, "negative": {-4096, 4096}} {
		if _, err := c.f.Map(x.offset, x.n, false); err == nil {
			t.Errorf("%s: mapped", name)
		}
	}
	c.must("close", c.f.Close())
	if _, err := c.f.Map(7<<20, 4096, false); err != os.ErrClosed {
		t.Errorf("of a closed file: %v", err)
	}
}

func TestExtendedModify(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	c := open(t, m, "sim0")
	q := c.cq(8, cqOptions{})
	p := c.qp(rc, q, q, qpOptions{})
	modify := func(x abi.UverbsExModifyQP) error {
		x.Base.QPHandle = p.handle
		return ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_FLAG_EXTENDED|abi.IB_USER_VERBS_EX_CMD_MODIFY_QP, core(x.Bytes()), coreOut(make([]byte, 8)), uhw(make([]byte, 16)), uhwOut(make([]byte, 16)))...)
	}
	wantErrno(t, "rate limit", modify(abi.UverbsExModifyQP{RateLimit: 1}), request.EOPNOTSUPP)
	c.must("INIT", modify(abi.UverbsExModifyQP{Base: abi.UverbsModifyQP{AttrMask: initMask, QPState: stateInit, PortNum: 1}}))
	if p.state() != stateInit {
		t.Errorf("state %d", p.state())
	}
	s := c.srq(8)
	b := make([]byte, abi.SizeofUverbsQuerySRQResp)
	r := abi.UverbsQuerySRQ{SRQHandle: s.handle}
	c.must("limit", s.limit(3))
	c.must("QUERY_SRQ", ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_QUERY_SRQ, core(r.Bytes()), coreOut(b))...))
	if ne.Uint32(b) != 7 || ne.Uint32(b[4:]) != 3 || ne.Uint32(b[8:]) != 0 {
		// The queue is empty: the event of the limit came at once and disarmed it.
		t.Errorf("SRQ %x", b)
	}
	c.wantAsync(s.user, 15)
	wantErrno(t, "limit beyond the size", s.limit(8), request.EINVAL)
}

// Addresses that this process has not are errors.
func TestLocalFaults(t *testing.T) {
	var mem model.Local
	b := make([]byte, 8)
	for _, addr := range []uint64{0, 8, 1<<64 - 4} {
		if mem.Read(addr, b) == nil || mem.Write(addr, b) == nil || mem.Publish(addr, b) == nil {
			t.Errorf("address %#x was touched", addr)
		}
		if _, err := mem.Load32(addr); err == nil {
			t.Errorf("address %#x was loaded", addr)
		}
	}
	p := pages(t, 4096)
	if mem.Publish(at(p)+1, b) == nil || mem.Publish(at(p), b[:3]) == nil {
		t.Error("a crooked word was published")
	}
	if err := mem.Write(at(p)+3, []byte("crooked")); err != nil || string(p[3:10]) != "crooked" {
		t.Errorf("%q: %v", p[:12], err)
	}
}
