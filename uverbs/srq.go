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

// SRQ is a shared receive queue: receives that any of several queue pairs takes
// when a message arrives, so that a server posts for all its peers together.
//
// A receive completes on the CQ of the queue pair that took it, whose number is
// WC.QPN; the id is the one that the SRQ's own RecvQueue was given. One goroutine
// at a time posts; the CQs may each have a poller of their own. All other methods
// may be called from any goroutine.
//
// On soft-RoCE, and only there, a receive is lost for good if its queue pair is
// closed, reset or fails while a message of several packets is half in it: it
// then counts as outstanding until the SRQ is closed.
type SRQ struct {
	object
	pd        *PD
	index     *userIndex
	half      srqHalf
	shared    *cq.SharedRequests
	rq        RecvQueue
	sge       int
	closing   atomic.Bool
	dropped   atomic.Bool // its device is closed, and its ring gone
	calls     gate        // one call to the kernel at a time, and Close after it
	lost      error       // why there is no ring any more; the poster's
	discarded atomic.Bool // Close was called: nobody is to hear of what is posted

	claims  map[*CQ]int // queue pairs by CQ; guarded by the device's mu
	claimed int         // the depth that is counted against each of them; likewise
}

// SRQOptions are the choices of NewSRQ. The zero value, and nil, mean 16 receives
// of one span each.
type SRQOptions struct {
	// Depth is how many receives may be outstanding; 0 means 16. It counts
	// once against the depth of every CQ on which they may complete.
	Depth int
	// SGE is how many spans a receive may have; 0 means 1.
	SGE int
	// Limit asks for an event, as SetLimit does; 0 for none.
	Limit int
}

// NewSRQ makes a shared receive queue for queue pairs of the protection domain:
// see QPOptions.SRQ.
func (pd *PD) NewSRQ(opts *SRQOptions) (*SRQ, error) {
	const op = "create SRQ"
	d := pd.dev
	var o SRQOptions
	if opts != nil {
		o = *opts
	}
	if !d.provides() {
		return nil, d.noProvider(op)
	}
	if d.attr.MaxSRQ == 0 {
		return nil, fmt.Errorf("goverbs: %s: %s: %w by this device", d.info.Name, op, ErrNotSupported)
	}
	if o.Depth == 0 {
		o.Depth = defaultDepth // which bounds Limit, too
	}
	for _, f := range []struct {
		name        string
		value       *int
		zero, least int
		allowed     int
	}{
		{"Depth", &o.Depth, 0, 1, d.maxSRQDepth()},
		{"SGE", &o.SGE, 1, 1, d.attr.MaxSRQSGE},
		{"Limit", &o.Limit, 0, 0, o.Depth},
	} {
		if *f.value == 0 {
			*f.value = f.zero
		}
		if *f.value < f.least || *f.value > f.allowed {
			return nil, invalid("%s: %s %d: %s allows %d to %d", op, f.name, *f.value, d.info.Name, f.least, f.allowed)
		}
	}
	done, err := d.making(kindSRQ, &pd.object)
	if err != nil {
		return nil, err
	}
	defer done()
	s := &SRQ{object: object{dev: d, kind: kindSRQ, id: d.nextID()}, pd: pd, sge: o.SGE, claims: make(map[*CQ]int), claimed: o.Depth, calls: newGate()}
	s.letGo = s.letGoRing
	if err := s.create(op, &o); err != nil {
		return nil, err
	}
	if err := d.hold(s, &pd.object); err != nil {
		s.shut()
		s.free()
		return nil, err
	}
	return s, nil
}

// create makes the kernel's object, maps its ring and enters it where pollers
// look.
func (s *SRQ) create(op string, o *SRQOptions) error {
	d := s.dev
	n, ok := d.endpoints.Reserve()
	if !ok {
		return invalid("%s: %s has %d queue pairs and SRQs, no more are possible", op, d.info.Name, cq.MaxEndpoints)
	}
	// One is for the SRQ itself, and one for every queue pair of it whose
	// completions may be in some ring.
	s.index = &userIndex{n: n, home: &d.endpoints}
	s.index.cqs.Store(1)
	s.half = d.provider.newSRQ(s)
	depth, sge := make([]byte, 4), make([]byte, 4)
	r := newRequest(d.driver, abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_CREATE)
	r.create(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE)
	r.handle(abi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, s.pd.handle)
	r.constant(abi.UVERBS_ATTR_CREATE_SRQ_TYPE, uint64(abi.IB_UVERBS_SRQT_BASIC))
	r.in64(abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, s.id)
	r.in32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE, uint32(o.SGE))
	r.in32(abi.UVERBS_ATTR_CREATE_SRQ_LIMIT, uint32(o.Limit))
	r.out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, depth)
	r.out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, sge)
	if d.async != nil {
		r.fd(abi.UVERBS_ATTR_CREATE_SRQ_EVENT_FD, d.async.file.FD())
	}
	s.shared = cq.NewSharedRequests(uint32(o.Depth))
	err := s.half.create(r, o, s.shared)
	if err == nil {
		err = d.call(op, r)
	}
	if err != nil {
		s.half.detach(true)
		d.endpoints.Release(n)
		var e *Error
		if errors.As(err, &e) && isErrno(err, syscall.EINVAL, syscall.ENOMEM) {
			e.Hint = fmt.Sprintf("asked for %d receives of %d spans", o.Depth, o.SGE)
		}
		return err
	}
	s.handle = uint32(r.result(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE))
	ring, err := s.half.made(op, o.Depth, native.Uint32(sge))
	if err != nil {
		s.half.detach(s.destroy() == nil)
		d.endpoints.Release(n)
		return err
	}
	s.rq = RecvQueue{srq: s, table: s.shared, ring: ring, index: s.index.n, sges: make([]cq.SGE, 0, s.sge)}
	d.endpoints.Set(s.index.n, &cq.Endpoint{QPN: cq.NoQPN, Shared: s.shared})
	return nil
}

// join makes a new queue pair, which cannot receive yet, a member.
func (s *SRQ) join(q *CQ, ep *cq.Endpoint) *cq.Member {
	m := &q.mailbox
	m.mu.Lock() // the ring may be replaced
	defer m.mu.Unlock()
	return s.shared.Join(ep, &q.state, q.ring.Produced())
}

// leave forgets a queue pair none of whose completions is left on its CQ.
func (s *SRQ) leave(q *CQ, m *cq.Member) {
	if m != nil {
		s.shared.Remove(m)
	}
	s.disclaim(q)
	s.index.passed()
}

// disclaim is for a queue pair less that uses the SRQ with a CQ.
func (s *SRQ) disclaim(q *CQ) {
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	if s.claims[q]--; s.claims[q] == 0 {
		delete(s.claims, q)
		q.committed -= s.claimed
	}
}

// RecvQueue is where receives are posted. One goroutine at a time uses it.
func (s *SRQ) RecvQueue() *RecvQueue { return &s.rq }

// Depth is how many receives may be outstanding: what NewSRQ, or the last Resize,
// was asked for.
func (s *SRQ) Depth() int { return s.shared.Depth() }

// SetLimit asks for one EventSRQLimitReached, on Device.Events, when fewer than
// limit receives are left; 0 asks for none. The event uses the limit up: set it
// again after posting.
func (s *SRQ) SetLimit(limit int) error {
	const op = "set SRQ limit"
	if limit < 0 || limit > s.Depth() {
		return invalid("%s: %d: the queue takes 0 to %d", op, limit, s.Depth())
	}
	const limitMask = 1 << 1 // IB_SRQ_LIMIT of enum ib_srq_attr_mask
	in := &abi.UverbsModifySRQ{SRQHandle: s.handle, AttrMask: limitMask, SRQLimit: uint32(limit)}
	r := newCommand(s.dev.driver, abi.IB_USER_VERBS_CMD_MODIFY_SRQ, in.Bytes(), nil)
	s.half.limit(r)
	s.calls.Lock()
	defer s.calls.Unlock()
	return s.call(op, r)
}

// Limit asks the kernel for the limit that is set, 0 if there is none or it was
// reached.
func (s *SRQ) Limit() (int, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	return s.limit()
}

// limit is Limit with calls held.
func (s *SRQ) limit() (int, error) {
	in, out := &abi.UverbsQuerySRQ{SRQHandle: s.handle}, new(abi.UverbsQuerySRQResp)
	err := s.call("query SRQ", newCommand(s.dev.driver, abi.IB_USER_VERBS_CMD_QUERY_SRQ, in.Bytes(), out.Bytes()))
	return int(out.SRQLimit), err
}

// call runs a request. calls is held.
func (s *SRQ) call(op string, r *request) error {
	if s.closing.Load() {
		return fmt.Errorf("goverbs: %s: %s: %w", s.dev.info.Name, op, s.whyClosing())
	}
	return s.dev.call(op, r)
}

// whyClosing is why closing is set.
func (s *SRQ) whyClosing() error {
	if s.dev.lost.Load() {
		return ErrDeviceGone
	}
	return os.ErrClosed
}

// Close destroys the queue. It returns ErrInUse while queue pairs use it.
// Receives that no queue pair took are discarded; a goroutine that is posting
// gets os.ErrClosed.
func (s *SRQ) Close() error {
	if err := s.retire(); err != nil {
		return err
	}
	if err := s.shut(); err != nil {
		s.closing.Store(s.dropped.Load())
		s.revive()
		return err
	}
	defer s.release()
	return s.free()
}

// shut destroys the kernel's object.
func (s *SRQ) shut() error {
	s.calls.Lock()
	s.closing.Store(true)
	s.calls.Unlock()
	return s.destroy()
}

// free lets go of what is left after that.
func (s *SRQ) free() error {
	s.discarded.Store(true)
	s.dev.endpoints.Set(s.index.n, &cq.Endpoint{QPN: cq.NoQPN, Closed: true})
	s.index.passed()
	if err := s.half.detach(true); err != nil {
		return &Error{Op: "destroy SRQ", Device: s.dev.info.Name, Err: err}
	}
	return nil
}

// drop lets go of the ring of a queue that could not be closed, before its device
// goes.
func (s *SRQ) drop() {
	s.calls.Lock() // a resize exchanges the ring
	defer s.calls.Unlock()
	s.dropped.Store(true)
	s.closing.Store(true)
	s.half.detach(false)
}

func (s *SRQ) destroy() error {
	return s.dev.destroy("destroy SRQ", abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_DESTROY, s.handle, new(abi.UverbsDestroySRQResp).Bytes())
}
