package uverbs

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// newOpsRig is a rig whose queue pairs are of the given type, and whose peers may
// do all that the device knows.
func newOpsRig(t testing.TB, typ QPType, d fakekernel.Device) *rig {
	t.Helper()
	r := &rig{k: fakekernel.New(d)}
	if err := r.openOps(typ); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.close(t)
		r.clean(t)
	})
	return r
}

func (r *rig) openOps(typ QPType) (err error) {
	if r.dev, err = on(r.k).open("rxe0", nil); err != nil {
		return err
	}
	if r.pd, err = r.dev.NewPD(); err != nil {
		return err
	}
	if r.mem, err = allocOn(r.k, 1<<16, nil); err != nil {
		return err
	}
	peer := remoteAccess
	if r.dev.Attr().Caps&CapFlushGlobal != 0 {
		peer |= FlushGlobal
	}
	if r.mr, err = r.pd.Register(r.mem.Bytes(), LocalWrite|MWBind|peer); err != nil {
		return err
	}
	if r.sendQ, err = r.dev.NewCQ(64, nil); err != nil {
		return err
	}
	if r.recvQ, err = r.dev.NewCQ(64, nil); err != nil {
		return err
	}
	opts := &QPOptions{SendCQ: r.sendQ, RecvCQ: r.recvQ, SendSGE: 4, Inline: 64, PeerAccess: peer}
	if r.a, err = r.pd.NewQP(typ, opts); err != nil {
		return err
	}
	if r.b, err = r.pd.NewQP(typ, opts); err != nil {
		return err
	}
	return r.connect()
}

// sent posts what is staged at one end and checks the one completion of it.
func (r *rig) sent(t testing.TB, qp *QP, want WC) {
	t.Helper()
	if err := qp.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	want.QPN = qp.QPN()
	if w := wait(t, r.sendQ, 1)[0]; w != want {
		t.Errorf("completion\n got %+v\nwant %+v", w, want)
	}
}

func TestAtomics(t *testing.T) {
	r := newOpsRig(t, RC, fakekernel.Device{Linux62: true})
	sq, region := r.a.SendQueue(), r.peer.Regions[0]
	was, target := r.mem.Uint64(0), r.mem.Uint64(4096)
	for name, test := range map[string]struct {
		post          func()
		op            Opcode
		before, after uint64
	}{
		"swap":         {func() { sq.CompareSwap(1, r.mr.Span(0, 8), region.At(4096), 5, 1<<63) }, OpCompareSwap, 5, 1 << 63},
		"swap nothing": {func() { sq.CompareSwap(1, r.mr.Span(0, 8), region.At(4096), 5, 7) }, OpCompareSwap, 4, 4},
		"add":          {func() { sq.FetchAdd(1, r.mr.Span(0, 8), region.At(4096), 1<<40) }, OpFetchAdd, 2, 1<<40 + 2},
		"subtract":     {func() { sq.FetchAdd(1, r.mr.Span(0, 8), region.At(4096), ^uint64(0)) }, OpFetchAdd, 3, 2},
	} {
		target.Store(test.before)
		was.Store(99)
		test.post()
		r.sent(t, r.a, WC{ID: 1, Bytes: 8, Opcode: test.op})
		if was.Load() != test.before || target.Load() != test.after {
			t.Errorf("%s: %d was there, now %d; want %d and %d", name, was.Load(), target.Load(), test.before, test.after)
		}
	}
	sq.AtomicWrite(2, region.At(4096), 0x0123456789abcdef)
	r.sent(t, r.a, WC{ID: 2, Bytes: 8, Opcode: OpAtomicWrite})
	if target.Load() != 0x0123456789abcdef {
		t.Errorf("%#x was written", target.Load())
	}
	sq.RemoteFlush(3, region.At(4096), 100, FlushGlobal)
	r.sent(t, r.a, WC{ID: 3, Bytes: 100, Opcode: OpFlush})
	sq.RemoteFlushRegion(4, region, FlushGlobal)
	r.sent(t, r.a, WC{ID: 4, Opcode: OpFlush})
	// The peer's queue pair does not allow this one.
	sq.RemoteFlush(5, region.At(0), 8, FlushPersistent|FlushGlobal)
	r.sent(t, r.a, WC{ID: 5, Status: cq.StatusRemoteInvalidReq})
}

// A window is bound, used, invalidated by both sides, and remembers what it is
// through requests that are taken back.
func TestWindow(t *testing.T) {
	r := newOpsRig(t, RC, fakekernel.Device{})
	mw, err := r.pd.NewMW()
	if err != nil {
		t.Fatal(err)
	}
	a, b := r.a.SendQueue(), r.b.SendQueue()
	first := mw.RKey()
	opened := b.BindMW(1, mw, r.mr.Span(4096, 64), RemoteWrite)
	if opened.RKey != mw.RKey() || opened.RKey == first {
		t.Errorf("key %#x, was %#x, of the window %#x", opened.RKey, first, mw.RKey())
	}
	// Taken back, and all is as before.
	b.LocalInvalidate(2, mw)
	b.Send(3, Span{})
	says(t, "a bad request after the bind", b.Flush(), ErrBounds)
	if mw.RKey() != first || mw.bound.Load() {
		t.Errorf("key %#x, bound %v after a bind that was taken back", mw.RKey(), mw.bound.Load())
	}
	opened = b.BindMW(1, mw, r.mr.Span(4096, 64), RemoteWrite)
	r.sent(t, r.b, WC{ID: 1, Opcode: OpBindMW})
	copy(r.mem.Bytes(), "window")
	a.Write(4, opened.At(1), r.mr.Span(0, 6))
	r.sent(t, r.a, WC{ID: 4, Bytes: 6, Opcode: OpWrite})
	if got := string(r.mem.Bytes()[4097:4103]); got != "window" {
		t.Errorf("%q was written", got)
	}
	// An invalidation that is taken back leaves it bound.
	b.LocalInvalidate(2, mw)
	b.Send(3, Span{})
	says(t, "a bad request after the invalidation", b.Flush(), ErrBounds)
	if !mw.bound.Load() {
		t.Error("an invalidation that was taken back counts")
	}
	says(t, "close of its region", r.mr.Close(), ErrInUse, "memory window", "invalidate")
	says(t, "close of its queue pair", r.b.Close(), ErrInUse, "1 MW")

	r.b.RecvQueue().Recv(5, r.mr.Span(8192, 8))
	if err := r.b.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	a.SendInvalidate(6, opened.RKey, r.mr.Span(0, 6))
	r.sent(t, r.a, WC{ID: 6, Bytes: 6, Opcode: OpSendInvalidate})
	want := WC{ID: 5, QPN: r.b.QPN(), Bytes: 6, Opcode: OpRecv, Side: RecvSide}
	want.SetInvalidatedRKey(opened.RKey)
	if w := wait(t, r.recvQ, 1)[0]; w != want {
		t.Errorf("completion\n got %+v\nwant %+v", w, want)
	}
	b.LocalInvalidate(7, mw)
	says(t, "invalidation by both sides", b.Flush(), ErrState, "not bound")

	again := b.BindMW(8, mw, r.mr.Span(0, 8), RemoteRead)
	r.sent(t, r.b, WC{ID: 8, Opcode: OpBindMW})
	b.LocalInvalidate(9, mw)
	r.sent(t, r.b, WC{ID: 9, Opcode: OpLocalInvalidate})
	a.Read(10, r.mr.Span(0, 8), again.At(0))
	r.sent(t, r.a, WC{ID: 10, Status: StatusRemoteAccess})
	if err := mw.Close(); err != nil {
		t.Error(err)
	}
	if err := r.b.Close(); err != nil {
		t.Errorf("close of the queue pair after its window: %v", err)
	}
	says(t, "close twice", mw.Close(), os.ErrClosed)
}

// A device closes its windows first: destroyed with one bound, a queue pair of
// soft-RoCE takes 50 seconds. The fake kernel reports that as a violation.
func TestDeviceCloseWithWindows(t *testing.T) {
	r := newOpsRig(t, UC, fakekernel.Device{})
	for i := range uint64(3) {
		mw, err := r.pd.NewMW()
		if err != nil {
			t.Fatal(err)
		}
		r.b.SendQueue().BindMW(i, mw, r.mr.Span(0, 8), RemoteWrite)
		r.sent(t, r.b, WC{ID: i, Opcode: OpBindMW})
	}
	if err := r.dev.Close(); err != nil {
		t.Error(err)
	}
}

// What the kernel refuses of a window that the library lost track of comes as an
// error completion.
func TestWindowOutOfStep(t *testing.T) {
	r := newOpsRig(t, RC, fakekernel.Device{})
	mw, err := r.pd.NewMW()
	if err != nil {
		t.Fatal(err)
	}
	mw.rkey.Store(mw.RKey() ^ 1) // as after a bind that was flushed
	r.b.SendQueue().BindMW(1, mw, r.mr.Span(0, 8), RemoteRead)
	r.sent(t, r.b, WC{ID: 1, Status: cq.StatusMWBind})
	// The peer's wrong key is the end of the other queue pair, not of its own.
	s := newOpsRig(t, RC, fakekernel.Device{})
	s.b.RecvQueue().Recv(2, s.mr.Span(0, 8))
	if err := s.b.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	s.a.SendQueue().SendInvalidate(3, 0x12345678, s.mr.Span(0, 8))
	s.sent(t, s.a, WC{ID: 3, Bytes: 8, Opcode: OpSendInvalidate})
	if w, want := wait(t, s.recvQ, 1)[0], (WC{ID: 2, QPN: s.b.QPN(), Status: cq.StatusRemoteInvalidReq, Side: RecvSide}); w != want {
		t.Errorf("completion\n got %+v\nwant %+v", w, want)
	}
}

func TestUC(t *testing.T) {
	r := newOpsRig(t, UC, fakekernel.Device{})
	sq, rq, region := r.a.SendQueue(), r.b.RecvQueue(), r.peer.Regions[0]
	copy(r.mem.Bytes(), "unreliable")
	sq.Send(1, r.mr.Span(0, 10)) // nobody receives it
	r.sent(t, r.a, WC{ID: 1, Bytes: 10, Opcode: OpSend})
	lost := region
	lost.RKey++
	sq.Write(2, lost.At(0), r.mr.Span(0, 10)) // nor is there such a key
	r.sent(t, r.a, WC{ID: 2, Bytes: 10, Opcode: OpWrite})
	for i := range uint64(3) {
		rq.Recv(10+i, r.mr.Span(8192+int(i)*4096, 4096))
	}
	if err := rq.Flush(); err != nil {
		t.Fatal(err)
	}
	received := func(want WC) {
		t.Helper()
		want.QPN, want.Side = r.b.QPN(), RecvSide
		if w := wait(t, r.recvQ, 1)[0]; w != want {
			t.Errorf("completion\n got %+v\nwant %+v", w, want)
		}
	}
	sq.SendImm(3, 77, r.mr.Span(0, 3000))
	r.sent(t, r.a, WC{ID: 3, Bytes: 3000, Opcode: OpSendImm})
	w := WC{ID: 10, Bytes: 3000, Opcode: OpRecv}
	w.SetImm(77)
	received(w)
	if got := string(r.mem.Bytes()[8192:8202]); got != "unreliable" {
		t.Errorf("received %q", got)
	}
	sq.SendInline(4, []byte("inline"))
	r.sent(t, r.a, WC{ID: 4, Bytes: 6, Opcode: OpSend})
	received(WC{ID: 11, Bytes: 6, Opcode: OpRecv})
	sq.WriteImm(5, 78, region.At(4096), r.mr.Span(0, 10))
	r.sent(t, r.a, WC{ID: 5, Bytes: 10, Opcode: OpWriteImm})
	w = WC{ID: 12, Bytes: 10, Opcode: OpRecvWriteImm}
	w.SetImm(78)
	received(w)
	if got := string(r.mem.Bytes()[4096:4106]); got != "unreliable" {
		t.Errorf("%q was written", got)
	}
	// A message to a peer that is gone has left, too.
	if err := r.b.Modify(StateErr); err != nil {
		t.Fatal(err)
	}
	sq.Send(6, r.mr.Span(0, 10))
	r.sent(t, r.a, WC{ID: 6, Bytes: 10, Opcode: OpSend})
	// One that is too long ends the receiver, not the sender.
	s := newOpsRig(t, UC, fakekernel.Device{})
	s.b.RecvQueue().Recv(7, s.mr.Span(0, 8))
	if err := s.b.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	s.a.SendQueue().Send(8, s.mr.Span(0, 9))
	s.sent(t, s.a, WC{ID: 8, Bytes: 9, Opcode: OpSend})
	if w, want := wait(t, s.recvQ, 1)[0], (WC{ID: 7, QPN: s.b.QPN(), Status: cq.StatusLocalQPOperation, Side: RecvSide}); w != want {
		t.Errorf("completion\n got %+v\nwant %+v", w, want)
	}
	// Reliable attributes are not for UC, and the error says so.
	qp, err := r.pd.NewQP(UC, &QPOptions{CQ: r.sendQ, SendDepth: 1, RecvDepth: 1})
	if err != nil {
		t.Fatal(err)
	}
	says(t, "RTR with too little", qp.Modify(StateRTR, AttrPathMTU(1024)), syscall.EINVAL, "UC", "receive PSN")
}

// What the library refuses, with the reason; nothing reaches the device.
func TestBadOperations(t *testing.T) {
	r, uc := newOpsRig(t, RC, fakekernel.Device{}), newOpsRig(t, UC, fakekernel.Device{})
	newer := newOpsRig(t, RC, fakekernel.Device{Linux62: true})
	must := func(mw *MW, err error) *MW {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return mw
	}
	mw, closed := must(r.pd.NewMW()), must(r.pd.NewMW())
	closed.Close()
	elsewhere := must(uc.pd.NewMW())
	bound := must(r.pd.NewMW())
	r.b.SendQueue().BindMW(1, bound, r.mr.Span(0, 8), RemoteRead)
	r.sent(t, r.b, WC{ID: 1, Opcode: OpBindMW})
	pd2, err := r.dev.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	alien := must(pd2.NewMW())
	readOnly, err := r.pd.Register(r.mem.Bytes(), MWBind)
	if err != nil {
		t.Fatal(err)
	}
	noBind, err := r.pd.Register(r.mem.Bytes(), LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	sq, region, eight := r.a.SendQueue(), r.peer.Regions[0], r.mr.Span(0, 8)
	us, uRegion := uc.a.SendQueue(), uc.peer.Regions[0]
	ns, nRegion := newer.a.SendQueue(), newer.peer.Regions[0]
	for name, test := range map[string]struct {
		q     *SendQueue
		post  func()
		is    error
		parts []string
	}{
		"atomic, span too short":    {sq, func() { sq.FetchAdd(1, r.mr.Span(0, 4), region.At(0), 1) }, ErrInvalid, []string{"span of 4 bytes", "takes 8"}},
		"atomic, span too long":     {sq, func() { sq.CompareSwap(1, r.mr.Span(0, 16), region.At(0), 1, 2) }, ErrInvalid, []string{"span of 16 bytes"}},
		"atomic, misaligned":        {sq, func() { sq.FetchAdd(1, eight, region.At(4), 1) }, ErrInvalid, []string{"multiple of 8"}},
		"atomic, past the end":      {sq, func() { sq.CompareSwap(1, eight, region.At(1<<16-4), 1, 2) }, ErrBounds, []string{"peer's region"}},
		"atomic, read-only":         {sq, func() { sq.FetchAdd(1, readOnly.Span(0, 8), region.At(0), 1) }, ErrInvalid, []string{"LocalWrite"}},
		"read into read-only":       {sq, func() { sq.ReadV(1, []Span{eight, readOnly.Span(0, 8)}, region.At(0)) }, ErrInvalid, []string{"LocalWrite"}},
		"atomic write, old kernel":  {sq, func() { sq.AtomicWrite(1, region.At(0), 1) }, ErrNotSupported, []string{"atomic write", "rxe0", "Linux 6.2"}},
		"flush, old kernel":         {sq, func() { sq.RemoteFlush(1, region.At(0), 8, FlushGlobal) }, ErrNotSupported, []string{"flush", "Linux 6.2"}},
		"atomic write, misaligned":  {ns, func() { ns.AtomicWrite(1, nRegion.At(1), 1) }, ErrInvalid, []string{"multiple of 8"}},
		"atomic write, past it":     {ns, func() { ns.AtomicWrite(1, nRegion.At(1<<16), 1) }, ErrBounds, []string{"8 bytes at offset 65536"}},
		"flush of a negative range": {ns, func() { ns.RemoteFlush(1, nRegion.At(0), -1, FlushGlobal) }, ErrBounds, []string{"-1 bytes"}},
		"flush past the end":        {ns, func() { ns.RemoteFlush(1, nRegion.At(8), 1<<16, FlushGlobal) }, ErrBounds, []string{"65536 bytes at offset 8"}},
		"flush to nowhere":          {ns, func() { ns.RemoteFlush(1, nRegion.At(0), 8, 0) }, ErrInvalid, []string{"FlushGlobal"}},
		"flush to another right":    {ns, func() { ns.RemoteFlushRegion(1, nRegion, RemoteWrite) }, ErrInvalid, []string{"RemoteWrite", "FlushPersistent"}},
		"UC read":                   {us, func() { us.Read(1, uc.mr.Span(0, 8), uRegion.At(0)) }, ErrInvalid, []string{"read", "UC", "RC"}},
		"UC atomic":                 {us, func() { us.FetchAdd(1, uc.mr.Span(0, 8), uRegion.At(0), 1) }, ErrInvalid, []string{"fetch and add", "UC"}},
		"UC invalidate":             {us, func() { us.SendInvalidate(1, 2, uc.mr.Span(0, 8)) }, ErrInvalid, []string{"send with invalidate", "UC"}},
		"UC local invalidate":       {us, func() { us.LocalInvalidate(1, elsewhere) }, ErrInvalid, []string{"local invalidate", "UC"}},
		"bind nil":                  {sq, func() { sq.BindMW(1, nil, eight, RemoteRead) }, ErrInvalid, []string{"nil"}},
		"bind closed":               {sq, func() { sq.BindMW(1, closed, eight, RemoteRead) }, os.ErrClosed, []string{"closed memory window"}},
		"bind of another device":    {sq, func() { sq.BindMW(1, elsewhere, eight, RemoteRead) }, ErrInvalid, []string{"rxe0"}},
		"bind of another PD":        {sq, func() { sq.BindMW(1, alien, eight, RemoteRead) }, ErrInvalid, []string{"protection domains"}},
		"bind without rights":       {sq, func() { sq.BindMW(1, mw, eight, 0) }, ErrInvalid, []string{"allowed are"}},
		"bind with wrong rights":    {sq, func() { sq.BindMW(1, mw, eight, LocalWrite) }, ErrInvalid, []string{"LocalWrite", "RemoteRead"}},
		"bind of nothing":           {sq, func() { sq.BindMW(1, mw, r.mr.Span(0, 0), RemoteRead) }, ErrInvalid, []string{"0 bytes", "invalidate"}},
		"bind past the end":         {sq, func() { sq.BindMW(1, mw, r.mr.Span(1<<16, 1), RemoteRead) }, ErrBounds, []string{"offset 65536"}},
		"bind to no region":         {sq, func() { sq.BindMW(1, mw, Span{}, RemoteRead) }, ErrBounds, []string{"without a memory region"}},
		"bind without MWBind":       {sq, func() { sq.BindMW(1, mw, noBind.Span(0, 8), RemoteRead) }, ErrInvalid, []string{"MWBind"}},
		"bind to read-only":         {sq, func() { sq.BindMW(1, mw, readOnly.Span(0, 8), RemoteWrite) }, ErrInvalid, []string{"LocalWrite"}},
		"bind elsewhere":            {sq, func() { sq.BindMW(1, bound, eight, RemoteRead) }, ErrInvalid, []string{"belongs to it", "another one"}},
		"bind twice":                {r.b.SendQueue(), func() { r.b.SendQueue().BindMW(1, bound, eight, RemoteRead) }, ErrState, []string{"invalidate it first"}},
		"invalidate nil":            {sq, func() { sq.LocalInvalidate(1, nil) }, ErrInvalid, []string{"not bound through this"}},
		"invalidate elsewhere":      {sq, func() { sq.LocalInvalidate(1, bound) }, ErrInvalid, []string{"not bound through this"}},
		"invalidate, never bound":   {sq, func() { sq.LocalInvalidate(1, mw) }, ErrInvalid, []string{"not bound through this"}},
		"send with invalidate, bad": {sq, func() { sq.SendInvalidate(1, 2, Span{}) }, ErrBounds, []string{"without a memory region"}},
	} {
		test.post()
		says(t, name, test.q.Flush(), test.is, test.parts...)
		if n := test.q.Room(); n != 16 {
			t.Fatalf("%s: room for %d sends, want 16", name, n)
		}
	}
	for name, test := range map[string]struct {
		make  func() error
		is    error
		parts []string
	}{
		"region to flush, old kernel": {func() error { _, err := r.pd.Register(r.mem.Bytes(), FlushGlobal); return err }, ErrNotSupported, []string{"FlushGlobal", "Linux 6.2"}},
		"region that persists":        {func() error { _, err := newer.pd.Register(newer.mem.Bytes(), FlushPersistent); return err }, syscall.EINVAL, []string{"persistent memory"}},
		"queue pair, old kernel": {func() error {
			_, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, PeerAccess: FlushPersistent})
			return err
		}, ErrNotSupported, []string{"FlushPersistent"}},
	} {
		says(t, name, test.make(), test.is, test.parts...)
	}
}

// A device without windows says so, by its capabilities or by the kernel's word.
func TestNoWindows(t *testing.T) {
	r := newRig(t, false, fakekernel.Device{LacksCommands: []uint32{abi.IB_USER_VERBS_CMD_ALLOC_MW}})
	_, err := r.pd.NewMW()
	says(t, "by the kernel's word", err, ErrNotSupported, "allocate memory window")
	r.dev.attr.Caps &^= CapMemWindowType2B
	_, err = r.pd.NewMW()
	says(t, "by its capabilities", err, ErrNotSupported, "5.14")
	r.dev.attr.Atomic = AtomicNone
	qp, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 1, RecvDepth: 1})
	if err != nil {
		t.Fatal(err)
	}
	qp.SendQueue().FetchAdd(1, r.mr.Span(0, 8), r.peer.Regions[0].At(0), 1)
	says(t, "atomics", qp.SendQueue().Flush(), ErrNotSupported, "fetch and add", "rxe0")
}

// The life of a window and of UC with a failure at every call: an error, or no
// harm; nothing leaks.
func TestOpsLifeWithAFailureAtEveryCall(t *testing.T) {
	life := func(r *rig, typ QPType) error {
		if err := r.openOps(typ); err != nil {
			return err
		}
		mw, err := r.pd.NewMW()
		if err != nil {
			return err
		}
		r.b.SendQueue().BindMW(1, mw, r.mr.Span(0, 8), RemoteRead)
		if err := r.b.SendQueue().Flush(); err != nil {
			return err
		}
		var wcs [4]WC
		if _, err := r.sendQ.Poll(wcs[:]); err != nil {
			return err
		}
		if err := mw.Close(); err != nil {
			return err
		}
		return r.mr.Close()
	}
	for _, typ := range []QPType{RC, UC} {
		whole := &rig{k: fakekernel.New(fakekernel.Device{})}
		if err := life(whole, typ); err != nil {
			t.Fatal(err)
		}
		calls := whole.k.Calls()
		whole.close(t)
		for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EIO, syscall.EINVAL, syscall.EPROTONOSUPPORT} {
			for n := 1; n <= calls; n++ {
				r := &rig{k: fakekernel.New(fakekernel.Device{})}
				r.k.Fail(func(c fakekernel.Call) error {
					// EIO at a destruction says that all is gone with the
					// device, which is not so here.
					gone := errno == syscall.EIO && (c.Method.Object == abi.UVERBS_OBJECT_MW || c.Method.Object == abi.UVERBS_OBJECT_MR)
					if c.N == n && !gone {
						return errno
					}
					return nil
				})
				err := life(r, typ)
				r.k.Fail(nil)
				r.close(t)
				r.clean(t)
				if t.Failed() {
					t.Fatalf("%v, %v at call %d: the life ended with %v", typ, errno, n, err)
				}
			}
		}
	}
}

// MR.Close that the kernel refuses can be tried again.
func TestRegionClosesAfterItsWindow(t *testing.T) {
	r := newOpsRig(t, RC, fakekernel.Device{})
	mw, err := r.pd.NewMW()
	if err != nil {
		t.Fatal(err)
	}
	r.b.SendQueue().BindMW(1, mw, r.mr.Span(0, 8), RemoteRead)
	r.sent(t, r.b, WC{ID: 1, Opcode: OpBindMW})
	for range 2 {
		if err := r.mr.Close(); !errors.Is(err, ErrInUse) {
			t.Errorf("close with a window: %v", err)
		}
	}
	if err := mw.Close(); err != nil {
		t.Error(err)
	}
	if err := r.mr.Close(); err != nil {
		t.Error(err)
	}
	if err := r.mem.Close(); err != nil {
		t.Error(err)
	}
}
