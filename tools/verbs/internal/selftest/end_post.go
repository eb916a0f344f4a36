package selftest

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// post stages requests and hands them over, receives first.
func (e *end) post(all []Work) error {
	rq, received := e.recvQueue(), false
	for i := range all {
		if w := &all[i]; w.Op == cq.OpRecv {
			rq.RecvV(w.ID, e.spans(w))
			received = true
		}
	}
	if received {
		if err := rq.Flush(); err != nil {
			return fmt.Errorf("end %s: post receives: %w", e.name, err)
		}
	}
	sent := false
	for i := range all {
		if w := &all[i]; w.Op != cq.OpRecv {
			if err := e.send(w); err != nil {
				return fmt.Errorf("end %s: %w", e.name, err)
			}
			sent = true
		}
	}
	if !sent {
		return nil
	}
	if err := e.qp.SendQueue().Flush(); err != nil {
		return fmt.Errorf("end %s: %w", e.name, err)
	}
	return nil
}

// recvQueue is where receives are posted.
func (e *end) recvQueue() *uverbs.RecvQueue {
	if e.srq != nil {
		return e.srq.RecvQueue()
	}
	return e.qp.RecvQueue()
}

// spans are the pieces of a request.
func (e *end) spans(w *Work) []uverbs.Span {
	mr := e.mr
	if w.Foreign && e.foreign != nil {
		mr = e.foreign
	}
	spans := make([]uverbs.Span, len(w.Pieces))
	for i, p := range w.Pieces {
		spans[i] = mr.Span(p.Off, p.N)
	}
	return spans
}

// data are the pieces of a request one after another.
func (e *end) data(w *Work) ([]byte, error) {
	var data []byte
	for _, p := range w.Pieces {
		if p.Off > e.mem.Len()-p.N {
			return nil, fmt.Errorf("bytes %d to %d of %d", p.Off, p.Off+p.N, e.mem.Len())
		}
		data = append(data, e.mem.Bytes()[p.Off:][:p.N]...)
	}
	return data, nil
}

// send stages a request of the send side.
func (e *end) send(w *Work) error {
	spans := e.spans(w)
	var data []byte
	var one uverbs.Span
	if len(spans) > 0 {
		one = spans[0]
	} else {
		one = e.mr.Span(0, 0)
	}
	if w.Inline {
		var err error
		if data, err = e.data(w); err != nil {
			return err
		}
	}
	if e.spec.Type == uverbs.UD {
		return e.sendTo(w, one, spans, data)
	}
	sq, at := e.qp.SendQueue(), e.at(w)
	switch {
	case w.Op == cq.OpSend && w.Inline:
		sq.SendInline(w.ID, data, w.Flags)
	case w.Op == cq.OpSend && len(spans) != 1:
		sq.SendV(w.ID, spans, w.Flags)
	case w.Op == cq.OpSend:
		sq.Send(w.ID, one, w.Flags)
	case w.Op == cq.OpSendImm:
		sq.SendImm(w.ID, w.Imm, one, w.Flags)
	case w.Op == cq.OpSendInvalidate:
		if w.Window == nil {
			return errors.New("no window to invalidate")
		}
		sq.SendInvalidate(w.ID, w.Window.RKey, one, w.Flags)
	case w.Op == cq.OpWrite && w.Inline:
		sq.WriteInline(w.ID, at, data, w.Flags)
	case w.Op == cq.OpWrite && len(spans) != 1:
		sq.WriteV(w.ID, at, spans, w.Flags)
	case w.Op == cq.OpWrite:
		sq.Write(w.ID, at, one, w.Flags)
	case w.Op == cq.OpWriteImm:
		sq.WriteImm(w.ID, w.Imm, at, one, w.Flags)
	case w.Op == cq.OpRead && len(spans) != 1:
		sq.ReadV(w.ID, spans, at, w.Flags)
	case w.Op == cq.OpRead:
		sq.Read(w.ID, one, at, w.Flags)
	case w.Op == cq.OpCompareSwap:
		sq.CompareSwap(w.ID, one, at, w.A, w.B, w.Flags)
	case w.Op == cq.OpFetchAdd:
		sq.FetchAdd(w.ID, one, at, w.A, w.Flags)
	case w.Op == cq.OpAtomicWrite:
		sq.AtomicWrite(w.ID, at, w.A, w.Flags)
	case w.Op == cq.OpFlush:
		sq.RemoteFlush(w.ID, at, int(min(w.A, maxMemory)), uverbs.FlushGlobal, w.Flags)
	default:
		return fmt.Errorf("nobody here knows how to post %v", w.Op)
	}
	return nil
}

// sendTo stages a datagram.
func (e *end) sendTo(w *Work, one uverbs.Span, spans []uverbs.Span, data []byte) error {
	sq, to := e.qp.SendQueue(), e.to
	if w.Group {
		to = e.group
	}
	if w.WrongQKey {
		to.QKey = uverbs.DefaultQKey ^ 0x5500
	}
	switch {
	case to.AH == nil:
		return errors.New("a datagram to nobody")
	case w.Op == cq.OpSend && w.Inline:
		sq.SendToInline(w.ID, to, data, w.Flags)
	case w.Op == cq.OpSend && len(spans) != 1:
		sq.SendToV(w.ID, to, spans, w.Flags)
	case w.Op == cq.OpSend:
		sq.SendTo(w.ID, to, one, w.Flags)
	case w.Op == cq.OpSendImm:
		sq.SendToImm(w.ID, w.Imm, to, one, w.Flags)
	default:
		return fmt.Errorf("there are no datagrams of %v", w.Op)
	}
	return nil
}

// at is where in the other end's memory a request goes.
func (e *end) at(w *Work) uverbs.RemoteAddr {
	r := e.peer
	if w.Window != nil {
		r = *w.Window
	}
	if w.WrongKey {
		r.RKey ^= 0x5500
	}
	r.Length += w.Beyond
	return r.At(w.To)
}

// openWindow binds a memory window and says what the other end needs to use it.
func (e *end) openWindow(ctx context.Context, off, n int) (r uverbs.Remote, err error) {
	if e.mw == nil {
		if e.mw, err = e.pd.NewMW(); err != nil {
			return r, err
		}
	}
	const id = 1 << 40
	r = e.qp.SendQueue().BindMW(id, e.mw, e.mr.Span(off, n), uverbs.RemoteWrite|uverbs.RemoteRead)
	return r, e.windowed(ctx, id, cq.OpBindMW)
}

// shutWindow invalidates it.
func (e *end) shutWindow(ctx context.Context) error {
	if e.mw == nil {
		return errors.New("there is no window")
	}
	const id = 1<<40 + 1
	e.qp.SendQueue().LocalInvalidate(id, e.mw)
	return e.windowed(ctx, id, cq.OpLocalInvalidate)
}

// windowed flushes a request on a window and waits for its end.
func (e *end) windowed(ctx context.Context, id uint64, op cq.Opcode) error {
	if err := e.qp.SendQueue().Flush(); err != nil {
		return err
	}
	done, err := e.take(ctx, 1)
	if err != nil {
		return err
	}
	return expect(done, Done{ID: id, Op: op})
}
