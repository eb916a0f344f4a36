package pingpong

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/tools/verbs/internal/present"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
	"github.com/goverbs/goverbs/uverbs"
)

// Game is one side of a ping-pong.
type Game struct {
	cfg Config

	dev    *uverbs.Device
	mem    *uverbs.Memory
	cq     *uverbs.CQ
	qp     *uverbs.QP
	local  Address
	remote Address
	link   *queueLink
	player player
}

// Open makes all that a side needs on a device, up to a queue pair with receives posted. The
// device belongs to the game from then on, also when it fails. Close the game when done.
func Open(dev *uverbs.Device, cfg Config) (*Game, error) {
	g := &Game{cfg: cfg, dev: dev}
	err := cfg.Validate()
	if err == nil {
		err = g.open()
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func (g *Game) open() error {
	port, err := g.port()
	if err != nil {
		return err
	}
	if g.cq, err = g.dev.NewCQ(g.cfg.RxDepth+1, &uverbs.CQOptions{Events: g.cfg.Events}); err != nil {
		return err
	}
	pd, err := g.dev.NewPD()
	if err != nil {
		return err
	}
	if g.qp, err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{
		CQ: g.cq, SendDepth: 1, RecvDepth: g.cfg.RxDepth, Source: g.source(), PeerAccess: uverbs.NoAccess,
	}); err != nil {
		if g.cfg.GIDIndex != DefaultGID && errors.Is(err, uverbs.ErrInvalid) {
			return usage.Errorf("%v", err) // which says what GIDs there are
		}
		return err
	}
	e := g.qp.Endpoint()
	g.local = Address{LID: port.LID, QPN: e.QPN, PSN: e.PSN, GID: e.GID}
	if g.cfg.GIDIndex == DefaultGID && port.LinkLayer == uverbs.LinkInfiniBand {
		// As ibv_rc_pingpong, which without -g knows LIDs alone, and takes nothing
		// else from its peer.
		g.local.GID = uverbs.GID{}
	}
	return g.prepare(pd)
}

// source is where packets come from.
func (g *Game) source() uverbs.Source {
	if g.cfg.GIDIndex == DefaultGID {
		return uverbs.FromPort(g.cfg.IBPort)
	}
	return uverbs.FromGID(g.cfg.IBPort, g.cfg.GIDIndex)
}

// port checks the choices against what the device allows.
func (g *Game) port() (uverbs.PortAttr, error) {
	name, attr := g.dev.Name(), g.dev.Attr()
	if n := g.dev.Info().Ports; n > 0 && g.cfg.IBPort > n {
		return uverbs.PortAttr{}, usage.Errorf("port %d of %s: it has ports 1 to %d", g.cfg.IBPort, name, n)
	}
	port, err := g.dev.PortAttr(g.cfg.IBPort)
	if err != nil {
		return port, err
	}
	if port.ActiveMTU > 0 && g.cfg.MTU > port.ActiveMTU {
		return port, usage.Errorf("path MTU %d: port %d of %s takes %d at most", g.cfg.MTU, g.cfg.IBPort, name, port.ActiveMTU)
	}
	if uint64(g.cfg.Size) > uint64(port.MaxMessage) {
		return port, usage.Errorf("message size %d: port %d of %s takes %d at most", g.cfg.Size, g.cfg.IBPort, name, port.MaxMessage)
	}
	// One completion more than there are receives: that of the send.
	if most := min(attr.MaxQPWR, attr.MaxCQE-1); g.cfg.RxDepth > most {
		return port, usage.Errorf("receive depth %d: %s takes %d at most", g.cfg.RxDepth, name, most)
	}
	return port, nil
}

// prepare posts the receives and writes the first message.
func (g *Game) prepare(pd *uverbs.PD) error {
	size, page := g.cfg.Size, os.Getpagesize()
	// One buffer, as ibv_rc_pingpong has it, so that the server sends back
	// what it got. Checking takes a second one, which begins on a page.
	recvAt, total := 0, size
	if g.cfg.Check {
		recvAt = (size + page - 1) / page * page
		total = recvAt + size
	}
	var err error
	if g.mem, err = uverbs.Alloc(max(total, 1), nil); err != nil {
		return err
	}
	b := g.mem.Bytes()
	fill(b, plain)
	mr, err := pd.Register(b, uverbs.LocalWrite)
	if err != nil {
		return err
	}
	g.link = &queueLink{cq: g.cq, sq: g.qp.SendQueue(), rq: g.qp.RecvQueue(), from: mr.Span(0, size), into: mr.Span(recvAt, size)}
	if g.qp.Limits().Inline >= size {
		g.link.inline = b[:size]
	}
	g.player = player{link: g.link, size: size, iters: g.cfg.Iters, depth: g.cfg.RxDepth}
	if g.cfg.Check {
		g.player.check = newChecker(g.cfg.Server != "", page, b[:size], b[recvAt:total])
	}
	return g.player.prepare()
}

// Device is the name of the device.
func (g *Game) Device() string { return g.dev.Name() }

// Source is the local GID that packets come from.
func (g *Game) Source() uverbs.GIDEntry { return g.qp.Source() }

// Local is the address of this side.
func (g *Game) Local() Address { return g.local }

// Remote is the address of the other side, once Meet has returned.
func (g *Game) Remote() Address { return g.remote }

// Meet swaps addresses with the other side and connects the queue pair. The
// server waits for a client as long as ctx lets it.
func (g *Game) Meet(ctx context.Context) error {
	connect := func(remote Address) error { return g.connect(ctx, remote) }
	var err error
	if g.cfg.Server == "" {
		l, lerr := listen(ctx, g.cfg.Port)
		if lerr != nil {
			return lerr
		}
		g.remote, err = serve(ctx, l, g.local, connect)
		return err
	}
	if g.remote, err = call(ctx, g.cfg.Server, g.cfg.Port, g.local); err != nil {
		return err
	}
	return connect(g.remote)
}

// connect makes the queue pair ready to receive and to send, with the numbers
// that ibv_rc_pingpong has.
func (g *Game) connect(ctx context.Context, remote Address) error {
	if remote.GID.IsZero() && remote.LID == 0 {
		return errors.New("the other side has neither GID nor LID: on RoCE start ibv_rc_pingpong with -g and the index of its GID")
	}
	return g.qp.Connect(ctx, uverbs.Endpoint{QPN: remote.QPN, PSN: remote.PSN, GID: remote.GID, LID: remote.LID}, &uverbs.ConnectOptions{
		MTU: g.cfg.MTU, ReadDepth: 1, HopLimit: 1, ServiceLevel: uint8(g.cfg.SL),
		Retries: 7, RNRRetries: uverbs.RetryForever,
	})
}

// Play plays to the end and returns how long it took, from the client's first
// message on; for the server, from when Play began. If count is not nil, the
// number of messages that came is stored there as they come.
//
// The end of ctx ends Play. It leaves the game as it is: Close it.
func (g *Game) Play(ctx context.Context, count *atomic.Int64) (time.Duration, error) {
	if runtime.GOMAXPROCS(0) < 2 {
		// With the only processor given up for each sleep, the runtime's
		// monitor goes to sleep as well, and is woken again: that doubles
		// what a message costs.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	if !g.cfg.Events {
		// The scheduler interrupts a spinning goroutine every 10 ms and may
		// go on with it on another thread, which the kernel may put onto the
		// processor where the other side spins: a fifth of the time at 4096
		// bytes. A locked one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	var release func()
	var err error
	if g.cfg.Events {
		if release, err = g.link.sleep(ctx, poll.Event{Thread: true}); err != nil {
			return 0, err
		}
	} else {
		release = g.link.spin(ctx)
	}
	defer release()
	g.player.count = count
	begin := time.Now()
	err = g.player.play(g.cfg.Server != "")
	return time.Since(begin), g.named(err)
}

// named adds the device to an error.
func (g *Game) named(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", g.dev.Name(), present.Explain(g.dev, err))
	}
	return nil
}

// Close gives back everything.
func (g *Game) Close() error {
	var errs []error
	if g.dev != nil {
		errs = append(errs, g.dev.Close())
	}
	if g.mem != nil {
		errs = append(errs, g.mem.Close())
	}
	return errors.Join(errs...)
}
