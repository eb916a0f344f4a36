package uverbs_test

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// opsAccess is all that a peer may be allowed on ordinary memory by any kernel.
const opsAccess = allAccess | uverbs.RemoteAtomic | uverbs.MWBind

// newOpsPair is a pair of the given transport whose peers may do everything that
// the device knows.
func newOpsPair(t testing.TB, typ uverbs.QPType) *pair {
	t.Helper()
	p := &pair{dev: guestDevice(t)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	region, peer := opsAccess, uverbs.RemoteWrite|uverbs.RemoteRead|uverbs.RemoteAtomic
	if p.dev.Attr().Caps&uverbs.CapFlushGlobal != 0 {
		region |= uverbs.FlushGlobal
		peer |= uverbs.FlushGlobal
	}
	var err error
	p.pd, err = p.dev.NewPD()
	must(err)
	p.mem, err = uverbs.Alloc(pairMemory, nil)
	must(err)
	p.mr, err = p.pd.Register(p.mem.Bytes(), region)
	must(err)
	p.q, err = p.dev.NewCQ(256, nil)
	must(err)
	opts := &uverbs.QPOptions{CQ: p.q, SendDepth: 32, RecvDepth: 32, SendSGE: 4, RecvSGE: 4, Inline: 64, PeerAccess: peer}
	p.a, err = p.pd.NewQP(typ, opts)
	must(err)
	p.b, err = p.pd.NewQP(typ, opts)
	must(err)
	p.connect(t)
	return p
}

// flush posts what is staged at one end and waits for n completions.
func (p *pair) flush(t testing.TB, qp *uverbs.QP, n int) []uverbs.WC {
	t.Helper()
	if err := qp.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	return p.wait(t, n)
}

// one posts what is staged at one end, and checks the one completion of it.
func (p *pair) one(t testing.TB, qp *uverbs.QP, want uverbs.WC) {
	t.Helper()
	want.QPN = qp.QPN()
	want = factsOf(t, p.dev).wc(want)
	if w := p.flush(t, qp, 1)[0]; w != want {
		t.Errorf("completion\n got %+v\nwant %+v", w, want)
	}
}

func TestGuestAtomics(t *testing.T) {
	p := newOpsPair(t, uverbs.RC)
	sq, region := p.a.SendQueue(), p.peer.Regions[0]
	const old, place = 64, 512 << 10
	result, target := p.mem.Uint64(old), p.mem.Uint64(place)
	for _, test := range []struct {
		name          string
		post          func()
		op            uverbs.Opcode
		before, after uint64
	}{
		{"compare and swap", func() { sq.CompareSwap(1, p.mr.Span(old, 8), region.At(place), 5, 0x0102030405060708) }, uverbs.OpCompareSwap, 5, 0x0102030405060708},
		{"compare and swap, another value", func() { sq.CompareSwap(1, p.mr.Span(old, 8), region.At(place), 5, 7) }, uverbs.OpCompareSwap, 6, 6},
		{"fetch and add", func() { sq.FetchAdd(1, p.mr.Span(old, 8), region.At(place), 1<<40) }, uverbs.OpFetchAdd, 3, 1<<40 + 3},
		{"fetch and add, around", func() { sq.FetchAdd(1, p.mr.Span(old, 8), region.At(place), ^uint64(0)) }, uverbs.OpFetchAdd, 0, ^uint64(0)},
	} {
		t.Run(test.name, func(t *testing.T) {
			target.Store(test.before)
			result.Store(99)
			test.post()
			p.one(t, p.a, uverbs.WC{ID: 1, Bytes: 8, Opcode: test.op})
			if got := result.Load(); got != test.before {
				t.Errorf("it says %#x was there, not %#x", got, test.before)
			}
			if got := target.Load(); got != test.after {
				t.Errorf("%#x is there, want %#x", got, test.after)
			}
		})
	}
	// Many in flight, and fenced: none is lost.
	target.Store(0)
	for i := range uint64(20) {
		sq.FetchAdd(i, p.mr.Span(4096+8*int(i), 8), region.At(place), 3)
	}
	sq.Send(20, p.mr.Span(4096, 160), uverbs.Fence)
	p.b.RecvQueue().Recv(21, p.mr.Span(8192, 160))
	if err := p.b.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	p.flush(t, p.a, 22)
	if got := target.Load(); got != 60 {
		t.Errorf("20 times 3 is %d", got)
	}
	for i := range 20 {
		if got := p.mem.Uint64(8192 + 8*i).Load(); got != uint64(3*i) {
			t.Errorf("addition %d found %d when it was fenced, want %d", i, got, 3*i)
		}
	}
}

// What the device does not have is refused when posted; what it has works.
func TestGuestAtomicWrite(t *testing.T) {
	p := newOpsPair(t, uverbs.RC)
	const place = 512 << 10
	p.a.SendQueue().AtomicWrite(1, p.peer.Regions[0].At(place), 0x1122334455667788)
	if p.dev.Attr().Caps&uverbs.CapAtomicWrite == 0 {
		if err := p.a.SendQueue().Flush(); !errors.Is(err, uverbs.ErrNotSupported) {
			t.Errorf("without the device's support: %v", err)
		}
		if factsOf(t, p.dev) == &softRoCE {
			t.Skip("needs kernel >= 6.2: atomic write")
		}
		return
	}
	p.one(t, p.a, uverbs.WC{ID: 1, Bytes: 8, Opcode: uverbs.OpAtomicWrite})
	if got := p.mem.Uint64(place).Load(); got != 0x1122334455667788 {
		t.Errorf("%#x was written", got)
	}
	if got := p.mem.Uint64(place + 8).Load(); got != 0 {
		t.Errorf("%#x was written behind it", got)
	}
}

func TestGuestRemoteFlush(t *testing.T) {
	p := newOpsPair(t, uverbs.RC)
	sq, region := p.a.SendQueue(), p.peer.Regions[0]
	copy(p.mem.Bytes(), "flushed")
	sq.Write(1, region.At(512<<10), p.mr.Span(0, 7), uverbs.Unsignaled)
	sq.RemoteFlush(2, region.At(512<<10), 7, uverbs.FlushGlobal)
	if p.dev.Attr().Caps&uverbs.CapFlushGlobal == 0 {
		if err := sq.Flush(); !errors.Is(err, uverbs.ErrNotSupported) {
			t.Errorf("without the device's support: %v", err)
		}
		if _, err := p.pd.Register(p.mem.Bytes(), uverbs.FlushGlobal); !errors.Is(err, uverbs.ErrNotSupported) {
			t.Errorf("a region to flush, without the device's support: %v", err)
		}
		if factsOf(t, p.dev) == &softRoCE {
			t.Skip("needs kernel >= 6.2: flush")
		}
		return
	}
	p.one(t, p.a, uverbs.WC{ID: 2, Bytes: 7, Opcode: uverbs.OpFlush})
	if got := p.mem.Bytes()[512<<10:][:7]; string(got) != "flushed" {
		t.Errorf("the write before the flush left %q", got)
	}
	sq.RemoteFlushRegion(3, region, uverbs.FlushGlobal)
	p.one(t, p.a, uverbs.WC{ID: 3, Opcode: uverbs.OpFlush})
	// Ordinary memory does not persist, and soft-RoCE knows.
	if mr, err := p.pd.Register(p.mem.Bytes(), uverbs.FlushPersistent); err == nil {
		t.Error("ordinary memory was registered as persistent")
		mr.Close()
	}
	sq.RemoteFlush(4, region.At(0), 7, uverbs.FlushPersistent)
	p.one(t, p.a, uverbs.WC{ID: 4, Status: cq.StatusRemoteInvalidReq})
}

func newWindow(t *testing.T, p *pair) *uverbs.MW {
	t.Helper()
	mw, err := p.pd.NewMW()
	if p.dev.Attr().Caps&uverbs.CapMemWindowType2B == 0 {
		if !errors.Is(err, uverbs.ErrNotSupported) {
			t.Errorf("without the device's support: %v", err)
		}
		t.Skip("needs kernel >= 5.14: memory windows")
	}
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

// A window's whole life: bound, used, invalidated by the peer, bound again with
// another key, invalidated locally.
func TestGuestWindow(t *testing.T) {
	p := newOpsPair(t, uverbs.RC)
	buf := p.mem.Bytes()
	sq := p.a.SendQueue()
	mw := newWindow(t, p)
	const at = 512 << 10
	opened := p.b.SendQueue().BindMW(1, mw, p.mr.Span(at, 4096), uverbs.RemoteWrite|uverbs.RemoteRead|uverbs.RemoteAtomic)
	p.one(t, p.b, uverbs.WC{ID: 1, Opcode: uverbs.OpBindMW})
	if opened.RKey != mw.RKey() || opened.RKey == p.mr.RKey() || opened.Length != 4096 {
		t.Errorf("the window is %+v, its key %#x", opened, mw.RKey())
	}
	copy(buf, "through the window")
	sq.Write(2, opened.At(8), p.mr.Span(0, 18))
	p.one(t, p.a, uverbs.WC{ID: 2, Bytes: 18, Opcode: uverbs.OpWrite})
	if got := buf[at+8:][:18]; !bytes.Equal(got, buf[:18]) {
		t.Errorf("%q was written", got)
	}
	sq.Read(3, p.mr.Span(4096, 18), opened.At(8))
	p.one(t, p.a, uverbs.WC{ID: 3, Bytes: 18, Opcode: uverbs.OpRead})
	if got := buf[4096:][:18]; !bytes.Equal(got, buf[:18]) {
		t.Errorf("%q was read", got)
	}
	sq.FetchAdd(4, p.mr.Span(8192, 8), opened.At(0), 5)
	p.one(t, p.a, uverbs.WC{ID: 4, Bytes: 8, Opcode: uverbs.OpFetchAdd})

	// The region cannot go while the window is open, nor the queue pair.
	if err := p.mr.Close(); !errors.Is(err, uverbs.ErrInUse) {
		t.Errorf("close of a region with a window: %v", err)
	}
	if err := p.b.Close(); !errors.Is(err, uverbs.ErrInUse) {
		t.Errorf("close of a queue pair with a window: %v", err)
	}

	// The peer gives the key back with its message.
	p.b.RecvQueue().Recv(5, p.mr.Span(16384, 100))
	if err := p.b.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	sq.SendInvalidate(6, opened.RKey, p.mr.Span(0, 18))
	wcs := p.flush(t, p.a, 2)
	if s, want := find(t, wcs, uverbs.SendSide), (uverbs.WC{ID: 6, QPN: p.a.QPN(), Bytes: 18, Opcode: uverbs.OpSendInvalidate}); s != want {
		t.Errorf("send completion\n got %+v\nwant %+v", s, want)
	}
	want := uverbs.WC{ID: 5, QPN: p.b.QPN(), Bytes: 18, Opcode: uverbs.OpRecv, Side: uverbs.RecvSide}
	want.SetInvalidatedRKey(opened.RKey)
	if r := find(t, wcs, uverbs.RecvSide); r != want {
		t.Errorf("receive completion\n got %+v\nwant %+v", r, want)
	}

	// An invalidation of a window that is not bound would crash the kernel.
	p.b.SendQueue().LocalInvalidate(7, mw)
	if err := p.b.SendQueue().Flush(); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("a second invalidation: %v", err)
	}

	again := p.b.SendQueue().BindMW(7, mw, p.mr.Span(at, 64), uverbs.RemoteWrite)
	p.one(t, p.b, uverbs.WC{ID: 7, Opcode: uverbs.OpBindMW})
	if again.RKey == opened.RKey || again.RKey>>8 != opened.RKey>>8 {
		t.Errorf("keys %#x, then %#x", opened.RKey, again.RKey)
	}
	p.b.SendQueue().BindMW(7, mw, p.mr.Span(at, 64), uverbs.RemoteWrite)
	if err := p.b.SendQueue().Flush(); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("a second bind: %v", err)
	}
	if mw.RKey() != again.RKey {
		t.Errorf("a refused bind changed the key from %#x to %#x", again.RKey, mw.RKey())
	}
	p.b.SendQueue().LocalInvalidate(8, mw, uverbs.Fence)
	p.one(t, p.b, uverbs.WC{ID: 8, Opcode: uverbs.OpLocalInvalidate})

	// Now nobody can use it.
	sq.Write(9, again.At(0), p.mr.Span(0, 8))
	p.one(t, p.a, uverbs.WC{ID: 9, Status: uverbs.StatusRemoteAccess})
	if err := mw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mw.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	for _, c := range []interface{ Close() error }{p.b, p.a, p.mr} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Each of these is one error, and both queue pairs are lost to it.
func TestGuestWindowErrors(t *testing.T) {
	for _, test := range []struct {
		name string
		// do posts at an end of the pair and returns it.
		do   func(p *pair, mw *uverbs.MW, opened uverbs.Remote) *uverbs.QP
		want uverbs.Status // of the request that fails
	}{
		{"write through a window to read", func(p *pair, _ *uverbs.MW, opened uverbs.Remote) *uverbs.QP {
			p.a.SendQueue().Write(9, opened.At(0), p.mr.Span(0, 8))
			return p.a
		}, uverbs.StatusRemoteAccess},
		{"a window of another queue pair", func(p *pair, _ *uverbs.MW, opened uverbs.Remote) *uverbs.QP {
			p.b.SendQueue().Read(9, p.mr.Span(0, 8), opened.At(0)) // b's own
			return p.b
		}, uverbs.StatusRemoteAccess},
		{"a key from before", func(p *pair, mw *uverbs.MW, opened uverbs.Remote) *uverbs.QP {
			p.b.SendQueue().LocalInvalidate(2, mw)
			p.b.SendQueue().BindMW(3, mw, p.mr.Span(4096, 4096), uverbs.RemoteRead)
			p.flush(t, p.b, 2)
			p.a.SendQueue().Read(9, p.mr.Span(0, 8), opened.At(0))
			return p.a
		}, uverbs.StatusRemoteAccess},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newOpsPair(t, uverbs.RC)
			mw := newWindow(t, p)
			opened := p.b.SendQueue().BindMW(1, mw, p.mr.Span(4096, 4096), uverbs.RemoteRead)
			p.one(t, p.b, uverbs.WC{ID: 1, Opcode: uverbs.OpBindMW})
			qp := test.do(p, mw, opened)
			p.one(t, qp, uverbs.WC{ID: 9, Status: test.want})
			// Whatever happened, everything closes, and at once: soft-RoCE
			// takes 50 seconds over a queue pair with a bound window.
			start := time.Now()
			if err := p.dev.Close(); err != nil {
				t.Error(err)
			}
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("closing took %v", d)
			}
		})
	}
}

// Soft-RoCE, named in the documentation of MW, lets peers use the whole region
// through a window.
func TestGuestWindowBounds(t *testing.T) {
	p := newOpsPair(t, uverbs.RC)
	mw := newWindow(t, p)
	opened := p.b.SendQueue().BindMW(1, mw, p.mr.Span(4096, 4096), uverbs.RemoteRead)
	p.one(t, p.b, uverbs.WC{ID: 1, Opcode: uverbs.OpBindMW})
	opened.Length *= 2
	p.a.SendQueue().Read(2, p.mr.Span(0, 8), opened.At(4096))
	want := uverbs.WC{ID: 2, Status: uverbs.StatusRemoteAccess}
	if factsOf(t, p.dev).wholeWindow {
		want = uverbs.WC{ID: 2, Bytes: 8, Opcode: uverbs.OpRead}
	}
	p.one(t, p.a, want)
}

// Rights that a peer does not have.
func TestGuestAtomicErrors(t *testing.T) {
	for _, test := range []struct {
		name string
		peer uverbs.Access
		mr   uverbs.Access
		want uverbs.Status
	}{
		{"queue pair without RemoteAtomic", uverbs.RemoteWrite, opsAccess, cq.StatusRemoteInvalidReq},
		{"region without RemoteAtomic", uverbs.RemoteAtomic, allAccess, uverbs.StatusRemoteAccess},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newOpsPair(t, uverbs.RC)
			opts := &uverbs.QPOptions{CQ: p.q, PeerAccess: test.peer}
			var err error
			if p.a, err = p.pd.NewQP(uverbs.RC, opts); err != nil {
				t.Fatal(err)
			}
			if p.b, err = p.pd.NewQP(uverbs.RC, opts); err != nil {
				t.Fatal(err)
			}
			if p.mr, err = p.pd.Register(p.mem.Bytes(), test.mr); err != nil {
				t.Fatal(err)
			}
			p.connect(t)
			p.a.SendQueue().FetchAdd(1, p.mr.Span(0, 8), p.peer.Regions[0].At(64), 1)
			want := test.want
			if p.dev.Attr().Caps&uverbs.CapMemWindowType2B == 0 {
				// Linux 5.10's responder goes to ERR without an answer.
				want = uverbs.StatusRetryExceeded
			}
			p.one(t, p.a, uverbs.WC{ID: 1, Status: want})
			if got := p.mem.Uint64(64).Load(); got != 0 {
				t.Errorf("it was added nevertheless: %d", got)
			}
		})
	}
}
