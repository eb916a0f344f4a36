package model_test

import (
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

func (c *client) mw(typ uint8) (rkey, handle uint32) {
	c.t.Helper()
	b := make([]byte, abi.SizeofUverbsAllocMWResp)
	r := abi.UverbsAllocMW{PDHandle: c.pd, MWType: typ}
	c.must("ALLOC_MW", ioctl(c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_ALLOC_MW, core(r.Bytes()), coreOut(b), uhw(make([]byte, 8)), uhwOut(make([]byte, 8)))...))
	return ne.Uint32(b[4:]), ne.Uint32(b)
}

// binding are the segments of a UMR that opens a part of a region through a window.
func (q *pair) binding(typ uint8, newKey uint32, r *region, off, n int, access uint8) (control, context, klm []byte) {
	control, context, klm = make([]byte, 48), make([]byte, 64), make([]byte, 64)
	control[0] = 0xb0
	mask := uint64(0x203c6041)
	word := q.qpn<<8 | newKey&0xff
	if typ == 1 {
		control[0], mask, word = 0x90, 0x203c2041, 0xffffff00|newKey&0xff
	}
	be.PutUint16(control[4:], 4)
	be.PutUint64(control[8:], mask)
	context[2] = access
	be.PutUint32(context[4:], word)
	be.PutUint64(context[16:], r.addr+uint64(off))
	be.PutUint64(context[24:], uint64(n))
	copy(klm, sge(r, off, n))
	return control, context, klm
}

// bind posts it.
func (q *pair) bind(typ uint8, rkey, newKey uint32, r *region, off, n int, access uint8) uint16 {
	control, context, klm := q.binding(typ, newKey, r, off, n, access)
	return q.post(opUMR, signaled, rkey, control, context, klm)
}

// unbind is a UMR that invalidates a window.
func (q *pair) unbind(rkey uint32) uint16 {
	control := make([]byte, 48)
	context := make([]byte, 64)
	control[0] = 0x98
	be.PutUint64(control[8:], 0x20006000)
	context[0] = 0x40
	be.PutUint32(context[4:], 0xffffff00)
	return q.post(opUMR, signaled, rkey, control, context)
}

const (
	umrRead  = 0x10
	umrWrite = 0x20
)

func TestWindows(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	big := w.b.mr(1<<14, localWrite|mwBind)
	rkey, handle := w.b.mw(2)
	use := func(key uint32, off int) cqe {
		t.Helper()
		w.qa.post(opWrite, signaled, 0, raddr(&region{addr: big.addr, key: key}, off), sge(w.ma, 0, 8))
		return w.qa.scq.one()
	}
	key := rkey | 5
	checkSend(t, w.qb, opUMR, w.qb.bind(2, rkey, key, big, 100, 50, umrWrite), 0)
	copy(w.ma.b, "windowed")
	if c := use(key, 120); c.opcode != 0 || string(big.b[120:128]) != "windowed" {
		t.Fatalf("completion %+v, data %q", c, big.b[120:128])
	}
	// The region cannot go while a window is open.
	dereg := func() error {
		return ioctl(w.b.f, abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_MR_DESTROY, object(abi.UVERBS_ATTR_DESTROY_MR_HANDLE, big.handle))
	}
	wantErrno(t, "dereg below a window", dereg(), request.EBUSY)
	// The peer can close it with a message.
	r := w.qb.recv()
	w.qa.post(opSendInv, signaled, key)
	checkRecv(t, w.qb, w.qa, 4, r, 0, key)
	w.qa.scq.one()
	checkSend(t, w.qb, opUMR, w.qb.bind(2, rkey, rkey|6, big, 0, 1<<14, umrWrite|umrRead), 0)
	// And so can its owner.
	checkSend(t, w.qb, opUMR, w.qb.unbind(rkey|6), 0)
	w.b.must("dereg", dereg())
	if c := use(rkey|6, 0); c.syndrome != 0x13 {
		t.Errorf("a closed window: %+v", c)
	}
	w.b.must("dealloc", ioctl(w.b.f, abi.UVERBS_OBJECT_MW, abi.UVERBS_METHOD_MW_DESTROY, object(abi.UVERBS_ATTR_DESTROY_MW_HANDLE, handle)))
	noViolations(t, w.m)
}

func TestWindowErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *two, big *region, rkey uint32)
		peer bool // the peer's use fails, not the binding
	}{
		{"beyond the region", func(w *two, big *region, rkey uint32) { w.qb.bind(2, rkey, rkey|1, big, 0, 1<<14+1, umrWrite) }, false},
		{"a region without the right", func(w *two, big *region, rkey uint32) { w.qb.bind(2, rkey, rkey|1, w.mb, 0, 8, umrWrite) }, false},
		{"more than the region", func(w *two, big *region, rkey uint32) {
			w.qb.bind(2, rkey, rkey|1, w.b.mr(4096, mwBind), 0, 8, umrWrite)
		}, false},
		{"no window", func(w *two, big *region, rkey uint32) { w.qb.bind(2, big.key, 1, big, 0, 8, umrWrite) }, false},
		{"type 1 as type 2", func(w *two, big *region, rkey uint32) {
			k, _ := w.b.mw(1)
			w.qb.bind(2, k, k|1, big, 0, 8, umrWrite)
		}, false},
		{"bound twice", func(w *two, big *region, rkey uint32) {
			checkSend(w.a.t, w.qb, opUMR, w.qb.bind(2, rkey, rkey|1, big, 0, 8, umrWrite), 0)
			w.qb.bind(2, rkey, rkey|2, big, 0, 8, umrWrite)
		}, false},
		{"for another queue pair", func(w *two, big *region, rkey uint32) {
			q := *w.qb
			q.qpn++
			control, context, klm := q.binding(2, rkey|1, big, 0, 8, umrWrite)
			w.qb.post(opUMR, signaled, rkey, control, context, klm)
		}, false},
		{"invalidated with an old key", func(w *two, big *region, rkey uint32) {
			checkSend(w.a.t, w.qb, opUMR, w.qb.bind(2, rkey, rkey|1, big, 0, 8, umrWrite), 0)
			w.qb.unbind(rkey)
		}, false},
		{"used beyond", func(w *two, big *region, rkey uint32) {
			w.qb.bind(2, rkey, rkey|1, big, 100, 8, umrWrite)
			w.qa.post(opWrite, 0, 0, raddr(&region{addr: big.addr, key: rkey | 1}, 101), sge(w.ma, 0, 8))
		}, true},
		{"used for more", func(w *two, big *region, rkey uint32) {
			w.qb.bind(2, rkey, rkey|1, big, 100, 8, umrWrite)
			w.qa.post(opRead, 0, 0, raddr(&region{addr: big.addr, key: rkey | 1}, 100), sge(w.ma, 0, 8))
		}, true},
		{"through another queue pair", func(w *two, big *region, rkey uint32) {
			q := w.b.qp(rc, w.qb.scq, w.qb.rcq, qpOptions{})
			p := w.b.qp(rc, w.qb.scq, w.qb.rcq, qpOptions{})
			connect(p, q, usual)
			q.bind(2, rkey, rkey|1, big, 0, 8, umrWrite)
			w.qa.post(opWrite, 0, 0, raddr(&region{addr: big.addr, key: rkey | 1}, 0), sge(w.ma, 0, 8))
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
			w.a.t = t
			big := w.b.mr(1<<14, localWrite|mwBind)
			rkey, _ := w.b.mw(2)
			c.do(w, big, rkey)
			if c.peer {
				if got := w.qa.scq.one(); got.syndrome != 0x13 || got.vendor != 0x88 {
					t.Errorf("completion %+v", got)
				}
				return
			}
			if got := w.qb.scq.one(); got.syndrome != 0x06 {
				t.Errorf("completion %+v", got)
			}
		})
	}
}

// A window of type 1 is any queue pair's, and binding it anew replaces what it was.
func TestWindowType1(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	big := w.b.mr(1<<14, localWrite|mwBind)
	rkey, _ := w.b.mw(1)
	for i := range uint32(3) {
		key := rkey | (i + 1)
		checkSend(t, w.qb, opUMR, w.qb.bind(1, rkey, key, big, int(i)*8, 8, umrRead), 0)
		copy(big.b[i*8:], "type one")
		checkSend(t, w.qa, opRead, w.qa.post(opRead, signaled, 0, raddr(&region{addr: big.addr, key: key}, int(i)*8), sge(w.ma, 0, 8)), 8)
		if string(w.ma.b[:8]) != "type one" {
			t.Errorf("data %q", w.ma.b[:8])
		}
	}
	noViolations(t, w.m)
}
