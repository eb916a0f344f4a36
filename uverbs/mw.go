package uverbs

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// MW is a memory window of type 2B: a key for a part of a memory region that can
// be given and taken back without a system call. SendQueue.BindMW opens it, for
// the peer of that queue pair alone; SendQueue.LocalInvalidate, or the peer's
// SendInvalidate, closes it, and it can be bound again, each time with another
// key.
//
// Once bound, a window belongs to its queue pair for good and is closed before
// it: soft-RoCE waits 50 seconds in the destruction of a queue pair that has a
// bound window (Linux 6.1 and 6.12). Make a window after its queue pair, since
// when a program dies the kernel destroys what is newest first. The memory region
// is closed after the window, or when the window is invalidated.
//
// A bind or invalidation that does not succeed takes the queue pair to ERR, and
// the window with it: what the device thinks of it is not known any more. Close
// it. Methods may be called from any goroutine, but one goroutine at a time binds
// a window.
//
// Soft-RoCE, in Linux 6.1 and 6.12, trusts peers with windows: who has a window's
// key has its rights to all of the region, and who invalidates a window that is
// not bound, by a second SendInvalidate with its last key, crashes the kernel. So
// give windows on soft-RoCE to peers that you trust, and agree who invalidates,
// this side or the peer, and when. The library refuses LocalInvalidate of a
// window that it knows not to be bound; what the peer did it learns when the
// completion is polled.
type MW struct {
	object
	pd    *PD
	rkey  atomic.Uint32
	bound atomic.Bool
	mr    atomic.Pointer[MR] // the region that it was bound to last
	qp    atomic.Pointer[QP] // the one that it was bound through
}

// NewMW makes a memory window. Nobody can use it before it is bound. It takes a
// device with CapMemWindowType2B; soft-RoCE has it from Linux 5.14 on.
func (pd *PD) NewMW() (*MW, error) {
	const op = "allocate memory window"
	d := pd.dev
	if d.attr.Caps&CapMemWindowType2B == 0 {
		return nil, fmt.Errorf("goverbs: %s: %s: %w by the device: soft-RoCE has them from Linux 5.14 on", d.info.Name, op, ErrNotSupported)
	}
	done, err := d.making(kindMW, &pd.object)
	if err != nil {
		return nil, err
	}
	defer done()
	const type2 = 2 // enum ib_uverbs_mw_type
	in, out := &abi.UverbsAllocMW{PDHandle: pd.handle, MWType: type2}, new(abi.UverbsAllocMWResp)
	if err := d.call(op, newCommand(d.driver, abi.IB_USER_VERBS_CMD_ALLOC_MW, in.Bytes(), out.Bytes())); err != nil {
		var e *Error
		if errors.As(err, &e) && isErrno(err, syscall.ENOMEM) {
			e.Hint = fmt.Sprintf("the device has at most %d", d.attr.MaxMW)
		}
		return nil, err
	}
	mw := &MW{object: object{dev: d, handle: out.MWHandle, kind: kindMW, id: d.nextID()}, pd: pd}
	mw.rkey.Store(out.RKey)
	mw.letGo = func() { mw.free() } // before the queue pair that it may be bound through
	if err := d.hold(mw, &pd.object); err != nil {
		mw.free()
		return nil, err
	}
	return mw, nil
}

// RKey is the key of the latest bind that was staged.
func (mw *MW) RKey() uint32 { return mw.rkey.Load() }

// Close frees the window, bound or not. Requests of the peer that use it fail
// from then on. When the kernel refuses, Close can be called again: the queue
// pair must not go before the window.
func (mw *MW) Close() error {
	if err := mw.retire(); err != nil {
		return err
	}
	if err := mw.free(); err != nil {
		mw.revive()
		return err
	}
	if qp := mw.qp.Load(); qp != nil {
		qp.windows.Delete(mw.index())
	}
	mw.release()
	return nil
}

func (mw *MW) free() error {
	return mw.dev.destroy("free memory window", abi.UVERBS_OBJECT_MW, abi.UVERBS_METHOD_MW_DESTROY, mw.handle, nil)
}

// index is the part of the window's keys that stays.
func (mw *MW) index() uint32 { return mw.rkey.Load() >> 8 }

// invalidated is told of the keys that the peer has invalidated.
func (qp *QP) invalidated(rkey uint32) {
	if v, ok := qp.windows.Load(rkey >> 8); ok {
		if mw := v.(*MW); mw.rkey.Load() == rkey {
			mw.bound.Store(false)
		}
	}
}

// attach makes the window stand on the queue pair that it is about to be bound
// through.
func (mw *MW) attach(qp *QP) error {
	if mw == nil {
		return fmt.Errorf("bind of a nil memory window: %w", ErrInvalid)
	}
	if mw.dev != qp.dev {
		return fmt.Errorf("the memory window is one of %s, the queue pair of %s: %w", mw.dev.info.Name, qp.dev.info.Name, ErrInvalid)
	}
	d := qp.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	switch first := mw.qp.Load(); {
	case mw.closed:
		return fmt.Errorf("bind of a closed memory window: %w", os.ErrClosed)
	case qp.closed:
		return fmt.Errorf("bind through a closed queue pair: %w", os.ErrClosed)
	case first == nil:
		qp.users[kindMW]++
		mw.bases = append(mw.bases, &qp.object)
		qp.windows.Store(mw.index(), mw)
		mw.qp.Store(qp)
	case first != qp:
		return fmt.Errorf("the memory window was bound through QP %d and belongs to it: make another one for QP %d: %w", first.qpn, qp.qpn, ErrInvalid)
	}
	return nil
}

// windowAccess is what a window can give.
const windowAccess = remoteAccess | FlushGlobal | FlushPersistent

// BindMW opens a window onto a span, with the given rights, for the peer of this
// queue pair, and returns what the peer needs to use it. Tell the peer when the
// bind has completed. The region was registered with MWBind, and with LocalWrite
// if the window allows the peer to write. A window that is still bound has
// to be invalidated first.
//
// It returns the zero Remote when Flush will fail for this request or one
// before.
func (q *SendQueue) BindMW(id uint64, mw *MW, span Span, access Access, flags ...SendFlags) Remote {
	q.begin(cq.OpBindMW, flags)
	e, ok := span.sge()
	if !ok {
		q.fail(span.err())
		return Remote{}
	}
	if err := q.checkBind(mw, span, access); err != nil {
		q.fail(err)
		return Remote{}
	}
	old := mw.rkey.Load()
	// The low byte is the binder's to choose; another one each time makes
	// keys from before useless.
	key := old&^0xff | (old+1)&0xff
	q.wr.RemoteAddr, q.wr.RKey = e.Addr, key
	q.wr.WindowRKey, q.wr.WindowLKey = old, e.LKey
	q.wr.WindowBytes, q.wr.WindowAccess = uint64(e.Length), uint32(access)
	if !q.stage(id) {
		return Remote{}
	}
	q.binds = append(q.binds, stagedBind{mw, mw.mr.Load(), old, false})
	mw.rkey.Store(key)
	mw.mr.Store(span.mr)
	mw.bound.Store(true)
	return Remote{Addr: e.Addr, Length: uint64(e.Length), RKey: key}
}

// checkBind refuses what the device would answer with an error completion.
func (q *SendQueue) checkBind(mw *MW, span Span, access Access) error {
	mr := span.mr
	switch {
	case access == 0 || access&^windowAccess != 0:
		return fmt.Errorf("bind of a memory window with %v: allowed are one or more of %v: %w", access, windowAccess, ErrInvalid)
	case span.n == 0:
		return fmt.Errorf("bind of a memory window to 0 bytes: to close a window, invalidate it: %w", ErrInvalid)
	case mr.Access()&MWBind == 0:
		return fmt.Errorf("bind of a memory window to a region registered without MWBind: %w", ErrInvalid)
	case access&(RemoteWrite|RemoteAtomic) != 0 && mr.Access()&LocalWrite == 0:
		return fmt.Errorf("bind of a memory window with %v to a region registered without LocalWrite: %w", access, ErrInvalid)
	}
	if err := mw.attach(q.qp); err != nil {
		return err
	}
	switch {
	case mw.pd != q.qp.pd || mr.PD() != q.qp.pd:
		return fmt.Errorf("the queue pair, the memory window and its region are of different protection domains: %w", ErrInvalid)
	case mw.bound.Load():
		return fmt.Errorf("bind of a memory window that is bound: %w: invalidate it first; if the peer did, poll that completion first", ErrState)
	}
	return nil
}

// LocalInvalidate closes a window that was bound through this queue pair: the
// peer cannot use its key any more once this has completed. It fails with
// ErrState if the window is not bound, as after the peer's SendInvalidate.
func (q *SendQueue) LocalInvalidate(id uint64, mw *MW, flags ...SendFlags) {
	q.begin(cq.OpLocalInvalidate, flags)
	if mw == nil || mw.qp.Load() != q.qp {
		q.fail(fmt.Errorf("invalidation of a memory window that was not bound through this queue pair: %w", ErrInvalid))
		return
	}
	if !mw.bound.Load() {
		q.fail(fmt.Errorf("invalidation of a memory window that is not bound: %w", ErrState))
		return
	}
	q.wr.InvalidateRKey = mw.rkey.Load()
	if q.stage(id) {
		q.binds = append(q.binds, stagedBind{mw, mw.mr.Load(), mw.rkey.Load(), true})
		mw.bound.Store(false)
	}
}

// SendInvalidate sends a message from a span, and closes the peer's memory
// window with the given key, which the peer learns by WC.InvalidatedRKey. The
// window is one that the peer has bound through the queue pair at the other end.
// With any other key the peer's queue pair goes to ERR; see MW for what a second
// invalidation does to a soft-RoCE peer.
func (q *SendQueue) SendInvalidate(id uint64, rkey uint32, from Span, flags ...SendFlags) {
	q.begin(cq.OpSendInvalidate, flags)
	q.wr.InvalidateRKey = rkey
	q.span(from)
	q.stage(id)
}

// stagedBind is a bind or an invalidation that was not flushed, and how the
// window was before.
type stagedBind struct {
	mw    *MW
	mr    *MR
	rkey  uint32
	bound bool
}

// unbind makes windows what they were before requests that are taken back. All
// that is staged is taken back together.
func (q *SendQueue) unbind() {
	for i := len(q.binds) - 1; i >= 0; i-- {
		b := &q.binds[i]
		b.mw.mr.Store(b.mr)
		b.mw.rkey.Store(b.rkey)
		b.mw.bound.Store(b.bound)
	}
	q.bound()
}

// bound forgets binds and invalidations that are on their way.
func (q *SendQueue) bound() {
	clear(q.binds)
	q.binds = q.binds[:0]
}
