package uverbs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// arena is where races are held: a CQ, two queue pairs that complete on it, each
// its own peer, and who uses them. Each round has a poster, which flushes, a
// poller and an actor, who does something to what the two are using.
//
// On the first track go all requests that the actor's deed may hit; the second is
// a bystander's, to whom nothing may happen but what happens to the CQ.
type arena struct {
	t   testing.TB
	dev *Device
	pd  *PD
	mem *Memory
	mr  *MR

	opts CQOptions
	// noThreads: there are no descriptors, which waiting threads need.
	noThreads bool
	q         *CQ
	qps       [tracks]*QP
	waiter    *poll.Waiter // nil where the poller polls

	rng     *rand.Rand // of who prepares the rounds
	ctx     context.Context
	stuck   atomic.Bool
	watch   *time.Timer
	over    atomic.Bool  // the actor has done
	done    atomic.Bool  // the last completion was seen
	closed  atomic.Bool  // the CQ is closed
	last    atomic.Int64 // the request whose completion ends the round; 0 while it is not posted
	steps   atomic.Int64 // of the victim
	budget  int          // how many steps a poster goes in a round
	receive bool         // whether there are receives
	carried bool         // whether all sends have to succeed

	posts   posts
	tallies [2]tally
}

const (
	tracks     = 2
	trackDepth = 8
	patience   = 2 * time.Minute // for what should take microseconds
)

// enough steps of the victim, for the actor not to wait for more.
const enough = 1 << 40

// fate is what a poster knows of a request.
type fate uint8

const (
	notPosted fate = iota
	refused        // Flush said that the device does not get it
	accepted
	acceptedQuiet // its success is not reported
)

// posts is what the poster has posted, by track and side. The id of a request says
// where to find it.
type posts [tracks][2][]fate

func requestID(track int, n int) uint64 { return uint64(track)<<40 | uint64(n) }

// tally is what a poller has seen of the posts.
type tally [tracks][2]struct {
	seen []bool
	next int
}

// newArena makes an empty arena. seed decides what is left to chance in it, but not
// who is faster.
func newArena(t testing.TB, opts CQOptions, seed uint64) *arena {
	a := &arena{t: t, opts: opts, rng: rand.New(rand.NewPCG(seed, 1)), budget: 24}
	for track := range tracks {
		for side := range 2 {
			a.posts[track][side] = make([]fate, 1, 1024) // none has the number 0
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	a.ctx = ctx
	a.watch = time.AfterFunc(patience, func() {
		a.stuck.Store(true)
		cancel(errors.New("stuck"))
	})
	return a
}

// useDevice makes all but the CQ and the queue pairs.
func (a *arena) useDevice(d *Device, mem *Memory) {
	a.dev, a.mem = d, mem
	d.file = &strictFile{d.file, a.t}
	var err error
	a.pd, err = d.NewPD()
	a.must(err)
	a.mr, err = a.pd.Register(mem.Bytes(), LocalWrite|RemoteWrite)
	a.must(err)
}

// makeCQ makes the CQ, and a waiter on it if the poller is to wait.
func (a *arena) makeCQ(wait bool) {
	q, err := a.dev.NewCQ(2*tracks*trackDepth, &a.opts)
	a.must(err)
	a.q = q
	a.closed.Store(false)
	if wait {
		thread := a.rng.IntN(4) == 0
		a.waiter, err = poll.NewWaiter(poll.Event{Thread: thread && !a.noThreads}, q)
		a.must(err)
	}
}

// makeQP makes the queue pair of a track and connects it to itself.
func (a *arena) makeQP(track int) {
	qp, err := a.pd.NewQP(RC, &QPOptions{CQ: a.q, SendDepth: trackDepth, RecvDepth: trackDepth, Inline: 8})
	a.must(err)
	a.qps[track] = qp
	a.connect(track)
}

func (a *arena) connect(track int) {
	a.must(a.qps[track].Connect(a.ctx, a.qps[track].Endpoint(), nil))
}

// strictFile fails the test for every call into the kernel that fails: none does
// unless it names an object that is gone, or is made too early or too late.
type strictFile struct {
	kernel.File
	t testing.TB
}

func (f *strictFile) Ioctl(req []byte) error {
	err := f.File.Ioctl(req)
	if err != nil {
		f.t.Errorf("ioctl of object %d, method %d: %v", native.Uint16(req[2:]), native.Uint16(req[4:]), err)
	}
	return err
}

func (f *strictFile) Write(req []byte) error {
	err := f.File.Write(req)
	if err != nil {
		f.t.Errorf("doorbell: %v", err)
	}
	return err
}

func (a *arena) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// post posts a few requests on a track, and says what Flush said.
func (a *arena) post(track int, rng *rand.Rand) error {
	qp := a.qps[track]
	if a.receive && rng.IntN(2) == 0 {
		fates := &a.posts[track][RecvSide]
		n := min(1+rng.IntN(2), qp.RecvQueue().Room())
		for i := range n {
			qp.RecvQueue().Recv(requestID(track, len(*fates)+i), a.mr.Span(0, 8))
		}
		err := qp.RecvQueue().Flush()
		for range n {
			*fates = append(*fates, became(err, false))
		}
		return err
	}
	fates := &a.posts[track][SendSide]
	n := min(1+rng.IntN(3), qp.SendQueue().Room())
	var quiet [3]bool
	for i := range n {
		a.write(track, len(*fates)+i, &quiet[i], rng)
	}
	err := qp.SendQueue().Flush()
	for i := range n {
		*fates = append(*fates, became(err, quiet[i]))
	}
	return err
}

var eight = []byte("8 bytes.")

func (a *arena) write(track, n int, quiet *bool, rng *rand.Rand) {
	to := a.mr.Remote().At(64)
	if *quiet = rng.IntN(4) == 0; *quiet {
		a.qps[track].SendQueue().WriteInline(requestID(track, n), to, eight, Unsignaled)
		return
	}
	a.qps[track].SendQueue().WriteInline(requestID(track, n), to, eight)
}

func became(err error, quiet bool) fate {
	switch {
	case err != nil:
		return refused
	case quiet:
		return acceptedQuiet
	}
	return accepted
}

// poster posts until the actor has done, and then one request more, whose
// completion is the last of the round, if something completes by then.
func (a *arena) poster(r *race, rng *rand.Rand) {
	for n := 0; !a.over.Load() && !a.stuck.Load(); n++ {
		if n >= a.budget {
			a.steps.Store(enough)
			runtime.Gosched()
			continue
		}
		track := rng.IntN(tracks)
		err := a.post(track, rng)
		if err != nil && (track != 0 && !r.all || r.flush == nil || !errors.Is(err, r.flush)) {
			a.t.Errorf("Flush on track %d: %v", track, err)
		}
		if r.victim == flushing {
			a.steps.Add(1)
		}
		if rng.IntN(4) == 0 {
			runtime.Gosched()
		}
	}
	if a.closed.Load() {
		a.postAfterClose()
		return
	}
	const track = tracks - 1
	sq, fates := a.qps[track].SendQueue(), &a.posts[track][SendSide]
	for sq.Room() == 0 && !a.stuck.Load() {
		runtime.Gosched()
	}
	a.last.Store(int64(len(*fates)))
	sq.WriteInline(requestID(track, len(*fates)), a.mr.Remote().At(64), eight)
	err := sq.Flush()
	*fates = append(*fates, became(err, false))
	if err != nil {
		a.t.Errorf("the last Flush: %v", err)
		a.stuck.Store(true)
	}
}

// postAfterClose sees that nothing can be posted any more.
func (a *arena) postAfterClose() {
	for track, qp := range a.qps {
		qp.SendQueue().WriteInline(requestID(track, 0), a.mr.Remote().At(64), eight)
		if err := qp.SendQueue().Flush(); !errors.Is(err, os.ErrClosed) {
			a.t.Errorf("Flush of sends after Close: %v", err)
		}
		qp.RecvQueue().RecvV(requestID(track, 0), nil)
		if err := qp.RecvQueue().Flush(); !errors.Is(err, os.ErrClosed) {
			a.t.Errorf("Flush of receives after Close: %v", err)
		}
	}
}

// poller polls or waits until it has seen the last completion, or an error, or
// while more says so.
func (a *arena) poller(w *poll.Waiter, tally *tally, rng *rand.Rand, more func() bool) error {
	var wcs [4]WC
	for more() && !a.stuck.Load() && !a.done.Load() {
		var n int
		var err error
		closed := a.closed.Load() // before the poll: Close has returned
		into := wcs[:1+rng.IntN(len(wcs))]
		if w != nil {
			n, err = w.Wait(a.ctx, into)
		} else if n, err = a.q.Poll(into); n == 0 {
			runtime.Gosched()
		}
		if closed && err == nil {
			a.t.Errorf("%d completions, no error after Close", n)
		}
		if n > 0 && err != nil || n == 0 && err == nil && w != nil {
			a.t.Errorf("%d completions with %v", n, err)
		}
		for _, wc := range into[:n] {
			a.see(tally, wc)
			if last := a.last.Load(); last != 0 && wc.ID == requestID(tracks-1, int(last)) && wc.Side == SendSide {
				a.done.Store(true)
			}
		}
		if err != nil {
			return err
		}
		a.steps.Add(1)
	}
	return nil
}

// see enters a completion into a tally.
func (a *arena) see(tally *tally, w WC) {
	track, n := w.ID>>40, int(w.ID&(1<<40-1))
	if track >= tracks || w.Side > RecvSide || n == 0 || n > 1<<30 {
		a.t.Errorf("completion %+v", w)
		return
	}
	if w.Status != StatusSuccess && (w.Status != StatusFlushed || w.Side == SendSide && a.carried) || w.QPN != a.qps[track].QPN() {
		a.t.Errorf("completion %+v on QP %d", w, a.qps[track].QPN())
	}
	v := &tally[track][w.Side]
	if n < v.next {
		a.t.Errorf("%+v, number %d on track %d after %d: out of order or twice", w, n, track, v.next-1)
		return
	}
	v.seen = append(v.seen, make([]bool, n+1-len(v.seen))...)
	v.seen[n], v.next = true, n+1
}

// audit compares what was posted with what was seen. Every accepted request has
// come to its end unless some may be lost, none was seen that was refused.
func (a *arena) audit(lossy [tracks]bool) {
	a.t.Helper()
	for track := range tracks {
		for side := range 2 {
			lost, ghosts, twice := 0, 0, 0
			for n, f := range a.posts[track][side] {
				times := 0
				for i := range a.tallies {
					if s := a.tallies[i][track][side].seen; n < len(s) && s[n] {
						times++
					}
				}
				switch {
				case times > 1:
					twice++
				case times == 1 && (f == refused || f == notPosted):
					ghosts++
				case times == 0 && f == accepted && !lossy[track]:
					lost++
				}
			}
			if lost+ghosts+twice > 0 {
				a.t.Errorf("track %d, %v side: of %d requests %d were lost, %d came though they were refused, %d came twice", track, Side(side), len(a.posts[track][side])-1, lost, ghosts, twice)
			}
		}
	}
}

// round holds one round.
func (a *arena) round(r *race) {
	a.watch.Reset(patience)
	a.over.Store(false)
	a.done.Store(false)
	a.last.Store(0)
	a.steps.Store(0)
	trigger, delay := int64(a.rng.IntN(6)), a.rng.IntN(200)
	posts, polls, acts := a.fork(), a.fork(), a.fork()
	var wg sync.WaitGroup
	wg.Go(func() { a.poster(r, posts) })
	wg.Go(func() {
		err := a.poller(a.waiter, &a.tallies[0], polls, func() bool { return true })
		a.steps.Store(enough)
		if err != nil && (r.poll == nil || !errors.Is(err, r.poll)) {
			a.t.Errorf("the poller ended with %v", err)
			a.stuck.Store(true)
		}
	})
	wg.Go(func() {
		for a.steps.Load() < trigger {
			runtime.Gosched()
		}
		for range delay {
			spin.Add(1)
		}
		r.act(a, acts)
		a.over.Store(true)
	})
	wg.Wait()
	if a.stuck.Load() {
		a.t.Fatalf("the round did not end: %s", a.describe())
	}
}

var spin atomic.Int64

func (a *arena) fork() *rand.Rand { return rand.New(rand.NewPCG(a.rng.Uint64(), a.rng.Uint64())) }

// describe says where the arena stands, for who wonders why.
func (a *arena) describe() string {
	s := fmt.Sprintf("over %v, closed %v, last %d; queue: state %#x, %+v", a.over.Load(), a.closed.Load(), a.last.Load(), a.q.state.Load(), a.q.Stats())
	for track, qp := range a.qps {
		s += fmt.Sprintf("; track %d in %v, %d sends and %d receives posted, %d and %d outstanding", track, qp.State(),
			len(a.posts[track][SendSide])-1, len(a.posts[track][RecvSide])-1, qp.sq.requests.Depth()-qp.sq.requests.Vacant(), qp.rq.requests.Depth()-qp.rq.requests.Vacant())
	}
	return s
}

// settle ends what is outstanding on all tracks, and takes it.
func (a *arena) settle() {
	a.watch.Reset(patience)
	for _, qp := range a.qps {
		a.must(qp.Drain(a.ctx, func(w WC) { a.see(&a.tallies[0], w) }))
	}
}
