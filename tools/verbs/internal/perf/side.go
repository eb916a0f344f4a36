package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
	"github.com/goverbs/goverbs/uverbs"
)

// Side is one side of a measurement.
type Side struct {
	cfg Config

	dev    *uverbs.Device
	mem    *uverbs.Memory
	cq     *uverbs.CQ
	pd     *uverbs.PD
	mr     *uverbs.MR
	ah     *uverbs.AH // of UD
	queues []queue

	port   uverbs.PortAttr
	inline int // what requests may carry, as far as the test uses it
	mtu    int // own, and after Meet the lesser of both sides'
	reads  int // reads at a time: own as the target, and after Meet as the initiator
	stride int // bytes of a queue pair's memory, each of what it sends and what it gets
	offer  offer
	peer   offer
	link   *link
	phase  int // how many have begun

	current int // size of the messages
}

// A queue is a queue pair, and how far it is in a phase.
type queue struct {
	sq   *uverbs.SendQueue
	rq   *uverbs.RecvQueue
	from uverbs.Span       // what is sent, or where reads go
	data []byte            // the same, to carry in the request; nil: it is not
	to   uverbs.RemoteAddr // where writes go, and reads come from
	dest uverbs.Dest       // of datagrams
	into uverbs.Span       // where receives go

	limit  int64 // messages to send
	posted int64
	done   int64 // sent, of those with a completion and those before them
	quiet  int   // requests until one has a completion
	taken  int   // receives that ended and were not posted again
	qp     *uverbs.QP
}

// Open makes all that a side needs on a device, up to queue pairs with receives posted. The
// device belongs to the side from then on, also when it fails. Close the side when done.
func Open(dev *uverbs.Device, cfg Config) (*Side, error) {
	s := &Side{cfg: cfg, dev: dev}
	err := s.cfg.Complete()
	if err == nil {
		err = s.open()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Side) open() (err error) {
	c := &s.cfg
	if err := s.limits(); err != nil {
		return err
	}
	sizes := s.sizes()
	s.offer.Sizes = sizes
	if err := s.memory(sizes[len(sizes)-1]); err != nil {
		return err
	}
	depth := c.QPs * (s.sendDepth() + s.recvDepth())
	if most := s.dev.Attr().MaxCQE; depth > most {
		return usage.Errorf("%s (-q) of which each sends %d (-t) and receives %d (-r) need room for %d completions at a time: a completion queue of %s holds %d: choose fewer",
			plural.Of(c.QPs, "queue pair"), s.sendDepth(), s.recvDepth(), depth, s.dev.Name(), most)
	}
	if n := s.dev.CompletionVectors(); c.Vector >= n && c.Vector > 0 {
		return usage.Errorf("completion vector (-X) %d: %s has vectors 0 to %d", c.Vector, s.dev.Name(), n-1)
	}
	if s.cq, err = s.dev.NewCQ(depth, &uverbs.CQOptions{Events: c.Wait != Busy, Vector: c.Vector}); err != nil {
		return err
	}
	s.queues = make([]queue, c.QPs)
	for i := range s.queues {
		if err := s.newQueue(i); err != nil {
			return err
		}
	}
	s.describe()
	return nil
}

// source is where packets come from.
func (s *Side) source() uverbs.Source {
	if s.cfg.GIDIndex == DefaultGID {
		return uverbs.FromPort(s.cfg.IBPort)
	}
	return uverbs.FromGID(s.cfg.IBPort, s.cfg.GIDIndex)
}

// sendDepth and recvDepth are the depths of this side's queues, at least 1.
func (s *Side) sendDepth() int {
	if !s.cfg.sends() {
		return 1
	}
	return s.cfg.SendDepth
}

func (s *Side) recvDepth() int {
	if !s.cfg.receives() {
		return 1
	}
	return s.cfg.RecvDepth
}

// limits checks the choices against what the device allows.
func (s *Side) limits() (err error) {
	c, name, attr := &s.cfg, s.dev.Name(), s.dev.Attr()
	if n := s.dev.Info().Ports; n > 0 && c.IBPort > n {
		return usage.Errorf("port (-i) %d of %s: it has ports 1 to %d", c.IBPort, name, n)
	}
	if s.port, err = s.dev.PortAttr(c.IBPort); err != nil {
		return err
	}
	s.mtu = s.port.ActiveMTU
	if s.mtu == 0 {
		s.mtu = 1024
	}
	if c.MTU > s.mtu {
		return usage.Errorf("path MTU (-m) %d: port %d of %s takes %d at most", c.MTU, c.IBPort, name, s.mtu)
	}
	if c.MTU > 0 {
		s.mtu = c.MTU
	}
	if c.Transport == "UD" && c.Size > s.mtu {
		return usage.Errorf("message size (-s) %d: a datagram is one packet, of %d bytes at most on port %d of %s", c.Size, s.mtu, c.IBPort, name)
	}
	if uint64(c.Size) > uint64(s.port.MaxMessage) {
		return usage.Errorf("message size (-s) %d: port %d of %s takes %d at most", c.Size, c.IBPort, name, s.port.MaxMessage)
	}
	for _, d := range []struct {
		name, flag string
		value      int
	}{{"send depth", "-t", s.sendDepth()}, {"receive depth", "-r", s.recvDepth()}} {
		if d.value > attr.MaxQPWR {
			return usage.Errorf("%s (%s) %d: a queue pair of %s takes %d at most", d.name, d.flag, d.value, name, attr.MaxQPWR)
		}
	}
	if c.Test.answers() {
		most := min(attr.MaxQPReadDepth, attr.MaxQPInitReadDepth)
		if c.ReadDepth > most {
			return usage.Errorf("outstanding reads (-o) %d: a queue pair of %s takes %d at most", c.ReadDepth, name, most)
		}
		// What goes into a byte, as the packets have it.
		s.reads = min(most, 255)
		if c.ReadDepth > 0 {
			s.reads = c.ReadDepth
		}
	}
	if c.Test.Verb == Atomic && attr.Atomic == uverbs.AtomicNone {
		return fmt.Errorf("%s has no atomic operations", name)
	}
	return nil
}

// sizes are the sizes of the messages, in turn.
func (s *Side) sizes() []int {
	c := &s.cfg
	most := min(largestAll, int(min(s.port.MaxMessage, largestAll)))
	if c.Transport == "UD" {
		most = s.mtu
	}
	switch {
	case c.All:
		var all []int
		for n := 2; n <= most; n *= 2 {
			all = append(all, n)
		}
		return all
	case c.Size == 0: // UD
		return []int{most}
	}
	return []int{c.Size}
}

// page is how queue pairs' memory is aligned: no two share a page, as long as messages have
// one.
const (
	page = 4096
	line = 64 // of a cache
)

// memory allocates what is sent, one piece for each queue pair, and behind that as much
// for what comes.
func (s *Side) memory(largest int) error {
	c := &s.cfg
	s.stride = roundUp(largest+uverbs.GRHLen+8, line)
	if s.stride > page/2 {
		s.stride = roundUp(s.stride, page)
	}
	if total := 2 * int64(s.stride) * int64(c.QPs); total > maxBuffers {
		return usage.Errorf("messages of up to %d bytes (-s, -a) on %s (-q) need %d bytes of memory, where %d are allowed: choose fewer or less", largest, plural.Of(c.QPs, "queue pair"), total, int64(maxBuffers))
	}
	var err error
	if s.mem, err = uverbs.Alloc(2*s.stride*c.QPs, &uverbs.MemoryOptions{HugePages: c.HugePages}); err != nil {
		return err
	}
	if s.pd, err = s.dev.NewPD(); err != nil {
		return err
	}
	s.mr, err = s.pd.Register(s.mem.Bytes(), uverbs.LocalWrite|s.access())
	return err
}

// access is what the other side may do.
func (s *Side) access() uverbs.Access {
	switch s.cfg.Test.Verb {
	case Write:
		return uverbs.RemoteWrite
	case Read:
		return uverbs.RemoteRead
	case Atomic:
		return uverbs.RemoteAtomic
	}
	return 0
}

// out and in are where the memory of a queue pair begins.
func (s *Side) out(i int) int { return i * s.stride }
func (s *Side) in(i int) int  { return (s.cfg.QPs + i) * s.stride }

// newQueue makes a queue pair and posts its receives.
func (s *Side) newQueue(i int) error {
	c := &s.cfg
	access := s.access()
	if access == 0 {
		access = uverbs.NoAccess
	}
	o := uverbs.QPOptions{CQ: s.cq, SendDepth: s.sendDepth(), RecvDepth: s.recvDepth(), Source: s.source(), PeerAccess: access, Inline: s.wantInline()}
	qp, err := s.pd.NewQP(c.qpType(), &o)
	if err != nil && c.Inline < 0 && o.Inline > 0 {
		// It was nobody's wish that requests carry so much.
		o.Inline = 0
		qp, err = s.pd.NewQP(c.qpType(), &o)
	}
	if err != nil {
		if errors.Is(err, uverbs.ErrInvalid) {
			return usage.Errorf("%v", err) // which says what is allowed
		}
		if c.Inline > 0 {
			return usage.Errorf("%v: the device may take less inline than %d bytes (-I)", err, c.Inline)
		}
		return err
	}
	q := &s.queues[i]
	q.qp, q.sq, q.rq = qp, qp.SendQueue(), qp.RecvQueue()
	if i == 0 {
		s.inline = min(qp.Limits().Inline, s.wantInline())
	}
	if !c.receives() {
		return nil
	}
	largest := s.offer.Sizes[len(s.offer.Sizes)-1]
	if c.Transport == "UD" {
		largest += uverbs.GRHLen
	}
	q.into = s.mr.Span(s.in(i), largest)
	return q.refill(uint64(i), c.RecvDepth)
}

// wantInline is how much requests should carry.
func (s *Side) wantInline() int {
	c := &s.cfg
	switch {
	case c.Test.answers() || !c.sends():
		return 0
	case c.Inline >= 0:
		return c.Inline
	case !c.Test.Latency:
		return 0
	case c.Test.Verb == Write:
		return inlineWrite
	case c.Transport == "UD":
		return inlineUD
	}
	return inlineSend
}

// refill posts n receives.
func (q *queue) refill(id uint64, n int) error {
	for range n {
		q.rq.Recv(id, q.into)
	}
	return q.rq.Flush()
}

// replenish posts receives in the place of all that have ended: a message that finds none
// is lost on UC and UD, so what a phase has left over would be missing in the next.
func (s *Side) replenish() error {
	for i := range s.queues {
		q := &s.queues[i]
		if q.taken == 0 {
			continue
		}
		if err := q.refill(uint64(i), q.taken); err != nil {
			return err
		}
		q.taken = 0
	}
	return nil
}

// describe fills in what this side offers.
func (s *Side) describe() {
	c, o := &s.cfg, &s.offer
	o.Test, o.Transport, o.Iters, o.DurationNsec, o.Warmup = c.Test.String(), c.Transport, c.Iters, int64(c.Duration), c.Warmup
	o.Bidirectional, o.Atomic, o.QPs = c.Bidirectional, c.Atomic, c.QPs
	o.Device, o.MTU, o.ReadDepth, o.LID = s.dev.Name(), s.mtu, s.reads, s.port.LID
	for _, q := range s.queues {
		e := q.qp.Endpoint()
		o.Endpoints = append(o.Endpoints, endpoint{e.QPN, e.PSN})
		o.GID, o.QKey = e.GID.String(), e.QKey
	}
	r := s.mr.Remote()
	back := uint64(s.in(0))
	o.Region, o.Stride = region{r.Addr + back, r.Length - back, r.RKey}, uint64(s.stride)
}

// Meet tells the other side, at the other end of conn, what this one offers, and connects
// the queue pairs. conn belongs to the side from then on. Where the sides want different
// things both fail, with what those are.
func (s *Side) Meet(ctx context.Context, conn net.Conn) error {
	s.link = newLink(conn)
	ctx, cancel := context.WithTimeoutCause(ctx, politeness, fmt.Errorf("the other side has said nothing for %v", politeness))
	defer cancel()
	if err := s.link.send(message{Offer: &s.offer}); err != nil {
		return err
	}
	m, err := s.link.next(ctx)
	if err != nil {
		return err
	}
	if m.Offer == nil {
		return s.refuse(errOutOfTurn)
	}
	s.peer = *m.Offer
	if err := s.offer.disagree(&s.peer); err != nil {
		return s.refuse(err)
	}
	if err := s.peer.check(&s.offer); err != nil {
		return s.refuse(err)
	}
	s.mtu, s.reads = min(s.mtu, s.peer.MTU), min(s.reads, s.peer.ReadDepth)
	if err := s.connect(ctx); err != nil {
		return s.refuse(err)
	}
	return nil
}

var errOutOfTurn = errors.New("the other side speaks out of turn: it is a broken verbs perf")

// refuse tells the other side why this one does not go on, and returns that. A side whose
// wishes differ knows that itself.
func (s *Side) refuse(err error) error {
	if bad := (*usage.Error)(nil); !errors.As(err, &bad) {
		s.link.send(message{Result: &result{Error: err.Error()}})
	}
	return err
}

// connect connects the queue pairs in turn.
func (s *Side) connect(ctx context.Context) (err error) {
	c := &s.cfg
	gid, err := parseGID(s.peer.GID)
	if err != nil {
		return err
	}
	o := uverbs.ConnectOptions{
		MTU: s.mtu, AckTimeout: ackTimeout(c.Timeout), Retries: 7, RNRRetries: uverbs.RetryForever, ReadDepth: max(s.reads, 1),
		HopLimit: uint8(c.HopLimit), TrafficClass: uint8(c.TrafficClass), ServiceLevel: uint8(c.ServiceLevel),
	}
	for i := range s.queues {
		q, e := &s.queues[i], s.peer.Endpoints[i]
		q.to = s.peer.remote(i)
		to := uverbs.Endpoint{QPN: e.QPN, PSN: e.PSN, GID: gid, LID: s.peer.LID}
		if c.Transport != "UD" {
			if err := q.qp.Connect(ctx, to, &o); err != nil {
				return err
			}
			continue
		}
		if s.ah == nil { // the same for all
			if s.ah, err = s.pd.NewAH(to, &uverbs.AHOptions{Source: s.source(), HopLimit: o.HopLimit, TrafficClass: o.TrafficClass, ServiceLevel: o.ServiceLevel}); err != nil {
				return err
			}
		}
		q.dest = uverbs.Dest{AH: s.ah, QPN: e.QPN, QKey: s.peer.QKey}
	}
	return nil
}

// ackTimeout is the time of an exponent; 0 is for ever, as in the packets.
func ackTimeout(exponent int) time.Duration {
	if exponent == 0 {
		return uverbs.AckTimeoutForever
	}
	return 4096 * time.Nanosecond << exponent
}

// Sizes are the sizes to measure, in turn.
func (s *Side) Sizes() []int { return s.offer.Sizes }

// Config is what is measured, with all defaults.
func (s *Side) Config() Config { return s.cfg }

// Source is the local GID that packets come from.
func (s *Side) Source() uverbs.GIDEntry { return s.queues[0].qp.Source() }

// Close gives back everything.
func (s *Side) Close() error {
	var errs []error
	if s.link != nil {
		errs = append(errs, s.link.Close())
	}
	if s.dev != nil {
		errs = append(errs, s.dev.Close())
	}
	if s.mem != nil {
		errs = append(errs, s.mem.Close())
	}
	return errors.Join(errs...)
}
