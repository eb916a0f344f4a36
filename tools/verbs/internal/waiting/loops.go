package waiting

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// LoopConfig is how long to measure loops.
type LoopConfig struct {
	Rounds int
	Slice  time.Duration // how long a loop is measured in a round
}

// DefaultLoops are the choices of the command.
func DefaultLoops() LoopConfig { return LoopConfig{Rounds: 40, Slice: 100 * time.Millisecond} }

// Validate checks the choices. Its errors are *usage.Errors.
func (c *LoopConfig) Validate() error {
	if c.Slice < time.Millisecond || c.Slice > time.Minute {
		return usage.Errorf("slices of %v: allowed are 1ms to 1m", c.Slice)
	}
	return checkRounds(c.Rounds)
}

// A loop does one thing again and again. All run in the goroutine of their caller.
type loop struct {
	name, what string
	open       func() (running, error)
	// model is that the model's work is in it, of which the library's target says nothing.
	model bool
}

// running is a loop that is ready.
type running interface {
	// run runs it and returns how many times in a second it did what it does.
	run(length time.Duration) (perSecond float64, err error)
	close() error
}

const spinLoop = "spin"

// loops are all that are measured. The first one is what the others are compared with.
var loops = []loop{
	{spinLoop, "an empty loop", func() (running, error) { return spin{}, nil }, false},
	{"empty", "Poll of an empty queue", func() (running, error) { return openEmpty() }, false},
	{"full", "Poll of a full ring, batch 32, per completion", func() (running, error) { return openFull(false) }, false},
	{"requests", "post a request and Poll its completion, batch 32, without what the model does for it", func() (running, error) { return openFull(true) }, false},
	{"messages", "send and receive on the model in one goroutine, batch 32, per message; most of it is the model", func() (running, error) { return openMessages() }, true},
}

// pingpongs take two goroutines.
var pingpongs = []loop{
	{"busy", "round trips on the model, the server waits busily, on a processor of its own", func() (running, error) { return openPingpong("busy-pinned") }, true},
	{"event", "round trips on the model, the server waits for events", func() (running, error) { return openPingpong("event") }, true},
}

// spin does nothing.
type spin struct{}

// spinBlock is how many turns go by between two looks at the clock.
const spinBlock = 1 << 15

var spun uint64 // so that the turns are made

func (spin) run(length time.Duration) (float64, error) {
	x, n := spun, 0
	begin := time.Now()
	took := time.Duration(0)
	for took < length {
		for range spinBlock {
			x = x*6364136223846793005 + 1442695040888963407
		}
		n += spinBlock
		took = time.Since(begin)
	}
	spun = x
	return float64(n) / took.Seconds(), nil
}

func (spin) close() error { return nil }

// empty polls a queue in which nothing is.
type empty struct{ e *end }

func openEmpty() (running, error) {
	f, err := sim.New(nil)
	if err != nil {
		return nil, err
	}
	dev, err := f.Open("sim0", nil)
	if err != nil {
		return nil, err
	}
	e, err := openEnd(dev, 1, false)
	return empty{e}, err
}

func (l empty) run(length time.Duration) (float64, error) {
	const block = 1 << 10
	wcs, n := l.e.wcs[:clientBatch], 0
	begin := time.Now()
	took := time.Duration(0)
	for took < length {
		for range block {
			if k, err := l.e.cq.Poll(wcs); k > 0 || err != nil {
				return 0, errors.Join(err, fmt.Errorf("%d completions in an empty queue", k))
			}
		}
		n += block
		took = time.Since(begin)
	}
	return float64(n) / took.Seconds(), nil
}

func (l empty) close() error { return l.e.close() }

// full polls a ring that the device has filled, and stands still while it does.
type full struct {
	fabric *sim.Fabric
	dev    *uverbs.Device
	cq     *uverbs.CQ
	qp     *uverbs.QP
	wcs    [clientBatch]uverbs.WC
	data   [16]byte
	posts  bool // the time of posting counts, too
}

// fullRing is how many completions are in the ring when it is polled.
const fullRing = 2048

func openFull(posts bool) (_ running, err error) {
	l := &full{posts: posts}
	if l.fabric, err = sim.New(nil); err != nil {
		return nil, err
	}
	if l.dev, err = l.fabric.Open("sim0", nil); err != nil {
		return nil, err
	}
	if err = l.open(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *full) open() error {
	pd, err := l.dev.NewPD()
	if err != nil {
		return err
	}
	if l.cq, err = l.dev.NewCQ(fullRing+1, nil); err != nil {
		return err
	}
	if l.qp, err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: l.cq, SendDepth: fullRing, RecvDepth: 1, Inline: len(l.data)}); err != nil {
		return err
	}
	if err := l.qp.Connect(context.Background(), l.qp.Endpoint(), nil); err != nil { // nothing is sent
		return err
	}
	return l.fabric.Model().Device("sim0").Hold(l.qp.QPN())
}

func (l *full) run(length time.Duration) (float64, error) {
	n, counted := 0, time.Duration(0)
	for begin := time.Now(); n == 0 || time.Since(begin) < length; { // once even where the machine stood still
		start := time.Now()
		for range fullRing / clientBatch {
			for id := range uint64(clientBatch) {
				l.qp.SendQueue().SendInline(id, l.data[:])
			}
			if err := l.qp.SendQueue().Flush(); err != nil {
				return 0, err
			}
		}
		if l.posts {
			counted += time.Since(start)
		}
		k, err := l.fabric.Model().Devices()[0].Fill(l.qp.QPN(), fullRing, fillSends)
		if err != nil || k != fullRing {
			return 0, errors.Join(err, fmt.Errorf("%d of %d completions", k, fullRing))
		}
		start = time.Now()
		for got := 0; got < fullRing; {
			k, err := l.cq.Poll(l.wcs[:])
			if k == 0 {
				return 0, errors.Join(err, fmt.Errorf("%d of %d completions", got, fullRing))
			}
			got += k
		}
		counted += time.Since(start)
		n += fullRing
	}
	return float64(n) / counted.Seconds(), nil
}

func (l *full) close() error { return l.dev.Close() }

// messages sends from one end to the other; one goroutine is both.
type messages struct{ from, into *end }

func openMessages() (running, error) {
	f, err := sim.New(nil)
	if err != nil {
		return nil, err
	}
	var ends [2]*end
	for i, name := range []string{"sim0", "sim1"} {
		dev, err := f.Open(name, nil)
		if err != nil {
			return nil, err
		}
		if ends[i], err = openEnd(dev, clientBatch, false); err != nil {
			return nil, err
		}
	}
	l := messages{ends[0], ends[1]}
	if err := l.from.connect(context.Background(), l.into.address()); err != nil {
		return nil, errors.Join(err, l.close())
	}
	if err := l.into.connect(context.Background(), l.from.address()); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l messages) run(length time.Duration) (float64, error) {
	first := l.into.arrived
	begin := time.Now()
	took := time.Duration(0)
	for took < length {
		for range clientBatch {
			l.from.send()
		}
		if err := l.from.sq.Flush(); err != nil {
			return 0, err
		}
		for _, e := range [...]*end{l.into, l.from} {
			n, err := e.cq.Poll(e.wcs[:])
			if err == nil {
				_, err = e.take(e.wcs[:n])
			}
			if err != nil {
				return 0, err
			}
		}
		took = time.Since(begin)
	}
	return float64(l.into.arrived-first) / took.Seconds(), nil
}

func (l messages) close() error { return errors.Join(l.from.close(), l.into.close()) }

// pingpong is a message to and fro, between two goroutines.
type pingpong struct {
	m *measurement
	v *variant
}

func openPingpong(name string) (running, error) {
	f, err := sim.New(nil)
	if err != nil {
		return nil, err
	}
	c := Default()
	c.Open = func(name string) (*uverbs.Device, error) { return f.Open(name, nil) }
	c.Devices, c.Outstanding = [2]string{"sim0", "sim1"}, 1
	h, err := findWay(name)
	if err != nil {
		return nil, err
	}
	m := &measurement{config: &c, stop: newStopper(context.Background())}
	if err := m.open(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return &pingpong{m: m, v: &variant{workload: paced, how: h, batch: pacedBatch}}, nil
}

func (l *pingpong) run(length time.Duration) (float64, error) {
	if err := l.m.server.begin(l.v); err != nil {
		return 0, err
	}
	begin := time.Now()
	n, err := l.m.client.play(0, length)
	took := time.Since(begin)
	_, _, _, endErr := l.m.server.end()
	return float64(n) / took.Seconds(), errors.Join(err, endErr)
}

func (l *pingpong) close() error { return l.m.close() }

// A stand is how often and how long a loop stood still.
type stand struct{ perSecond, lost, median float64 } // lost is seconds a second, median is seconds

// standStill is what counts as standing still: the clock itself takes less.
const standStill = time.Microsecond

// stands looks at the clock again and again.
func stands(lock bool, length time.Duration) stand {
	if lock {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	gaps := make([]time.Duration, 0, 1<<16)
	begin := time.Now()
	for last := begin; last.Sub(begin) < length; {
		now := time.Now()
		if gap := now.Sub(last); gap > standStill && len(gaps) < cap(gaps) {
			gaps = append(gaps, gap)
		}
		last = now
	}
	return newStand(gaps, time.Since(begin))
}
