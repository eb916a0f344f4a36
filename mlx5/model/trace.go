package model

import "time"

// An Event is a thing that happened on the fabric, as told to the function of
// [Model.Trace]: an [IoctlEvent], [RequestEvent], [CompletionEvent], [DeliveryEvent] or
// [StateEvent]. It is a value that shares nothing with the model and never changes, so it
// may be kept. String is one line of words and numbers, without program, device and time.
type Event interface {
	// From says whose it is, and when.
	From() Origin
	String() string
}

// Origin says whose an event is.
type Origin struct {
	// Program is what [OpenOptions] call the program that has the device open. Empty if
	// they do not say.
	Program string
	// Device is the name of the device.
	Device string
	// Time is how long the model existed.
	Time time.Duration
}

// From returns the origin itself: it makes an Event of what embeds it.
func (o Origin) From() Origin { return o }

// Trace has f called with all that happens from now on, in the order in which it happens;
// nil ends that. There is one such function for all devices. It is called with the model's
// lock held: it must not block and must not call the model or what belongs to it, also not
// Trace. Without one, nothing is gathered and nothing costs.
//
// What a call causes is told in the order of the device's work. A request is told when an
// attempt at it is over: behind the receive that it completed at the peer, and before its own
// completion. An ioctl is told when its answer is there, behind changes of state and events
// that it made while it ran.
func (m *Model) Trace(f func(Event)) {
	m.enter()
	defer m.leave()
	m.observe = f
}

// origin is whose events of the file are.
func (f *File) origin() Origin {
	return Origin{Program: f.program, Device: f.dev.cfg.Name, Time: time.Since(f.m.start)}
}

// tell tells of an attempt at a request. There is somebody to be told.
func (q *qp) tell(w *wqe, o Outcome, v *verdict, wait time.Duration) {
	e := RequestEvent{
		Origin: q.f.origin(), QPN: q.qpn, PeerQPN: q.attr.dest, Index: w.index, Blocks: w.blocks, Opcode: w.opcode, Flags: w.flags,
		Length: w.length, Segments: len(w.local), Inline: w.hasInline, Immediate: w.imm, Remote: w.remote, RKey: w.rkey,
		Outcome: o, Wait: wait, Route: q.route(w, o, v), RNRTimer: v.timer,
	}
	if q.typ == typeUD {
		e.PeerQPN = w.av.dqpn
	}
	if w.isAtomic() {
		e.SwapAdd, e.Compare = w.swapAdd, w.compare
	}
	if v.outcome == failed {
		e.Syndrome, e.Vendor = v.syndrome, v.vendor
	}
	q.d.m.observe(e)
}

// tell tells of a completion that takes an index. There is somebody to be told.
func (q *cq) tell(c *completion, index uint32, compressed bool) {
	q.d.m.observe(CompletionEvent{
		Origin: q.f.origin(), CQN: q.cqn, Index: index, QPN: c.qpn, SRQN: c.srqn, Opcode: c.opcode, SendOpcode: c.sendOp,
		Counter: c.counter, Length: c.bytes, Immediate: c.imm, SourceQPN: c.source & psnMask, Solicited: c.solicited,
		Inline: c.inline != nil, Compressed: compressed, Syndrome: c.syndrome, Vendor: c.vendor,
	})
}

// tell tells of a record that was put to the queue. There is somebody to be told.
func (e *EventQueue) tell(r *record) {
	d := DeliveryEvent{Origin: e.f.origin(), FD: e.fd, Completion: e.completion}
	d.Element, d.Type = r.fields()
	d.Kind, d.Number = e.f.reporter(r.reported)
	e.f.m.observe(d)
}

// reporter finds the object that counts its events there.
func (f *File) reporter(reported *uint32) (kind string, number uint32) {
	if reported == nil || f.ctx == nil {
		return "", 0
	}
	for _, o := range f.ctx.objects {
		switch o := o.(type) {
		case *cq:
			if reported == &o.comp || reported == &o.async {
				return kinds[rankCQ], o.cqn
			}
		case *qp:
			if reported == &o.async {
				return kinds[rankQP], o.qpn
			}
		case *srq:
			if reported == &o.async {
				return kinds[rankSRQ], o.srqn
			}
		}
	}
	return "", 0
}
