package uverbs

import (
	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

// The common requests have a fast way on ConnectX: from the call to the ring in pieces
// that are inlined, without a cq.SendRequest. All else, and all that may fail, goes the
// general way, which says what a request is: begin, its parts, stage. Requests of one
// span have a fast way on soft-RoCE too; see soften.

// enter says whether a request may go the fast way, and is to be followed by leave in
// any case. It is so for requests numbered below limit while the queue pair is not
// ending, nor was reset since the general way was gone: see stage for why.
func (q *SendQueue) enter() bool {
	cq.StoreRelease32(&q.flushing, 1)
	// All loads come before the first branch: else the compiler makes a number of
	// the answer, and a branch of that.
	ending, resets, next := q.qp.ending.Load(), q.qp.resets.Load(), q.requests.Next()
	return !ending && resets == q.epoch && next != q.limit
}

func (q *SendQueue) leave() { cq.StoreRelease32(&q.flushing, 0) }

// open moves the limit on where that is what kept a request from the fast way, and says
// whether it did. It cannot do so twice for one request, whose number is not the limit
// any more: so a way that calls itself again after a yes does so once. To look again in
// place, behind enter, would have every request save its registers for this call.
//
//go:noinline
func (q *SendQueue) open() bool {
	next := q.requests.Next()
	if q.err != nil || q.careful || q.limit != next {
		return false
	}
	q.limit = q.requests.Limit()
	return q.limit != next
}

// how says how a request with flags is written: its control word, whether its tag says
// quiet, and the run that it ends. Flags that there are not are left to the general way.
func (q *SendQueue) how(flags []SendFlags) (control uint64, quiet, run uint32, ok bool) {
	var all SendFlags
	for _, f := range flags {
		all |= f
	}
	run, signal := q.requests.Run(all&Unsignaled != 0)
	if all&Unsignaled != 0 {
		quiet = cq.TagQuiet
	}
	if signal {
		all &^= Unsignaled
	}
	return mlx5.Control(all), quiet, run, all&^allFlags == 0
}

// SendInline sends a message that is copied into the request: data may be
// reused at once and need not be registered. It holds QPLimits.Inline bytes at
// most.
func (q *SendQueue) SendInline(id uint64, data []byte, flags ...SendFlags) {
	if f := q.fast; f != nil && q.enter() && f.Straight(len(data)) {
		control, quiet, run, ok := mlx5.ControlSignal, uint32(0), uint32(0), true
		if len(flags) > 0 {
			control, quiet, run, ok = q.how(flags)
		}
		if ok {
			w := f.Begin().Inline(len(data))
			f.End(w, cq.OpSend, control)
			q.requests.Enter(id, uint32(len(data)), w.Tag(cq.OpSend)|quiet, run)
			w.Copy(data)
			q.leave()
			return
		}
	}
	q.leave()
	q.sendInline(id, data, flags)
}

func (q *SendQueue) sendInline(id uint64, data []byte, flags []SendFlags) {
	if q.fast != nil && q.open() {
		q.SendInline(id, data, flags...)
		return
	}
	q.begin(cq.OpSend, flags)
	q.inline(data)
	q.stage(id)
}

// WriteInline writes data that is copied into the request to the peer's memory.
func (q *SendQueue) WriteInline(id uint64, to RemoteAddr, data []byte, flags ...SendFlags) {
	if f := q.fast; f != nil && q.enter() && f.Straight(len(data)) {
		control, quiet, run, ok := mlx5.ControlSignal, uint32(0), uint32(0), true
		if len(flags) > 0 {
			control, quiet, run, ok = q.how(flags)
		}
		if addr, fits := to.address(uint64(len(data))); fits && ok {
			w := f.Begin().Remote(addr, to.region.RKey).Inline(len(data))
			f.End(w, cq.OpWrite, control)
			q.requests.Enter(id, uint32(len(data)), w.Tag(cq.OpWrite)|quiet, run)
			w.Copy(data)
			q.leave()
			return
		}
	}
	q.leave()
	q.writeInline(id, to, data, flags)
}

func (q *SendQueue) writeInline(id uint64, to RemoteAddr, data []byte, flags []SendFlags) {
	if q.fast != nil && q.open() {
		q.WriteInline(id, to, data, flags...)
		return
	}
	q.begin(cq.OpWrite, flags)
	q.inline(data)
	q.remote(to)
	q.stage(id)
}

// Send sends a message from a span.
func (q *SendQueue) Send(id uint64, from Span, flags ...SendFlags) {
	if q.soft != nil {
		q.soften(id, 0, union(flags), 0, cq.OpSend, from)
		return
	}
	if f := q.fast; q.enter() && from.n > 0 {
		control, quiet, run, ok := mlx5.ControlSignal, uint32(0), uint32(0), true
		if len(flags) > 0 {
			control, quiet, run, ok = q.how(flags)
		}
		if e, fits := from.sge(); fits && ok {
			w := f.Begin().Element(e)
			f.End(w, cq.OpSend, control)
			q.requests.Enter(id, e.Length, w.Tag(cq.OpSend)|quiet, run)
			q.leave()
			return
		}
	}
	q.leave()
	q.send(id, from, flags)
}

func (q *SendQueue) send(id uint64, from Span, flags []SendFlags) {
	if q.fast != nil && q.open() {
		q.Send(id, from, flags...)
		return
	}
	q.begin(cq.OpSend, flags)
	q.span(from)
	q.stage(id)
}

// Write writes a span to the peer's memory. The peer is not told.
func (q *SendQueue) Write(id uint64, to RemoteAddr, from Span, flags ...SendFlags) {
	if q.soft != nil {
		if addr, lies := to.address(uint64(from.n)); lies {
			q.soften(id, addr, union(flags), to.region.RKey, cq.OpWrite, from)
		} else {
			q.write(id, to, from, flags)
		}
		return
	}
	if f := q.fast; q.enter() && from.n > 0 {
		control, quiet, run, ok := mlx5.ControlSignal, uint32(0), uint32(0), true
		if len(flags) > 0 {
			control, quiet, run, ok = q.how(flags)
		}
		e, fits := from.sge()
		if addr, lies := to.address(uint64(e.Length)); fits && lies && ok {
			w := f.Begin().Remote(addr, to.region.RKey).Element(e)
			f.End(w, cq.OpWrite, control)
			q.requests.Enter(id, e.Length, w.Tag(cq.OpWrite)|quiet, run)
			q.leave()
			return
		}
	}
	q.leave()
	q.write(id, to, from, flags)
}

func (q *SendQueue) write(id uint64, to RemoteAddr, from Span, flags []SendFlags) {
	if q.fast != nil && q.open() {
		q.Write(id, to, from, flags...)
		return
	}
	q.begin(cq.OpWrite, flags)
	q.span(from)
	q.remote(to)
	q.stage(id)
}

// Read reads from the peer's memory into a span.
func (q *SendQueue) Read(id uint64, into Span, from RemoteAddr, flags ...SendFlags) {
	if q.soft != nil {
		if addr, lies := from.address(uint64(into.n)); lies && into.mr != nil && into.writable() && q.ops.has(cq.OpRead) {
			q.soften(id, addr, union(flags), from.region.RKey, cq.OpRead, into)
		} else {
			q.read(id, into, from, flags)
		}
		return
	}
	if f := q.fast; q.enter() && into.n > 0 && into.mr != nil && into.writable() && q.ops.has(cq.OpRead) {
		control, quiet, run, ok := mlx5.ControlSignal, uint32(0), uint32(0), true
		if len(flags) > 0 {
			control, quiet, run, ok = q.how(flags)
		}
		e, fits := into.sge()
		if addr, lies := from.address(uint64(e.Length)); fits && lies && ok {
			w := f.Begin().Remote(addr, from.region.RKey).Element(e)
			f.End(w, cq.OpRead, control)
			q.requests.Enter(id, e.Length, w.Tag(cq.OpRead)|quiet, run)
			q.leave()
			return
		}
	}
	q.leave()
	q.read(id, into, from, flags)
}

func (q *SendQueue) read(id uint64, into Span, from RemoteAddr, flags []SendFlags) {
	if q.fast != nil && q.open() {
		q.Read(id, into, from, flags...)
		return
	}
	q.begin(cq.OpRead, flags)
	q.into(into)
	q.remote(from)
	q.stage(id)
}

// union is all of the flags.
func union(flags []SendFlags) (all SendFlags) {
	for _, f := range flags {
		all |= f
	}
	return all
}

// soften stages a request of one span on soft-RoCE. The caller has looked at the place in
// the peer's memory, if there is one, and whether the span may be read into. The order of
// what it takes is that in which Write has it in registers.
func (q *SendQueue) soften(id, addr uint64, flags SendFlags, rkey uint32, op Opcode, s Span) {
	if q.enter() && flags&^allFlags == 0 && s.mr != nil {
		// What sge does, in one branch: of its answer the compiler makes a number first.
		if r := s.mr.now.Load(); r.holds(s) {
			tag := uint32(op) << 8
			if flags&Unsignaled != 0 {
				tag |= cq.TagQuiet
			}
			run, signal := q.requests.Run(flags&Unsignaled != 0)
			if signal {
				flags &^= Unsignaled
			}
			n := uint32(s.n)
			w := q.soft.Begin(q.wrid|uint64(q.requests.Next()), op, flags)
			q.soft.End(w, cq.SGE{Addr: r.addr + uint64(s.off), Length: n, LKey: r.lkey}, addr, rkey)
			q.requests.Enter(id, n, tag, run)
			q.leave()
			return
		}
	}
	q.general(id, addr, flags, rkey, op, s)
}

// general is soften where that cannot be. It stands apart, so that soften need not keep for
// it what it has used up.
func (q *SendQueue) general(id, addr uint64, flags SendFlags, rkey uint32, op Opcode, s Span) {
	q.leave()
	if q.open() {
		q.soften(id, addr, flags, rkey, op, s)
		return
	}
	q.begin(op, []SendFlags{flags})
	q.spans([]Span{s})
	q.wr.RemoteAddr, q.wr.RKey = addr, rkey
	q.stage(id)
}
