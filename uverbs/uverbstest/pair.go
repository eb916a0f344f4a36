package uverbstest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// PairOptions are the choices of [PairWith]. The zero value, and nil, are fine.
type PairOptions struct {
	// Fabric says what devices there are. The first is A's and the last B's: of one
	// device both ends are on it. Without any there are two, sim0 and sim1.
	Fabric sim.Options
	// Type is the transport; 0 means [uverbs.RC].
	Type uverbs.QPType
	// QP are the choices of both queue pairs. Its completion queues are filled in where
	// they are not given; its Inline is at least 64, and its PeerAccess allows all
	// if it is 0.
	QP uverbs.QPOptions
	// CQDepth is how many completions each of the two completion queues holds; 0
	// means twice what its queue pair can have outstanding.
	CQDepth int
	// NoEvents makes completion queues for busy polling only.
	NoEvents bool
	// Connect are the choices of the connection.
	Connect uverbs.ConnectOptions
	// Memory is how many bytes each end has registered; 0 means 64 KiB.
	Memory int
	// Patience is how long [End.Next] waits, and the end of the test for requests that
	// are under way; 0 means a minute. It is to be long: only what fails takes it.
	Patience time.Duration
}

// Link is a fabric with two ends that are connected.
type Link struct {
	*Fabric
	A, B *End
}

// End is one end of a [Link]. Everything in it is closed when the test is over; the test
// may do so before.
type End struct {
	// Name is "A" or "B".
	Name   string
	Device *uverbs.Device
	// Model is the other side of the device, for what a test does to it.
	Model *model.Device
	PD    *uverbs.PD
	// CQ is where both sides of QP complete.
	CQ *uverbs.CQ
	QP *uverbs.QP
	// Memory is all that MR is of, with every right.
	Memory *uverbs.Memory
	MR     *uverbs.MR

	// Peer is the memory of the other end.
	Peer uverbs.Remote
	// To is where datagrams to the other end go, on UD.
	To uverbs.Dest

	fabric   *Fabric
	t        testing.TB
	patience time.Duration
	events   bool // of CQ
}

// Pair makes two devices and connects them: see [PairWith].
func Pair(t testing.TB) *Link {
	t.Helper()
	return PairWith(t, nil)
}

// everything are the rights of the memory.
const everything = uverbs.LocalWrite | uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic | uverbs.MWBind

// inline is what queue pairs carry in requests at least.
const inline = 64

// PairWith makes two devices, on each a protection domain, a completion queue with events,
// a queue pair and registered memory, and connects the queue pairs, or on UD makes
// address handles. When the test is over everything is closed, and the test fails if
// something was left behind: see the package's documentation.
func PairWith(t testing.TB, opts *PairOptions) *Link {
	t.Helper()
	if opts == nil {
		opts = &PairOptions{}
	}
	o := *opts
	if o.Type == 0 {
		o.Type = uverbs.RC
	}
	if o.Memory == 0 {
		o.Memory = 1 << 16
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	f := NewFabric(t, &o.Fabric)
	models := f.Model().Devices()
	l := &Link{Fabric: f}
	t.Cleanup(l.finish)
	l.A = l.newEnd("A", models[0], &o)
	l.B = l.newEnd("B", models[len(models)-1], &o)
	l.A.join(l.B, &o)
	l.B.join(l.A, &o)
	return l
}

// newEnd makes one end.
func (l *Link) newEnd(name string, m *model.Device, o *PairOptions) *End {
	t := l.t
	t.Helper()
	e := &End{Name: name, Model: m, Device: l.Device(m.Name()), Memory: l.Alloc(o.Memory), fabric: l.Fabric, t: t, patience: o.Patience, events: !o.NoEvents}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var err error
	e.PD, err = e.Device.NewPD()
	check(err)
	e.MR, err = e.PD.Register(e.Memory.Bytes(), everything)
	check(err)
	qp := o.QP
	depth := o.CQDepth
	if depth == 0 {
		depth = 2 * (outstanding(qp.SendDepth) + outstanding(qp.RecvDepth))
	}
	e.CQ, err = e.Device.NewCQ(depth, &uverbs.CQOptions{Events: !o.NoEvents})
	check(err)
	if qp.CQ == nil {
		qp.CQ = e.CQ
	}
	qp.Inline = max(qp.Inline, inline)
	if qp.PeerAccess == 0 && o.Type == uverbs.RC {
		qp.PeerAccess = uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic
	}
	e.QP, err = e.PD.NewQP(o.Type, &qp)
	check(err)
	return e
}

// outstanding is how many requests a queue of that depth takes.
func outstanding(depth int) int {
	if depth == 0 {
		return 16
	}
	return depth
}

// join connects an end to another one.
func (e *End) join(to *End, o *PairOptions) {
	e.t.Helper()
	e.Peer = to.MR.Remote()
	var err error
	if o.Type == uverbs.UD {
		e.To.QPN = to.QP.QPN()
		e.To.AH, err = e.PD.NewAH(to.QP.Endpoint(), nil)
	} else {
		err = e.QP.Connect(e.t.Context(), to.QP.Endpoint(), &o.Connect)
	}
	if err != nil {
		e.t.Fatalf("%s: %v", e.Name, err)
	}
}

// finish closes both ends. It comes before the fabric's.
func (l *Link) finish() {
	l.t.Helper()
	l.heal()
	for _, e := range []*End{l.A, l.B} {
		if e != nil {
			e.drain()
		}
	}
	for _, e := range []*End{l.A, l.B} {
		if e != nil {
			e.close()
		}
	}
}

// drain waits for what is under way.
func (e *End) drain() {
	e.t.Helper()
	switch _, detach, err := e.CQ.Attach(func() {}); {
	case err == nil:
		detach()
	case errors.Is(err, uverbs.ErrBusy):
		// A second poller would do harm.
		e.t.Errorf("left behind: somebody still waits on the completion queue of %s: close the Waiter", e.Name)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.patience)
	defer cancel()
	switch err := e.QP.Drain(ctx, func(uverbs.WC) {}); {
	case err == nil, errors.Is(err, os.ErrClosed), errors.Is(err, uverbs.ErrDeviceGone):
	case errors.Is(err, uverbs.ErrOverrun):
		// The completions are lost, so nobody can say what ended.
	default:
		e.t.Errorf("left behind: requests of %s that do not end: %v", e.Name, err)
	}
	if s := e.CQ.Stats(); s.Stray > 0 {
		e.t.Errorf("%s: the device reported %d completions of nobody's requests", e.Name, s.Stray)
	}
}

// close closes what the kit made, but for the device and the memory, which are the
// fabric's.
func (e *End) close() {
	e.t.Helper()
	for _, o := range []struct {
		kind  string
		close func() error
	}{{"AH", e.closeAH}, {"QP", e.QP.Close}, {"MR", e.MR.Close}, {"CQ", e.CQ.Close}, {"PD", e.PD.Close}} {
		switch err := o.close(); {
		case err == nil, errors.Is(err, os.ErrClosed):
		case errors.Is(err, uverbs.ErrInUse):
			e.fabric.inUse(e.Device.Name(), o.kind)
			if o.kind == "CQ" && e.events {
				e.fabric.inUse(e.Device.Name(), "channel")
			}
		default:
			e.t.Errorf("close %s: %v", e.Name, err)
		}
	}
}

func (e *End) closeAH() error {
	if e.To.AH == nil {
		return nil
	}
	return e.To.AH.Close()
}
