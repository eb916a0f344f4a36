package uverbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// whole is a life in which every kind of object is made, used, changed and closed,
// in one goroutine, so that it makes the same calls each time.
type whole struct {
	open  func() (*Device, error)
	alloc func(n int) (*Memory, error)
	peak  func() // is called while all objects stand
	// dmabuf is one of 4096 bytes, or 0.
	dmabuf int
	// cascade lets the device close all, instead of one by one.
	cascade bool

	story []string        // what it has seen
	lacks map[string]bool // what this kernel does not have

	dev      *Device
	mem      *Memory
	pd, pd2  *PD
	mr       *MR
	heap     *MR // of Go's heap
	buf      *MR // of dmabuf, or nil
	channel  *Channel
	events   *CQ // with a channel of its own
	channeld *CQ // on channel
	shared   *CQ // for many pollers
	a, b     *QP // RC, each the other's peer
	uc, ud   *QP // each its own peer
	server   *QP // RC, its own peer, with srq
	srq      *SRQ
	ah       *AH
	mw       *MW
	waiter   *poll.Waiter
	ctx      context.Context
}

// lifeFailed is what ends a life.
type lifeFailed struct{ error }

func (l *whole) must(err error) {
	if err != nil {
		panic(lifeFailed{err})
	}
}

// may does what some kernels do not have, and says whether this one has.
func (l *whole) may(what string, err error) bool {
	if errors.Is(err, ErrNotSupported) {
		l.lacks[what] = true
		return false
	}
	l.must(err)
	return true
}

func (l *whole) tell(format string, args ...any) {
	l.story = append(l.story, fmt.Sprintf(format, args...))
}

// live lives, and returns what went wrong first. All is closed afterwards.
func (l *whole) live() (err error) {
	l.story, l.lacks = nil, map[string]bool{}
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(lifeFailed)
			if !ok {
				panic(r)
			}
			err = f.error
		}
		err = errors.Join(err, l.end())
	}()
	l.dev, l.mem, l.waiter = nil, nil, nil
	l.dev, err = l.open()
	l.must(err)
	l.ask()
	l.makeMemory()
	l.makeQueues()
	l.makePairs()
	l.useRC()
	l.useWindow()
	l.useOthers()
	l.change()
	if l.peak != nil {
		l.peak()
	}
	if !l.cascade {
		l.closeAll()
	}
	return nil
}

// end closes what is there, in any state.
func (l *whole) end() (err error) {
	if l.waiter != nil {
		err = l.waiter.Close()
	}
	if l.dev != nil {
		err = errors.Join(err, l.dev.Close())
	}
	if l.mem != nil {
		err = errors.Join(err, l.mem.Close())
	}
	return err
}

// ask asks what there is to ask of a device.
func (l *whole) ask() {
	port, err := l.dev.PortAttr(1)
	l.must(err)
	gids, err := l.dev.GIDTable()
	l.must(err)
	pkey, err := l.dev.PKey(1, 0)
	l.must(err)
	_, err = l.dev.Counters(1)
	l.must(err)
	l.tell("%v, MTU %d, %d GIDs, P_Key %#x", port.State, port.ActiveMTU, len(gids), pkey)
}

// Where what stands in the memory, besides the messages at its beginning.
const (
	lifeInbox  = 8192
	lifeWindow = 16384
	lifeMemory = 32768
)

func (l *whole) makeMemory() {
	var err error
	l.pd, err = l.dev.NewPD()
	l.must(err)
	l.pd2, err = l.dev.NewPD()
	l.must(err)
	l.mem, err = l.alloc(lifeMemory)
	l.must(err)
	l.mr, err = l.pd.Register(l.mem.Bytes(), LocalWrite|RemoteWrite|RemoteRead|RemoteAtomic|MWBind)
	l.must(err)
	l.heap, err = l.pd.Register(make([]byte, 5000), LocalWrite|RemoteWrite)
	l.must(err)
	if l.dmabuf != 0 {
		l.buf, err = l.pd.RegisterDMABuf(l.dmabuf, 0, 4096, 0, LocalWrite)
		l.must(err)
	}
}

func (l *whole) makeQueues() {
	var err error
	l.channel, err = l.dev.NewChannel()
	l.must(err)
	l.events, err = l.dev.NewCQ(64, &CQOptions{Events: true})
	l.must(err)
	l.channeld, err = l.dev.NewCQ(64, &CQOptions{Channel: l.channel})
	l.must(err)
	l.shared, err = l.dev.NewCQ(64, &CQOptions{Shared: true, Events: true})
	l.must(err)
	l.srq, err = l.pd.NewSRQ(&SRQOptions{Depth: 8, SGE: 2, Limit: 1})
	l.must(err)
}

func (l *whole) makePairs() {
	peer := RemoteWrite | RemoteRead | RemoteAtomic
	make := func(typ QPType, o QPOptions) *QP {
		o.Inline, o.SendDepth, o.RecvDepth, o.PeerAccess = 16, 8, 8, peer
		qp, err := l.pd.NewQP(typ, &o)
		l.must(err)
		return qp
	}
	join := func(a, b *QP) {
		l.must(a.Connect(l.ctx, b.Endpoint(), nil))
	}
	both := QPOptions{SendCQ: l.events, RecvCQ: l.channeld}
	l.a, l.b = make(RC, both), make(RC, both)
	join(l.a, l.b)
	join(l.b, l.a)
	l.uc = make(UC, QPOptions{CQ: l.shared})
	join(l.uc, l.uc)
	l.server = make(RC, QPOptions{CQ: l.events, SRQ: l.srq})
	join(l.server, l.server)
	l.ud = make(UD, QPOptions{CQ: l.shared})
	ah, err := l.pd.NewAH(l.ud.Endpoint(), nil)
	if l.may("address handles", err) {
		l.ah = ah
		group := GID{10: 0xff, 11: 0xff, 12: 239, 15: 1}
		l.must(l.ud.AttachMulticast(group))
		l.must(l.ud.AttachMulticast(GID{10: 0xff, 11: 0xff, 12: 239, 15: 2}))
		l.must(l.ud.DetachMulticast(group))
	} else {
		l.ah = nil
	}
	var err2 error
	l.waiter, err2 = poll.NewWaiter(poll.Event{}, l.events, l.channeld)
	l.must(err2)
}

// expect waits for n completions.
func (l *whole) expect(n int) {
	l.collect(n, StatusSuccess, func(wcs []WC) (int, error) { return l.waiter.Wait(l.ctx, wcs) })
}

// find takes n completions from the queue that is polled.
func (l *whole) find(n int, want Status) {
	l.collect(n, want, func(wcs []WC) (int, error) {
		if l.ctx.Err() != nil {
			return 0, context.Cause(l.ctx)
		}
		return l.shared.Poll(wcs)
	})
}

// collect tells what the completions were, in an order that does not depend on who
// was faster.
func (l *whole) collect(n int, want Status, more func([]WC) (int, error)) {
	var wcs [8]WC
	var names []string
	for len(names) < n {
		k, err := more(wcs[:])
		l.must(err)
		names = append(names, l.names(wcs[:k], want)...)
	}
	slices.Sort(names)
	l.story = append(l.story, names...)
}

// names says what completions are. Others than those of status want end the life.
func (l *whole) names(wcs []WC, want Status) (names []string) {
	for _, w := range wcs {
		if w.Status != want {
			l.must(fmt.Errorf("%+v: %w", w, w.Err()))
		}
		qp := slices.IndexFunc([]*QP{l.a, l.b, l.uc, l.ud, l.server}, func(q *QP) bool { return q.QPN() == w.QPN })
		imm, _ := w.Imm()
		names = append(names, fmt.Sprintf("QP %d: %v %d, %v, %v, %d bytes, %d", qp, w.Side, w.ID, w.Status, w.Opcode, w.Bytes, imm))
	}
	return names
}

// post flushes what was staged on all queues, receives first.
func (l *whole) post() {
	l.must(l.srq.RecvQueue().Flush())
	all := []*QP{l.a, l.b, l.uc, l.ud, l.server}
	for _, qp := range all {
		if qp != l.server {
			l.must(qp.RecvQueue().Flush())
		}
	}
	for _, qp := range all {
		l.must(qp.SendQueue().Flush())
	}
}

func (l *whole) useRC() {
	buf, there := l.mem.Bytes(), l.mr.Remote()
	copy(buf, "all kinds of objects")
	sq, rq := l.a.SendQueue(), l.b.RecvQueue()
	rq.Recv(1, l.mr.Span(lifeInbox, 100))
	rq.Recv(2, l.mr.Span(lifeInbox+100, 100))
	sq.Send(1, l.mr.Span(0, 20))
	sq.WriteImm(2, 77, there.At(lifeInbox+200), l.mr.Span(0, 20))
	sq.Read(3, l.mr.Span(lifeInbox+300, 20), there.At(0))
	sq.FetchAdd(4, l.mr.Span(lifeInbox+400, 8), there.At(lifeInbox+408), 5)
	sq.Write(5, l.heap.Remote().At(0), l.mr.Span(0, 20), Unsignaled)
	sq.SendInline(6, nil, Solicited)
	rq.RecvV(6, nil)
	l.post()
	l.expect(5 + 3)
	l.tell("%q %q %q %d", buf[lifeInbox:lifeInbox+20], buf[lifeInbox+200:lifeInbox+220], buf[lifeInbox+300:lifeInbox+320], l.mem.Uint64(lifeInbox+408).Load())
}

// useWindow opens a memory window, uses it and closes it. It comes after its queue
// pair and goes before it.
func (l *whole) useWindow() {
	var err error
	l.mw, err = l.pd.NewMW()
	if !l.may("memory windows", err) {
		l.mw = nil
		return
	}
	sq := l.b.SendQueue()
	w := sq.BindMW(1, l.mw, l.mr.Span(lifeWindow, 64), RemoteWrite)
	l.post()
	l.expect(1)
	l.a.SendQueue().WriteInline(2, w.At(0), []byte("a window"))
	l.post()
	l.expect(1)
	sq.LocalInvalidate(3, l.mw)
	l.post()
	l.expect(1)
	l.tell("%q", l.mem.Bytes()[lifeWindow:lifeWindow+8])
}

// useOthers uses UC, UD and the SRQ.
func (l *whole) useOthers() {
	l.must(l.shared.Arm(true))
	l.must(l.shared.Arm(false))
	l.uc.RecvQueue().Recv(1, l.mr.Span(lifeInbox, 64))
	l.uc.SendQueue().SendInline(2, []byte("unreliable"))
	l.post()
	l.find(2, StatusSuccess)
	for events := 0; events == 0; {
		ok, err := l.shared.TakeEvent()
		l.must(err)
		l.must(l.ctx.Err())
		if ok {
			events++
		}
	}
	if l.ah != nil {
		l.ud.RecvQueue().Recv(1, l.mr.Span(lifeInbox, 64))
		l.ud.SendQueue().SendToInline(2, Dest{AH: l.ah, QPN: l.ud.QPN()}, []byte("datagram"))
		l.post()
		l.find(2, StatusSuccess)
		l.tell("%q", l.mem.Bytes()[lifeInbox+GRHLen:lifeInbox+GRHLen+8])
	}
	l.srq.RecvQueue().RecvV(1, []Span{l.mr.Span(lifeInbox, 4), l.mr.Span(lifeInbox+8, 60)})
	l.srq.RecvQueue().Recv(2, l.mr.Span(lifeInbox+100, 60))
	l.server.SendQueue().SendInline(3, []byte("pool"))
	l.post()
	l.expect(2)
}

// change changes what can be changed.
func (l *whole) change() {
	l.may("re-registration", l.heap.Reregister(ChangeAccess(LocalWrite|RemoteRead)))
	l.may("re-registration", l.heap.Reregister(ChangePD(l.pd2)))
	l.may("resizes of CQs", l.events.ResizeOwned(100))
	l.may("moderation", l.events.Moderate(4, time.Millisecond))
	l.must(l.srq.SetLimit(2))
	limit, err := l.srq.Limit()
	l.must(err)
	l.may("resizes of SRQs", l.srq.Resize(6))
	info, err := l.a.Query()
	l.must(err)
	l.tell("limit %d, depths %d %d, %v %d", limit, l.events.Depth(), l.srq.Depth(), info.State, info.PathMTU)
	// One is shut down and used again, one fails and is reset.
	for i := range uint64(3) {
		l.a.RecvQueue().Recv(10+i, l.mr.Span(0, 8))
		l.uc.RecvQueue().Recv(10+i, l.mr.Span(0, 8))
	}
	l.post()
	var ends []WC
	l.must(l.a.Drain(l.ctx, func(w WC) { ends = append(ends, w) }))
	l.story = append(l.story, l.names(ends, StatusFlushed)...)
	l.must(l.a.Restart())
	l.must(l.uc.Modify(StateErr))
	state, err := l.uc.QueryState()
	l.must(err)
	l.find(3, StatusFlushed)
	l.must(l.uc.Modify(StateReset))
	l.must(l.uc.Restart())
	l.tell("%v, then %v and %v", state, l.a.State(), l.uc.State())
}

func (l *whole) closeAll() {
	closers := []interface{ Close() error }{l.a, l.b, l.uc, l.ud, l.server, l.srq, l.events, l.channeld, l.shared, l.channel, l.mr, l.heap, l.pd, l.pd2}
	if l.buf != nil {
		closers = slices.Insert(closers, 0, interface{ Close() error }(l.buf))
	}
	if l.ah != nil {
		closers = slices.Insert(closers, 0, interface{ Close() error }(l.ah))
	}
	if l.mw != nil {
		closers = slices.Insert(closers, 0, interface{ Close() error }(l.mw))
	}
	for _, c := range closers {
		l.must(c.Close())
	}
}

// wholeDevice is a fake device that has all there is.
var wholeDevice = fakekernel.Device{Linux62: true, Rereg: reregPD | reregAccess, DMABuf: true}

// newWhole is a life on a fake kernel.
func newWhole(k *fakekernel.Kernel) *whole {
	l := &whole{
		open:  func() (*Device, error) { return on(k).open("rxe0", nil) },
		alloc: func(n int) (*Memory, error) { return allocOn(k, n, nil) },
	}
	l.dmabuf = k.NewDMABuf(make([]byte, 4096))
	return l
}

// The whole life sees what it should, and has every kind of object.
func TestWholeLife(t *testing.T) {
	for _, cascade := range []bool{false, true} {
		k := fakekernel.New(wholeDevice)
		l := newWhole(k)
		l.cascade = cascade
		var kinds map[string]int
		l.peak = func() { kinds = k.Objects() }
		if err := l.live(); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"context", "PD", "MR", "CQ", "QP", "SRQ", "AH", "MW"} {
			if kinds[kind] == 0 {
				t.Errorf("no %s in %v", kind, kinds)
			}
		}
		if len(l.lacks) != 1 || !l.lacks["moderation"] {
			t.Errorf("it lacks %v", l.lacks)
		}
		for _, text := range append(k.Leaks(), k.Violations()...) {
			t.Error(text)
		}
		for _, text := range l.story {
			t.Log(text)
		}
	}
}

// NewWholeLife, Live and RoundsOr are for the tests outside of the package. peak is
// called while all objects stand, if it is not nil.
func NewWholeLife(open func() (*Device, error), alloc func(int) (*Memory, error), peak func()) *whole {
	return &whole{open: open, alloc: alloc, peak: peak}
}

// Live lives, and returns what it has seen and what this kernel does not have.
func (l *whole) Live(cascade bool) (story []string, lacks map[string]bool, err error) {
	l.cascade = cascade
	err = l.live()
	return l.story, l.lacks, err
}

var RoundsOr = roundsOr
