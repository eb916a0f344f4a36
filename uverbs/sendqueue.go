package uverbs

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/rxe"
)

// SendQueue stages send-side requests and hands them to the device. One
// goroutine at a time uses it.
//
// Send, Write, Read, the atomics, BindMW and their kin only stage; the first
// error sticks and the next Flush returns it. Flush is all or nothing: nil means
// that every staged request comes to exactly one end, on the CQ; an error means
// that none of them reached the device. From Flush until its completion a
// request's buffer belongs to the device: a request cannot be cancelled.
//
// The id is yours and comes back in WC.ID. The queue pair keeps count of what is
// outstanding in Poll of its CQ: a program that does not poll runs out of Room.
type SendQueue struct {
	qp       *QP
	ring     cq.SendRing
	requests *cq.Requests
	bell     *doorbell // nil: the ring has one
	err      error
	flushing uint32 // 1 while the ring is written to; see QP.flushes
	epoch    uint32 // of qp, when the first of the staged requests was

	ends   sync.Mutex  // the end of the queue, and who may write there; see tail
	voided atomic.Bool // what was staged was taken back there, and no Flush has said so

	fast    *mlx5.SQ // ring, where requests may go the fast way, or nil; see sendfast.go
	limit   uint32   // the number of the request that has to ask again whether it may
	careful bool     // the next one may not

	soft *rxe.SQ // ring, where it is one of soft-RoCE's and takes spans, or nil
	wrid uint64  // of request 0

	wr    cq.SendRequest
	sges  []cq.SGE     // of wr
	ops   opSet        // what can be posted
	binds []stagedBind // how windows were before what is staged
}

func (q *SendQueue) init(qp *QP, ring cq.SendRing, requests *cq.Requests) {
	q.qp, q.ring, q.requests = qp, ring, requests
	q.sges = make([]cq.SGE, 0, qp.limits.SendSGE)
	q.wrid = cq.MakeWRID(qp.index.n, cq.SendSide, 0)
	q.ops = qp.dev.provider.operations(qp.typ) & qp.dev.attr.operations()
	if qp.typ != UD {
		q.fast, _ = ring.(*mlx5.SQ)
		if cap(q.sges) > 0 && q.ops.has(cq.OpSend) && q.ops.has(cq.OpWrite) {
			q.soft, _ = ring.(*rxe.SQ)
		}
	}
}

// Room is how many more requests can be staged now.
func (q *SendQueue) Room() int { return q.requests.Room() }

// SendV sends a message gathered from several spans.
func (q *SendQueue) SendV(id uint64, from []Span, flags ...SendFlags) {
	q.begin(cq.OpSend, flags)
	q.spans(from)
	q.stage(id)
}

// SendImm sends a message with 32 bits of immediate data, which the receiver
// gets in its completion. imm is in host byte order on both sides.
func (q *SendQueue) SendImm(id uint64, imm uint32, from Span, flags ...SendFlags) {
	q.begin(cq.OpSendImm, flags)
	q.wr.Imm = imm
	q.span(from)
	q.stage(id)
}

// WriteV writes several spans, one after another, to the peer's memory.
func (q *SendQueue) WriteV(id uint64, to RemoteAddr, from []Span, flags ...SendFlags) {
	q.begin(cq.OpWrite, flags)
	q.spans(from)
	q.remote(to)
	q.stage(id)
}

// WriteImm writes a span to the peer's memory and ends one of the peer's
// receives with the immediate data.
func (q *SendQueue) WriteImm(id uint64, imm uint32, to RemoteAddr, from Span, flags ...SendFlags) {
	q.begin(cq.OpWriteImm, flags)
	q.wr.Imm = imm
	q.span(from)
	q.remote(to)
	q.stage(id)
}

// ReadV reads from the peer's memory into several spans, one after another.
func (q *SendQueue) ReadV(id uint64, into []Span, from RemoteAddr, flags ...SendFlags) {
	q.begin(cq.OpRead, flags)
	q.spans(into)
	q.remote(from)
	q.stage(id)
}

// begin clears the request under construction.
func (q *SendQueue) begin(op Opcode, flags []SendFlags) {
	q.sges = q.sges[:0]
	q.wr = cq.SendRequest{Op: op}
	for _, f := range flags {
		q.wr.Flags |= f
	}
	if q.wr.Flags&^allFlags != 0 {
		q.fail(fmt.Errorf("flags %#x: allowed are Unsignaled, Fence and Solicited: %w", uint8(q.wr.Flags), ErrInvalid))
	}
	if !q.ops.has(op) {
		q.fail(q.qp.whyNot(op))
	}
}

// allFlags are those that a program may give.
const allFlags = Unsignaled | Fence | Solicited

// span adds one piece of local memory.
func (q *SendQueue) span(s Span) {
	e, ok := s.sge()
	if !ok || uint64(q.wr.Length)+uint64(e.Length) > maxMessage {
		q.failSpan(s, ok)
		return
	}
	q.sges = append(q.sges, e) // within its capacity: spans has checked
	q.wr.Length += e.Length
}

// into adds one piece of local memory that the device writes to.
func (q *SendQueue) into(s Span) {
	if s.mr != nil && s.n > 0 && !s.writable() {
		q.fail(fmt.Errorf("%v into a memory region registered without LocalWrite: %w", q.wr.Op, ErrInvalid))
		return
	}
	q.span(s)
}

func (q *SendQueue) spans(all []Span) {
	if len(all) > cap(q.sges) {
		q.fail(fmt.Errorf("%d spans: the queue pair takes %d: ask for more with QPOptions.SendSGE: %w", len(all), cap(q.sges), ErrInvalid))
		return
	}
	for _, s := range all {
		if q.wr.Op == cq.OpRead {
			q.into(s)
		} else {
			q.span(s)
		}
	}
}

func (q *SendQueue) failSpan(s Span, fits bool) {
	if fits {
		q.fail(fmt.Errorf("a message of more than %d bytes: %w", maxMessage, ErrBounds))
		return
	}
	q.fail(s.err())
}

// inline carries data in the request.
func (q *SendQueue) inline(data []byte) {
	if len(data) > q.qp.limits.Inline {
		q.fail(fmt.Errorf("%d bytes inline: the queue pair takes %d: ask for more with QPOptions.Inline: %w", len(data), q.qp.limits.Inline, ErrInvalid))
		return
	}
	q.wr.Flags |= cq.Inline
	q.wr.Data = data
	q.wr.Length = uint32(len(data))
}

// remote is the place in the peer's memory.
func (q *SendQueue) remote(a RemoteAddr) {
	addr, ok := a.address(uint64(q.wr.Length))
	if !ok {
		q.fail(fmt.Errorf("%d bytes at offset %d do not lie in the peer's region of %d bytes: %w", q.wr.Length, a.off, a.region.Length, ErrBounds))
		return
	}
	q.wr.RemoteAddr, q.wr.RKey = addr, a.region.RKey
}

// stage enters the request, unless it or one before it failed, and says whether
// it did.
func (q *SendQueue) stage(id uint64) bool {
	if q.err != nil {
		return false
	}
	if q.qp.typ == UD && q.wr.AH == 0 {
		q.fail(fmt.Errorf("%v on a UD queue pair, which takes SendTo and its kin only: %w", q.wr.Op, ErrInvalid))
		return false
	}
	if q.requests.Room() == 0 {
		q.fail(fmt.Errorf("%w: its %d requests are outstanding: poll the CQ, or ask for more with QPOptions.SendDepth", ErrQueueFull, q.requests.Depth()))
		return false
	}
	// The end of the ring is Shutdown's when it has begun; see tail.
	cq.StoreRelease32(&q.flushing, 1)
	if q.qp.ending.Load() {
		cq.StoreRelease32(&q.flushing, 0)
		q.fail(q.qp.whyEnding())
		return false
	}
	if q.requests.Staged() == 0 {
		if e := q.qp.epoch(); e != q.epoch {
			q.epoch = e
			beginAnew(q.ring)
			if q.voided.Load() {
				q.fail(errReset)
			}
		}
	}
	seq, signal := q.requests.Stage(id, q.wr.Op, q.wr.Length, q.wr.Flags&cq.Unsignaled != 0)
	if signal {
		q.wr.Flags &^= cq.Unsignaled
	}
	q.wr.WRID = q.wrid | uint64(seq)
	q.wr.SGEs = q.sges
	q.ring.Put(&q.wr)
	q.limit, q.careful = q.requests.Next(), q.wr.Op == cq.OpBindMW || q.wr.Op == cq.OpLocalInvalidate
	cq.StoreRelease32(&q.flushing, 0)
	return true
}

// fail makes the next Flush fail, for the first reason.
//
//go:noinline
func (q *SendQueue) fail(err error) {
	if q.err == nil {
		q.err = err
	}
	q.limit = q.requests.Next() // a look finds the error
}

// Flush hands the staged requests to the device and rings its doorbell once.
func (q *SendQueue) Flush() error {
	cq.StoreRelease32(&q.flushing, 1)
	qp := q.qp
	ending, resets, state, n := qp.ending.Load(), qp.resets.Load(), qp.state.Load(), q.requests.Staged()
	if n == 0 || q.err != nil || ending || resets != q.epoch || !sends(state) {
		return q.refuse()
	}
	q.requests.Commit()
	q.ring.Publish() // and rings, where a doorbell is a store: Close waits for that
	var err error
	if q.bell != nil {
		if err = q.bell.ring(); err != nil {
			err = q.unrung(n, err)
		}
	}
	if len(q.binds) > 0 {
		q.bound()
	}
	runtime.KeepAlive(qp)
	q.leave()
	return err
}

// sends says whether a doorbell of a queue pair in a state can succeed. In ERR the
// device takes requests and flushes them.
func sends(state uint32) bool {
	return 1<<(state&7)&(1<<StateRTS|1<<StateErr|1<<StateSQD) != 0
}

// refuse takes the staged requests back and says why. Where there are none, and
// nothing is wrong, it does nothing.
func (q *SendQueue) refuse() error {
	if q.requests.Staged() == 0 && q.err == nil && !q.qp.ending.Load() && !q.voided.Load() {
		q.leave()
		return nil
	}
	q.ends.Lock()
	n := q.requests.Staged()
	q.takeBack(n)
	q.ends.Unlock()
	cq.StoreRelease32(&q.flushing, 0)
	err, voided := q.err, q.voided.Swap(false)
	q.err = nil
	switch {
	case q.qp.ending.Load():
		err = q.qp.whyEnding()
	case err == nil && voided:
		err = errReset
	case err == nil && n == 0:
		return nil
	case err == nil && !q.qp.sameEpoch(q.epoch):
		err = errReset
	case err == nil:
		err = fmt.Errorf("%w: it is in %v, and sends from RTS on: connect it first", ErrState, q.qp.State())
	}
	return q.qp.postError("send", err)
}

func (q *SendQueue) takeBack(n uint32) {
	q.ring.Rollback(n)
	q.requests.Rollback(n)
	q.limit, q.careful = q.requests.Next(), true
	if len(q.binds) > 0 {
		q.unbind()
	}
}

// tail posts a request behind all others that does nothing and tells when those have
// been carried out, where the device tells so by completions alone, and those at the
// end are quiet. The queue pair is ending and no Flush is under way: the poster does
// not write to the ring any more. It is for one goroutine at a time, and may be
// called again.
func (q *SendQueue) tail() {
	ring, ok := q.ring.(interface{ PutNop(wrid uint64) })
	if !ok || QPState(q.qp.state.Load()) != StateRTS {
		return
	}
	q.ends.Lock()
	defer q.ends.Unlock()
	if n := q.requests.Staged(); n > 0 { // of a poster that came no further
		q.ring.Rollback(n)
		q.requests.Rollback(n)
		q.voided.Store(true)
	}
	if q.requests.Idle() || !q.requests.Quiet() || q.requests.Room() == 0 {
		return
	}
	ring.PutNop(q.wrid | uint64(q.requests.StageSilent()))
	q.requests.Commit()
	q.ring.Publish()
}

// unrung decides what becomes of requests whose doorbell failed. If the device
// cannot have seen them they are taken back. Else it may or may not carry them
// out, so the queue pair goes to ERR, where the device flushes them, and their
// ends come through Poll; from the library if the device is beyond even that.
func (q *SendQueue) unrung(n uint32, err error) error {
	if q.qp.closing.Load() {
		return q.qp.postError("send", q.qp.whyEnding())
	}
	if q.unseen(err) {
		q.takeBack(n)
		return q.qp.postError("send", kernelError(err))
	}
	if q.qp.Modify(StateErr) != nil {
		q.qp.sendCQ.mailbox.adopt(q.qp.sendCQ, &q.qp.closing, q.requests, false)
	}
	return nil
}

// unseen says whether a doorbell failed in a way after which the device cannot
// have looked at the ring: the queue pair does not exist, or the kernel says
// that it is not ready to send. In a queue pair that is, an acknowledgement or a
// timer may have started the requests without any doorbell.
func (q *SendQueue) unseen(err error) bool {
	if isErrno(err, syscall.ENOENT) {
		return true
	}
	if !isErrno(err, syscall.EINVAL) {
		return false
	}
	s, err := q.qp.QueryState()
	return err == nil && s < StateRTS
}

// postError wraps why a Flush failed.
func (qp *QP) postError(side string, err error) error {
	return qp.denied("flush of the "+side+" queue of", err)
}
