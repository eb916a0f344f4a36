package uverbs

import (
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/rxe"
)

// Explanation is what is known of a completion, most of all of one that failed. String
// is a text of it for people.
type Explanation struct {
	WC     WC
	Device string
	// Type and State are of the queue pair, the latter as it is now, and ERR where the
	// device is gone. Type is 0 if the queue pair is closed, and then all that follows
	// but Fault, Remedy and Vendor is unknown.
	Type  QPType
	State QPState
	// Fault and Remedy are those of the status; that of a flushed request asks for no
	// less than its cause does, and that of any that failed for cq.RemedyReopen where
	// the device is gone.
	Fault  cq.Fault
	Remedy cq.Remedy
	// Vendor is what the device's own code means, empty if it gave none, or nobody
	// knows.
	Vendor string
	// Request is the request, nil if it is not remembered any more.
	Request *PastRequest
	// PeerQPN and Peer are whom the queue pair is connected to; zero if it is not.
	PeerQPN uint32
	Peer    GID
	// Began is when the queue pair was made, or left RESET last.
	Began time.Time
	// First is the first failure of the queue pair, as QP.FirstFailure; nil if
	// there is none. FailedAt is when Poll returned it. IsFirst: it is this one.
	First    *WC
	FailedAt time.Time
	IsFirst  bool
	// Cause is QP.Cause.
	Cause error
	// Before are requests of the same queue that were posted right before this one,
	// 16 at most, oldest first: those that are remembered, and none of a time before
	// the queue pair was connected.
	Before []PastRequest
	// Unknown says what is not known, and why.
	Unknown []string
}

// PastRequest is a request that was posted.
type PastRequest struct {
	ID    uint64
	Op    Opcode
	Bytes uint32 // that it was posted with
	End   Ending

	// Spans are the pieces of local memory, and Inline says that the request
	// carried its data instead. Remote says that it names the peer's memory; DestQPN
	// is whom a datagram goes to. They are known of the request that is explained
	// only, and only if Details says so.
	Details    bool
	Unsignaled bool
	Spans      []PastSpan
	Inline     bool
	Remote     bool
	RemoteAddr uint64
	RKey       uint32
	DestQPN    uint32
}

// PastSpan is a piece of local memory as a request names it.
type PastSpan struct {
	Addr   uint64
	Length uint32
	LKey   uint32
	// Region is the open memory region with the key, nil if there is none.
	Region *MR
}

// Ending is how a request ended.
type Ending uint8

// The ways to end, as far as they are known.
const (
	EndNone    Ending = iota // outstanding
	EndSuccess               // of a quiet request: no failure of it is known, and one after it ended
	EndFailed
	EndFlushed
	EndUnknown // with success, or flushed: the first failure was on the other side
)

var endings = [...]string{"outstanding", "succeeded", "failed", "flushed", "ended"}

// String says it in a word.
func (e Ending) String() string {
	if int(e) < len(endings) {
		return endings[e]
	}
	return "unknown"
}

// before is how many requests before the one that failed are explained.
const before = 16

// Explain says what is known of a completion of the queue: what the request was, to and
// from which memory, who the peer is, what the status and the device's own code mean,
// whose fault it is and what helps, whether it is the first failure of its queue pair or
// which one caused it, and what was posted right before. It is for the goroutine that
// polls, best at once: of the queue pair only numbers are kept when it fails, and all
// else is read back from the table of its requests and from its rings, where it stands
// until the poster has gone round once. Unknown tells what was gone by then, and so may
// be nothing of what a queue pair was before it was reset. Requests are found by WC.ID:
// of several with one id, unless one is the first failure, it is the latest that ended.
//
// It asks the kernel for the peer. Programs that do not call it do not contain it.
func (q *CQ) Explain(w *WC) *Explanation {
	e := &Explanation{WC: *w, Device: q.dev.info.Name, Fault: w.Status.Fault(), Remedy: w.Status.Remedy()}
	if w.VendorErr != 0 && w.VendorErr <= 0xff && q.dev.info.Driver == DriverMlx5 {
		if v := mlx5.VendorSyndrome(w.VendorErr); v.Known() {
			e.Vendor = v.String()
		}
	}
	gone := q.dev.lost.Load()
	if gone && w.Status != StatusSuccess {
		e.Remedy = cq.RemedyReopen
	}
	qp := q.QP(w.QPN)
	if qp == nil {
		e.unknown("the queue pair is closed")
		return e
	}
	if e.Type, e.State = qp.typ, qp.State(); gone {
		e.State = StateErr
	}
	qp.modify.Lock()
	first, failed := qp.failures.First()
	began, begun := qp.failures.Since(w.Side)
	qp.modify.Unlock()
	e.Began, e.Cause = began, qp.Cause()
	if failed {
		e.First, e.FailedAt, e.IsFirst = &first.WC, first.At, first.WC == *w
		if w.Status == StatusFlushed {
			e.Remedy = max(e.Remedy, first.WC.Status.Remedy())
		}
	}
	p := past{e: e, qp: qp, first: first, failed: failed, begun: begun}
	if w.Side == RecvSide && qp.srq != nil {
		p.shared()
	} else {
		p.own()
	}
	e.peer(qp)
	return e
}

func (e *Explanation) unknown(what string) { e.Unknown = append(e.Unknown, what) }

// peer asks whom the queue pair is connected to.
func (e *Explanation) peer(qp *QP) {
	switch i, err := qp.Query(); {
	case err != nil:
		e.unknown("state and peer: " + err.Error())
	case qp.typ == UD:
		e.State = i.State
	case i.DestQPN == 0 && i.DestGID.IsZero():
		e.State = i.State
		e.unknown("the peer: the queue pair is not connected any more")
	default:
		e.State, e.PeerQPN, e.Peer = i.State, i.DestQPN, i.DestGID
	}
}

// past looks for a request and those before it.
type past struct {
	e      *Explanation
	qp     *QP
	first  cq.Failure // if failed
	failed bool
	begun  uint32 // the first number of the side since the queue pair was made new
}

// own is for queues of the queue pair's own.
func (p *past) own() {
	e, r := p.e, p.qp.sq.requests
	if e.WC.Side == RecvSide {
		r = p.qp.rq.requests
	}
	seq := p.first.Seq
	if !e.IsFirst {
		found, ok := r.Latest(e.WC.ID, p.begun)
		if !ok {
			e.unknown("the request: others have its place, or its queue pair was reset")
			return
		}
		seq = found.Seq
	}
	all := r.Recall(seq, p.begun, before+1)
	if len(all) == 0 && !e.IsFirst {
		e.unknown("the request: others have its place")
		return
	}
	if len(all) == 0 { // of the first failure, numbers are kept
		e.Request = &PastRequest{ID: e.WC.ID, Op: p.first.Op, Bytes: p.first.Bytes, End: EndFailed}
		e.unknown("its memory, and the requests before it: others have their places")
		return
	}
	request := all[len(all)-1]
	for _, b := range all[:len(all)-1] {
		if !b.Silent {
			e.Before = append(e.Before, *p.request(b))
		}
	}
	if n := min(before, int(seq-p.begun)); len(all)-1 < n {
		e.unknown(plural(n-len(all)+1, "request") + " before it: others have their places")
	}
	e.Request = p.request(request)
	switch e.WC.Status { // of this one it is known
	case StatusSuccess:
		e.Request.End = EndSuccess
	case StatusFlushed:
		e.Request.End = EndFlushed
	default:
		e.Request.End = EndFailed
	}
	// Only now does it show whether what was read is of this request.
	if !p.details(request) || len(r.Recall(seq, p.begun, 1)) == 0 {
		e.Request.Spans, e.Request.Details = nil, false
		e.unknown("its memory: another request has its place in the ring, or the device was reset")
	}
}

// request is a request but for its details.
func (p *past) request(r cq.Past) *PastRequest {
	return &PastRequest{ID: r.ID, Op: r.Op, Bytes: r.Bytes, End: p.ending(r)}
}

// ending is how a request ended.
func (p *past) ending(r cq.Past) Ending {
	side := p.e.WC.Side
	switch d := int32(r.Seq - p.first.Seq); {
	case !r.Ended && !(r.Quiet && p.failed && p.first.WC.Side == side && d < 0):
		return EndNone
	case !p.failed && p.e.WC.Status != StatusFlushed, p.failed && p.first.WC.Side == side && d < 0:
		return EndSuccess
	case !p.failed, p.first.WC.Side != side:
		return EndUnknown
	case d == 0:
		return EndFailed
	}
	return EndFlushed
}

// details reads the request back from where the device reads it. It says whether it was
// there.
func (p *past) details(r cq.Past) bool {
	var sends cq.SendRequest
	var sges []cq.SGE
	ok := false
	qp, to := p.qp, p.e.Request
	wrid := cq.MakeWRID(qp.index.n, p.e.WC.Side, r.Seq)
	if p.e.WC.Side == RecvSide {
		switch ring := qp.rq.ring.(type) {
		case *rxe.RQ:
			sges, ok = ring.Posted(wrid)
		case *mlx5.RQ:
			sges, ok = ring.Posted(r.Position), true
		}
		to.spans(qp.dev, sges)
		to.Details = ok
		return ok
	}
	posted := qp.sq.ring
	if s, ok := posted.(interface{ inner() cq.SendRing }); ok {
		posted = s.inner() // the queue is timed
	}
	switch ring := posted.(type) {
	case *rxe.SQ:
		sends, ok = ring.Posted(wrid)
	case *mlx5.SQ:
		sends, ok = ring.Posted(r.Position)
	}
	if !ok || sends.Op != r.Op {
		return false
	}
	to.Details, to.Inline = true, sends.Flags&cq.Inline != 0
	to.Unsignaled = sends.Flags&cq.Unsignaled != 0
	to.spans(qp.dev, sends.SGEs)
	switch r.Op {
	case OpWrite, OpWriteImm, OpRead, OpCompareSwap, OpFetchAdd, OpFlush, OpAtomicWrite:
		to.Remote, to.RemoteAddr, to.RKey = true, sends.RemoteAddr, sends.RKey
	case OpBindMW:
		to.spans(qp.dev, []cq.SGE{{Addr: sends.RemoteAddr, Length: uint32(sends.WindowBytes), LKey: sends.WindowLKey}})
	}
	if qp.typ == UD {
		to.DestQPN = sends.DestQPN
	}
	return true
}

// shared is for receives of a shared queue, which has no order.
func (p *past) shared() {
	e, s := p.e, p.qp.srq
	e.unknown("what was posted before: a shared queue has no order")
	if !e.IsFirst {
		e.unknown("the receive: a shared queue forgets it when it ends")
		return
	}
	e.Request = &PastRequest{ID: e.WC.ID, Op: OpRecv, End: EndFailed}
	var sges []cq.SGE
	ok := false
	s.calls.Lock() // a resize exchanges the ring
	switch ring := s.rq.ring.(type) {
	case *rxe.RQ:
		sges, ok = ring.Posted(cq.MakeWRID(s.index.n, RecvSide, p.first.Seq))
	case *mlx5.SRQ:
		if pos, there := s.shared.Where(p.first.Seq); there {
			sges = ring.Posted(pos)
			again, still := s.shared.Where(p.first.Seq)
			ok = still && again == pos
		}
	}
	s.calls.Unlock()
	if !ok {
		e.unknown("its memory: another receive has its place in the ring")
		return
	}
	e.Request.Details = true
	e.Request.spans(s.dev, sges)
	for _, g := range sges {
		e.Request.Bytes += g.Length
	}
}

// spans adds pieces of local memory.
func (r *PastRequest) spans(d *Device, sges []cq.SGE) {
	regions := d.ofKind(kindMR)
	for _, g := range sges {
		s := PastSpan{Addr: g.Addr, Length: g.Length, LKey: g.LKey}
		for _, c := range regions {
			if mr := c.(*MR); mr.LKey() == g.LKey {
				s.Region = mr
			}
		}
		r.Spans = append(r.Spans, s)
	}
}
