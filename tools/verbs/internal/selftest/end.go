package selftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tools/internal/uname"
	"github.com/goverbs/goverbs/uverbs"
)

// An end is one end of a test: a device opened for it alone, with one queue pair. It
// carries out orders, one at a time.
type end struct {
	name   string // "a" or "b"
	open   func() (*uverbs.Device, error)
	marker []byte
	record func(e *end, w *uverbs.WC)              // nil without -record
	tamper func(e *end, w []uverbs.WC) []uverbs.WC // of tests: what a broken device would do

	spec    Spec
	dev     *uverbs.Device
	pd      *uverbs.PD
	mem     *uverbs.Memory
	mr      *uverbs.MR
	foreign *uverbs.MR // of another protection domain
	cq      *uverbs.CQ
	qp      *uverbs.QP
	srq     *uverbs.SRQ
	mw      *uverbs.MW
	peer    uverbs.Remote
	to      uverbs.Dest
	group   uverbs.Dest
	member  net.PacketConn
	again   *recovery // that is under way

	polled []uverbs.WC   // and not yet taken
	stall  time.Duration // how long a stream may stand still; 0: as long as its order lasts
}

// do carries out an order.
func (e *end) do(ctx context.Context, o *Order) *Answer {
	a := new(Answer)
	err := o.check()
	if err == nil && o.Do != doMake && e.qp == nil && o.Do != doClose {
		err = fmt.Errorf("%q before %q", o.Do, doMake)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(o.Patience*float64(time.Second)))
		err = e.carryOut(ctx, o, a)
		cancel()
	}
	if err != nil {
		f := failed(err)
		f.Done = a.Done
		return f
	}
	return a
}

func (e *end) carryOut(ctx context.Context, o *Order, a *Answer) (err error) {
	switch o.Do {
	case doMake:
		return e.make(o.Make, a)
	case doConnect:
		return e.connect(ctx, o)
	case doPost:
		return e.post(o.Work)
	case doTake:
		a.Done, err = e.take(ctx, o.N)
	case doFill, doCheck:
		b := e.mem.Bytes()
		if o.Off+o.Bytes > len(b) {
			return fmt.Errorf("bytes %d to %d of %d", o.Off, o.Off+o.Bytes, len(b))
		}
		if b = b[o.Off:][:o.Bytes]; o.Do == doCheck {
			return e.check(ctx, b, o.Seed)
		}
		fill(b, o.Seed, e.marker)
	case doReady:
		return e.ready(o.Stream)
	case doStream:
		return e.stream(ctx, o.Stream)
	case doOpen:
		var r uverbs.Remote
		r, err = e.openWindow(ctx, o.Off, o.Bytes)
		a.Region = &r
	case doShut:
		return e.shutWindow(ctx)
	case doState:
		a.State, err = e.qp.QueryState()
	case doError:
		return e.qp.Modify(uverbs.StateErr)
	case doRecover:
		return e.recover(ctx, a)
	case doEvent:
		return e.event(ctx, o.Event)
	case doLimit:
		if e.srq == nil {
			return errors.New("there is no SRQ")
		}
		return e.srq.SetLimit(o.N)
	case doJoin:
		return e.join(o.Group)
	case doCloseQueue:
		return e.qp.Close()
	case doClose:
		a.Strays, err = e.close()
	default:
		return fmt.Errorf("nobody here knows how to %q", o.Do)
	}
	return err
}

// check looks for a pattern. On UC a write has ended when it has left, and the other end
// is not told when it has come: there it waits.
func (e *end) check(ctx context.Context, b []byte, seed uint64) error {
	err := differ(b, seed, e.marker)
	if err == nil || e.spec.Type != uverbs.UC {
		return err
	}
	wait(ctx, 0, func() (bool, error) {
		err = differ(b, seed, e.marker)
		return err == nil, nil
	})
	return err
}

// make opens the device and makes what the spec says.
func (e *end) make(s *Spec, a *Answer) (err error) {
	if s == nil || e.dev != nil {
		return errors.New("there is nothing to make, or it was made")
	}
	e.spec = *s
	e.dev, err = e.open()
	if err != nil {
		return err
	}
	a.Device = describe(e.dev)
	if e.pd, err = e.dev.NewPD(); err != nil {
		return err
	}
	n := s.Memory
	if n == 0 {
		n = memoryBytes
	}
	if e.mem, err = uverbs.Alloc(n, nil); err != nil {
		return err
	}
	if e.mr, err = e.pd.Register(e.mem.Bytes(), s.Region); err != nil {
		return err
	}
	if s.Foreign {
		pd, err := e.dev.NewPD()
		if err != nil {
			return err
		}
		if e.foreign, err = pd.Register(e.mem.Bytes()[n/2:], s.Region); err != nil {
			return err
		}
	}
	if err = e.makeQueues(s); err != nil {
		return err
	}
	to, region, limits := e.qp.Endpoint(), e.mr.Remote(), e.qp.Limits()
	a.Endpoint, a.Region, a.Limits = &to, &region, &limits
	if s.Type == uverbs.UD {
		a.Device.Datagram = e.qp.MaxDatagram()
	}
	return nil
}

func (e *end) makeQueues(s *Spec) (err error) {
	depth := s.CQDepth
	if depth == 0 {
		depth = s.SendDepth + s.RecvDepth + s.SRQ
	}
	opts := &uverbs.CQOptions{Events: s.Events, Timestamps: s.Timestamps}
	if s.BigEntries {
		opts.EntrySize = 128
	}
	if s.Compress {
		opts.Compression = uverbs.Compress()
	}
	if e.cq, err = e.dev.NewCQ(depth, opts); err != nil {
		return err
	}
	if s.SRQ > 0 {
		if e.srq, err = e.pd.NewSRQ(&uverbs.SRQOptions{Depth: s.SRQ, SGE: s.SGE}); err != nil {
			return err
		}
	}
	e.qp, err = e.pd.NewQP(s.Type, &uverbs.QPOptions{
		CQ: e.cq, SRQ: e.srq, SendDepth: s.SendDepth, RecvDepth: s.RecvDepth, SendSGE: s.SGE, RecvSGE: s.SGE,
		Inline: s.Inline, PeerAccess: s.Access, AllowOverrun: s.AllowOverrun,
	})
	return err
}

// describe says what a device claims.
func describe(d *uverbs.Device) *Device {
	attr := d.Attr()
	out := &Device{Driver: d.Info().Driver.String(), Kernel: uname.System(), Caps: attr.Caps, Atomic: attr.Atomic, MaxSRQ: attr.MaxSRQ, MaxGroups: attr.MaxMulticastGroups}
	for n := 1; n <= attr.Ports; n++ {
		if p, err := d.PortAttr(n); err == nil && p.State == uverbs.PortActive {
			out.MaxMessage, out.Roce = p.MaxMessage, p.LinkLayer == uverbs.LinkEthernet
			break
		}
	}
	return out
}

// connect connects the queue pair to that of the other end.
func (e *end) connect(ctx context.Context, o *Order) (err error) {
	if o.Peer == nil || o.Region == nil {
		return errors.New("nobody to connect to")
	}
	e.peer = *o.Region
	if e.spec.Type == uverbs.UD {
		if e.to.AH, err = e.pd.NewAH(*o.Peer, nil); err != nil {
			return err
		}
		e.to.QPN, e.to.QKey = o.Peer.QPN, o.Peer.QKey
		return nil
	}
	if e.again != nil {
		return e.meetAgain(ctx, o)
	}
	return e.qp.Connect(ctx, *o.Peer, o.Options.connection())
}

// connection are the options in the library's words.
func (o *Options) connection() *uverbs.ConnectOptions {
	c := &uverbs.ConnectOptions{AckTimeout: time.Second}
	if o != nil {
		c.Retries, c.RNRRetries = o.Retries, o.RNRRetries
		if o.AckTimeoutMS > 0 {
			c.AckTimeout = time.Duration(o.AckTimeoutMS) * time.Millisecond
		}
	}
	return c
}

// poll adds the completions that are there to those that were polled.
func (e *end) poll() error {
	var wcs [64]uverbs.WC
	some := wcs[:]
	if e.record != nil {
		some = wcs[:1] // the last one of a batch is what can be recorded
	}
	n, err := e.cq.Poll(some)
	if n == 0 {
		return err
	}
	some = some[:n]
	if e.record != nil {
		e.record(e, &some[0])
	}
	if e.tamper != nil {
		some = e.tamper(e, some)
	}
	e.polled = append(e.polled, some...)
	return err
}

// errImpatient ends a wait for what does not come.
var errImpatient = errors.New("it does not come")

// wait calls look until that says true, or an error; or, if stall is not 0, for so long.
func wait(ctx context.Context, stall time.Duration, look func() (bool, error)) error {
	nap, begin := 20*time.Microsecond, time.Time{}
	for i := 0; ; i++ {
		if done, err := look(); done || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return errImpatient
		}
		if i < 200 {
			runtime.Gosched()
			continue
		}
		if begin.IsZero() {
			begin = time.Now()
		}
		if stall > 0 && time.Since(begin) > stall {
			return errImpatient
		}
		time.Sleep(nap)
		nap = min(2*nap, time.Millisecond)
	}
}

// next takes a completion, and waits for it.
func (e *end) next(ctx context.Context) (w uverbs.WC, err error) {
	err = wait(ctx, e.stall, func() (bool, error) {
		if len(e.polled) > 0 {
			return true, nil
		}
		err := e.poll()
		return len(e.polled) > 0, err
	})
	if err != nil {
		return w, err
	}
	w = e.polled[0]
	e.polled = e.polled[1:]
	return w, nil
}

// take takes n completions.
func (e *end) take(ctx context.Context, n int) (done []Done, err error) {
	for len(done) < n {
		w, err := e.next(ctx)
		if errors.Is(err, errImpatient) {
			return done, fmt.Errorf("end %s: of %d completions %d came, and then none any more%s", e.name, n, len(done), listed(done))
		}
		if err != nil {
			return done, fmt.Errorf("end %s, after %d of %d completions: %w", e.name, len(done), n, err)
		}
		done = append(done, doneOf(&w))
	}
	return done, nil
}

// listed lists completions behind a sentence.
func listed(done []Done) string {
	s := ""
	for i, d := range done {
		if i == 4 {
			return s + fmt.Sprintf("; and %d more", len(done)-i)
		}
		s += "; " + d.String()
	}
	return s
}

// quiet says what is in the queue though all that was posted has ended.
func (e *end) quiet() error {
	if err := e.poll(); err != nil {
		return fmt.Errorf("end %s: %w", e.name, err)
	}
	if len(e.polled) == 0 {
		return nil
	}
	return fmt.Errorf("end %s: a completion of nothing that was posted: %v", e.name, doneOf(&e.polled[0]))
}

// event waits for an asynchronous event.
func (e *end) event(ctx context.Context, want uverbs.EventType) error {
	var others []string
	for {
		select {
		case got, ok := <-e.dev.Events():
			if !ok {
				return fmt.Errorf("end %s: the device is gone", e.name)
			}
			if got.Type == want {
				return nil
			}
			others = append(others, got.Type.String())
		case <-ctx.Done():
			return fmt.Errorf("end %s: the event %v does not come (others: %d%s)", e.name, want, len(others), strings.Join(append([]string{""}, others...), " "))
		}
	}
}

// join has the queue pair, and the host's IP stack, receive what is sent to a group.
func (e *end) join(text string) error {
	address, err := netip.ParseAddr(text)
	if err != nil || !address.IsMulticast() {
		return fmt.Errorf("group %q is no multicast address", text)
	}
	gid, err := uverbs.GroupGID(address)
	if err != nil {
		return err
	}
	if e.dev.Info().Driver == uverbs.DriverRXE {
		ifi, err := net.InterfaceByIndex(e.qp.Source().Ifindex)
		if err != nil {
			return err
		}
		if e.member, err = net.ListenMulticastUDP("udp", ifi, &net.UDPAddr{IP: address.AsSlice()}); err != nil {
			return err
		}
	}
	if e.group.AH, err = e.pd.NewAH(uverbs.Endpoint{GID: gid}, nil); err != nil {
		return err
	}
	e.group.QPN = uverbs.MulticastQPN
	return e.qp.AttachMulticast(gid)
}

// close gives everything back. It counts the completions that the library took for
// nobody's.
func (e *end) close() (strays uint64, err error) {
	if e.cq != nil {
		var left [64]uverbs.WC // among which may be strays
		e.cq.Poll(left[:])
		strays = e.cq.Stats().Stray
	}
	if e.again != nil {
		e.again.cancel()
		<-e.again.done
	}
	if e.mw != nil {
		err = e.mw.Close()
	}
	if e.member != nil {
		e.member.Close()
	}
	if e.dev != nil {
		err = errors.Join(err, e.dev.Close())
	}
	if e.mem != nil {
		err = errors.Join(err, e.mem.Close())
	}
	*e = end{name: e.name, open: e.open, marker: e.marker, record: e.record, tamper: e.tamper}
	return strays, err
}
