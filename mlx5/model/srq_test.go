package model_test

import (
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5/model"
)

// shared is a shared receive queue of the client.
type shared struct {
	c       *client
	b, db   []byte
	handle  uint32
	srqn    uint32
	entries uint32
	posted  uint16
	user    uint64
}

const sharedStride = 64

// srq makes a shared receive queue of n entries, a power of two, for three data pointers.
// Entry i is followed by (i*5+3)%n: the order is the list's, not the memory's.
func (c *client) srq(n uint32) *shared {
	c.t.Helper()
	s := &shared{c: c, b: pages(c.t, int(n*sharedStride)), db: pages(c.t, 8), entries: n, user: 0x5a5a}
	u := abi.MLX5IBCreateSRQ{BufAddr: at(s.b), DBAddr: at(s.db)}
	var h uint64
	number := make([]byte, 4)
	c.must("SRQ CREATE", ioctl(c.f, abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_CREATE,
		fresh(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE, &h), object(abi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, c.pd),
		in(abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, u64(s.user)), in(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, u32(n-1)), in(abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE, u32(3)),
		in(abi.UVERBS_ATTR_CREATE_SRQ_LIMIT, u32(0)), in(abi.UVERBS_ATTR_CREATE_SRQ_TYPE, u64(0)),
		out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, make([]byte, 4)), out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, make([]byte, 4)),
		out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, number), uhw(u.Bytes()), uhwOut(make([]byte, 8))))
	s.handle, s.srqn = uint32(h), ne.Uint32(number)
	return s
}

// entry is the n-th of the list.
func (s *shared) entry(n uint16) (e uint32) {
	for range uint32(n) % s.entries {
		e = (e*5 + 3) % s.entries
	}
	return e
}

func (s *shared) recv(segments ...[]byte) (index uint16) {
	e := s.entry(s.posted)
	b := s.b[e*sharedStride:][:sharedStride]
	clear(b)
	be.PutUint16(b[2:], uint16(s.entry(s.posted+1)))
	n := 16
	for _, g := range segments {
		n += copy(b[n:], g)
	}
	if n < len(b) {
		be.PutUint32(b[n+4:], 0x100)
	}
	s.posted++
	store(s.db, uint32(s.posted))
	return uint16(e)
}

func (s *shared) limit(n uint32) error {
	m := abi.UverbsModifySRQ{SRQHandle: s.handle, AttrMask: 2, SRQLimit: n}
	return ioctl(s.c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_MODIFY_SRQ, core(m.Bytes()))...)
}

func TestSRQ(t *testing.T) {
	for _, v0 := range []bool{false, true} {
		m := newModel(t, model.DeviceConfig{Name: "sim0", CQEVersion0: v0})
		c := open(t, m, "sim0")
		cq, rq := c.cq(256, cqOptions{}), c.cq(256, cqOptions{})
		s := c.srq(8)
		mr := c.mr(4096, allAccess)
		a1, a3 := c.qp(rc, cq, cq, qpOptions{}), c.qp(uc, cq, cq, qpOptions{})
		b1, b2 := c.qp(rc, rq, rq, qpOptions{srq: s}), c.qp(uc, rq, rq, qpOptions{srq: s})
		connect(a1, b1, usual)
		connect(a3, b2, usual)
		for range 50 {
			i1, i2 := s.recv(sge(mr, 0, 64)), s.recv(sge(mr, 64, 64))
			a1.post(opSend, signaled, 0, inline("one"))
			a3.post(opSend, signaled, 0, inline("two"))
			r1, r2 := rq.one(), rq.one()
			if r1.counter != i1 || r1.qpn != b1.qpn || r2.counter != i2 || r2.qpn != b2.qpn {
				t.Fatalf("receives %d of %#x and %d of %#x, want %d of %#x, %d of %#x", r1.counter, r1.qpn, r2.counter, r2.qpn, i1, b1.qpn, i2, b2.qpn)
			}
			want := b1.uidx
			if v0 {
				want = s.srqn
			}
			if r1.uidx != want {
				t.Fatalf("srqn_uidx %#x, want %#x", r1.uidx, want)
			}
			cq.all()
		}
		if string(mr.b[:3])+string(mr.b[64:67]) != "onetwo" {
			t.Errorf("data %q", mr.b[:70])
		}
		// The limit: an event when fewer are left, once.
		for range 4 {
			s.recv(sge(mr, 0, 64))
		}
		if err := s.limit(3); err != nil {
			t.Fatal(err)
		}
		a1.post(opSend, signaled, 0)
		if _, _, ok := c.asyncEvent(); ok {
			t.Fatal("an event with three left")
		}
		a1.post(opSend, signaled, 0)
		c.wantAsync(s.user, 15)
		a1.post(opSend, signaled, 0)
		if _, _, ok := c.asyncEvent(); ok {
			t.Fatal("a second event")
		}
		// A queue pair in error leaves the shared receives alone, and says so.
		cq.all()
		rq.all()
		b1.to(stateErr)
		c.wantAsync(b1.user, 16)
		rq.none()
		if err := ioctl(c.f, abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_DESTROY, object(abi.UVERBS_ATTR_DESTROY_SRQ_HANDLE, s.handle), out(abi.UVERBS_ATTR_DESTROY_SRQ_RESP, make([]byte, 4))); err == nil {
			t.Error("an SRQ was destroyed below its queue pairs")
		}
		noViolations(t, m)
	}
}

// A list that leads out of the queue breaks it.
func TestSRQBrokenList(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	c := open(t, m, "sim0")
	cq := c.cq(64, cqOptions{})
	s := c.srq(4)
	a, b := c.qp(rc, cq, cq, qpOptions{}), c.qp(rc, cq, cq, qpOptions{srq: s})
	connect(a, b, usual)
	s.recv()
	be.PutUint16(s.b[2:], 4)
	a.post(opSend, signaled, 0)
	if got := len(cq.all()); got != 2 {
		t.Errorf("%d completions", got)
	}
	c.wantAsync(s.user, 14)
	if len(m.Violations()) != 1 {
		t.Errorf("violations %q", m.Violations())
	}
}
