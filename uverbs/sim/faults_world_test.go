package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// world is some traffic on some devices that faults happen to.
type world struct {
	rng    *rand.Rand
	fabric *sim.Fabric
	nodes  []*node
	pairs  []*flow
	// pollers: completions are taken by goroutines that sleep for them, one a queue, and
	// not now and then by the one that posts.
	pollers bool

	mu    sync.Mutex
	next  uint64
	open  map[uint64]*effort
	ended int
	lost  int // with queues that overran
	wrong []string
}

// node is an open device.
type node struct {
	dev *uverbs.Device
	pd  *uverbs.PD
	q   *uverbs.CQ
	mem *uverbs.Memory
	mr  *uverbs.MR
	ahs []*uverbs.AH
	err error // of the queue: nothing comes from it any more

	stop   context.CancelFunc
	poller sync.WaitGroup
}

// flow is two queue pairs that are connected to one another.
type flow struct {
	typ   uverbs.QPType
	nodes [2]*node
	qps   [2]*uverbs.QP
	to    [2]uverbs.Dest
}

// effort is a request.
type effort struct {
	n     *node
	qp    *uverbs.QP
	side  uverbs.Side
	quiet bool // has no completion if it succeeds
}

func (l *world) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// may adds an error that is none of those which may be.
func (l *world) may(what string, err error, allowed ...error) {
	if err == nil {
		return
	}
	for _, a := range allowed {
		if errors.Is(err, a) {
			return
		}
	}
	l.say("%s: %v", what, err)
}

// live is one life from its beginning to its end.
func live(seed uint64, script []string) *world {
	l := &world{rng: rand.New(rand.NewPCG(seed, 2)), open: make(map[uint64]*effort)}
	l.pollers = l.rng.IntN(3) == 0
	f, err := sim.New(&sim.Options{Devices: make([]model.DeviceConfig, 2+l.rng.IntN(3))})
	if err != nil {
		l.say("%v", err)
		return l
	}
	l.fabric = f
	for _, d := range f.Model().Devices() {
		l.addNode(d.Name())
	}
	for range 1 + l.rng.IntN(4) {
		l.addFlow()
	}
	if len(l.wrong) > 0 {
		return l
	}
	for _, n := range l.nodes {
		if l.pollers {
			l.poll(n)
		}
	}
	if err := f.Model().Script(strings.Join(script, "\n")); err != nil {
		l.say("%v", err)
	}
	for range 50 + l.rng.IntN(150) {
		l.step()
	}
	l.finish()
	return l
}

// addNode opens a device and makes what goes with it.
func (l *world) addNode(name string) {
	n := &node{}
	var errs [5]error
	n.dev, errs[0] = l.fabric.Open(name, nil)
	n.mem, errs[1] = uverbs.Alloc(1<<14, nil)
	if errs[0] == nil {
		n.pd, errs[2] = n.dev.NewPD()
		n.q, errs[3] = n.dev.NewCQ(600, &uverbs.CQOptions{Events: true})
		n.mr, errs[4] = n.pd.Register(n.mem.Bytes(), allAccess)
	}
	l.may("set up "+name, errors.Join(errs[:]...))
	l.nodes = append(l.nodes, n)
}

// addFlow connects two nodes, which may be one.
func (l *world) addFlow() {
	f := &flow{typ: []uverbs.QPType{uverbs.RC, uverbs.RC, uverbs.UC, uverbs.UD}[l.rng.IntN(4)]}
	for i := range f.qps {
		n := l.nodes[l.rng.IntN(len(l.nodes))]
		f.nodes[i] = n
		opts := &uverbs.QPOptions{CQ: n.q, SendDepth: 1 + l.rng.IntN(16), RecvDepth: 1 + l.rng.IntN(16), Inline: 32}
		if f.typ == uverbs.RC {
			opts.PeerAccess = uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic
		}
		var err error
		if f.qps[i], err = n.pd.NewQP(f.typ, opts); err != nil {
			l.say("%v", err)
			return
		}
	}
	for i, n := range f.nodes {
		if f.typ != uverbs.UD {
			break
		}
		ah, err := n.pd.NewAH(f.qps[1-i].Endpoint(), nil)
		l.may("address handle", err)
		f.to[i] = uverbs.Dest{AH: ah, QPN: f.qps[1-i].QPN()}
		n.ahs = append(n.ahs, ah)
	}
	l.may("connect", l.connect(f))
	l.pairs = append(l.pairs, f)
}

func (l *world) connect(f *flow) error {
	if f.typ == uverbs.UD {
		return nil
	}
	opts := &uverbs.ConnectOptions{AckTimeout: 10 * time.Millisecond, Retries: 1 + l.rng.IntN(6)}
	return errors.Join(f.qps[0].Connect(context.Background(), f.qps[1].Endpoint(), opts), f.qps[1].Connect(context.Background(), f.qps[0].Endpoint(), opts))
}

// step does something.
func (l *world) step() {
	f := l.pairs[l.rng.IntN(len(l.pairs))]
	i := l.rng.IntN(2)
	switch what := l.rng.IntN(40); {
	case what < 14:
		l.receive(f, i)
	case what < 28:
		l.send(f, i)
	case what < 34:
		if !l.pollers {
			l.look(l.nodes[l.rng.IntN(len(l.nodes))])
		}
	case what < 38:
		time.Sleep(time.Duration(1+l.rng.IntN(1000)) * time.Microsecond)
	case what < 39:
		l.fabric.Model().Release()
	default:
		l.again(f)
	}
}

// accept enters requests that are about to be flushed; undo takes them back.
func (l *world) accept(n *node, qp *uverbs.QP, side uverbs.Side, quiet bool) (id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	l.open[l.next] = &effort{n, qp, side, quiet}
	return l.next
}

// flush hands over what was staged, or takes it back.
func (l *world) flush(q interface{ Flush() error }, ids []uint64) {
	err := q.Flush()
	if err == nil {
		return
	}
	l.may("flush", err, uverbs.ErrState, uverbs.ErrDeviceGone)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if l.open[id] == nil {
			l.wrong = append(l.wrong, fmt.Sprintf("request %d ended, and its Flush failed: %v", id, err))
		}
		delete(l.open, id)
		l.next++ // so that numbers of open requests are not used again
	}
}

func (l *world) receive(f *flow, i int) {
	q, n := f.qps[i].RecvQueue(), f.nodes[i]
	var ids []uint64
	for range min(q.Room(), 1+l.rng.IntN(4)) {
		ids = append(ids, l.accept(n, f.qps[i], uverbs.RecvSide, false))
		q.Recv(ids[len(ids)-1], n.mr.Span(8192, 256))
	}
	l.flush(q, ids)
}

func (l *world) send(f *flow, i int) {
	q, n := f.qps[i].SendQueue(), f.nodes[i]
	there := f.nodes[1-i].mr.Remote().At(uint64(l.rng.IntN(512) * 8))
	here := n.mr.Span(4096, 64)
	var ids []uint64
	for range min(q.Room(), 1+l.rng.IntN(4)) {
		kinds := map[uverbs.QPType]int{uverbs.UD: 1, uverbs.UC: 5, uverbs.RC: 8}[f.typ]
		kind := l.rng.IntN(kinds)
		id := l.accept(n, f.qps[i], uverbs.SendSide, kind == 3 || kind == 4)
		ids = append(ids, id)
		switch {
		case f.typ == uverbs.UD:
			q.SendTo(id, f.to[i], here)
		case kind == 0:
			q.Send(id, here)
		case kind == 1:
			q.SendInline(id, []byte("in the request"), uverbs.Solicited)
		case kind == 2:
			q.WriteImm(id, 7, there, here)
		case kind == 3:
			q.Write(id, there, here, uverbs.Unsignaled)
		case kind == 4:
			q.Send(id, here, uverbs.Unsignaled)
		case kind == 5:
			q.Read(id, here, there)
		case kind == 6:
			q.FetchAdd(id, n.mr.Span(4096, 8), there, 1)
		default:
			q.Write(id, there, here)
		}
	}
	l.flush(q, ids)
}

// end enters a completion.
func (l *world) end(n *node, w uverbs.WC) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.open[w.ID]
	switch {
	case e == nil:
		l.wrong = append(l.wrong, fmt.Sprintf("an end of no request that is under way: %+v", w))
	case e.n != n || e.qp.QPN() != w.QPN || e.side != w.Side:
		l.wrong = append(l.wrong, fmt.Sprintf("the end of request %d of QP %d's side %v: %+v", w.ID, e.qp.QPN(), e.side, w))
	case e.quiet && w.Status == uverbs.StatusSuccess:
		l.wrong = append(l.wrong, fmt.Sprintf("a quiet request succeeded aloud: %+v", w))
	}
	delete(l.open, w.ID)
	l.ended++
}

// look takes what is there.
func (l *world) look(n *node) {
	var wcs [8]uverbs.WC
	k, err := n.q.Poll(wcs[:1+l.rng.IntN(8)])
	for _, w := range wcs[:k] {
		l.end(n, w)
	}
	l.failed(n, err)
}

// failed enters the error of a queue, of which there are only two kinds.
func (l *world) failed(n *node, err error) {
	l.may("poll", err, uverbs.ErrOverrun, uverbs.ErrDeviceGone)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		n.err = err
	}
}

// overran says whether the queue lost completions.
func (l *world) overran(n *node) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Is(n.err, uverbs.ErrOverrun)
}

// poll starts a poller. Events get lost, so it looks by itself now and then.
func (l *world) poll(n *node) {
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.poller.Go(func() {
		w, err := poll.NewWaiter(poll.Event{}, n.q)
		if err != nil {
			l.say("%v", err)
			return
		}
		defer w.Close()
		var wcs [4]uverbs.WC
		for ctx.Err() == nil {
			nap, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			k, err := w.Wait(nap, wcs[:])
			cancel()
			for _, w := range wcs[:k] {
				l.end(n, w)
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				l.failed(n, err)
				if errors.Is(err, uverbs.ErrOverrun) {
					return
				}
				// Shutdown still has ends to give of a device that is gone.
				select {
				case <-ctx.Done():
				case <-time.After(time.Millisecond):
				}
			}
		}
	})
}

// down ends a queue pair within a time.
func (l *world) down(n *node, qp *uverbs.QP, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if l.pollers {
		return qp.Shutdown(ctx)
	}
	return qp.Drain(ctx, func(w uverbs.WC) { l.end(n, w) })
}

// How long the end of a queue pair may take: a while, and long enough for all that
// faults without end leave when they are taken back.
const (
	short = 500 * time.Millisecond
	long  = 10 * time.Second
)

// again ends both queue pairs of a flow and connects them anew.
func (l *world) again(f *flow) {
	for i, qp := range f.qps {
		if err := l.down(f.nodes[i], qp, short); err != nil {
			return // finish will
		}
		l.settle(f.nodes[i], qp)
	}
	for _, qp := range f.qps {
		if qp.Restart() != nil {
			return
		}
	}
	l.connect(f)
}

// settle is called when a queue pair came to its end: so did its requests.
func (l *world) settle(n *node, qp *uverbs.QP) {
	if l.pollers {
		synctest.Wait() // the poller may still hold some
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.open {
		switch {
		case e.qp != qp:
			continue
		case e.quiet:
			l.ended++
		case errors.Is(n.err, uverbs.ErrOverrun):
			l.lost++
		default:
			l.wrong = append(l.wrong, fmt.Sprintf("request %d of QP %d, side %v, did not end", id, qp.QPN(), e.side))
		}
		delete(l.open, id)
	}
}

// finish ends and closes all.
func (l *world) finish() {
	if l.rng.IntN(2) == 0 {
		l.fabric.Model().ClearFaults()
	}
	for _, f := range l.pairs {
		for i, qp := range f.qps {
			n := f.nodes[i]
			err := l.down(n, qp, short)
			if err != nil {
				// Refused, or held up for ever by a fault that is still there.
				l.fabric.Model().ClearFaults()
				l.fabric.Model().Release()
				err = l.down(n, qp, long)
			}
			if errors.Is(err, uverbs.ErrOverrun) {
				l.failed(n, err)
			} else if !l.overran(n) {
				l.may(fmt.Sprintf("the end of QP %d", qp.QPN()), err)
			}
			l.settle(n, qp)
		}
	}
	for _, n := range l.nodes {
		if n.stop != nil {
			n.stop()
			n.poller.Wait()
		}
		if s := n.q.Stats(); s.Stray > 0 {
			l.say("%d completions of nobody's requests", s.Stray)
		}
	}
	for _, f := range l.pairs {
		for _, qp := range f.qps {
			l.may("close QP", qp.Close())
		}
	}
	for _, n := range l.nodes {
		for _, ah := range n.ahs {
			l.may("close AH", ah.Close())
		}
		l.may("close", errors.Join(n.mr.Close(), n.q.Close(), n.pd.Close(), n.dev.Close(), n.mem.Close()))
		if _, err := n.q.Poll(make([]uverbs.WC, 1)); !errors.Is(err, os.ErrClosed) {
			l.say("a closed queue: %v", err)
		}
	}
	for _, d := range l.fabric.Model().Devices() {
		if left := d.Objects(); len(left) > 0 {
			l.say("%s: still there: %v", d.Name(), left)
		}
	}
	for _, v := range l.fabric.Model().Violations() {
		l.say("%s", v)
	}
}
