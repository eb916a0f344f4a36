package uverbs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Waiters on queues beside a device, and other goroutines, that do what they do at
// any point that the waiters pass, in an order that a number decides. No wait
// sleeps while there is something to deliver, or a reason to end; none that is
// cancelled has taken anything; every completion comes once and in order; a poll
// that a Close came into delivers nothing.
//
// GOVERBS_ROUNDS sets how many orders are tried; the full number is 100000.
func TestInterleavings(t *testing.T) {
	usual := 1500
	if raceDetector {
		usual = 300
	}
	const perDevice = 50
	rounds := roundsOr(t, usual)
	var sum scriptStats
	for seed := 0; seed < rounds; seed += perDevice {
		// Who waits for a lock that nobody gives back waits for ever in a bubble.
		watch := time.AfterFunc(patience, func() { panic(fmt.Sprintf("one of the %d orders from seed %d on does not end", perDevice, seed)) })
		synctest.Test(t, func(t *testing.T) {
			k := fakekernel.New(fakekernel.Device{ReuseQPN: true})
			r := &rig{k: k}
			var err error
			if r.dev, err = on(k).open("rxe0", nil); err != nil {
				t.Fatal(err)
			}
			if r.pd, err = r.dev.NewPD(); err != nil {
				t.Fatal(err)
			}
			if r.mem, err = allocOn(k, 4096, nil); err != nil {
				t.Fatal(err)
			}
			if r.mr, err = r.pd.Register(r.mem.Bytes(), LocalWrite|RemoteWrite); err != nil {
				t.Fatal(err)
			}
			file := &scriptFile{File: r.dev.file}
			r.dev.file = file
			for i := seed; i < min(seed+perDevice, rounds) && !t.Failed(); i++ {
				s := &script{t: t, rig: r, seed: uint64(i), rng: rand.New(rand.NewPCG(uint64(i), 7)), stats: &sum}
				file.script = s
				s.run()
			}
			r.close(t)
			r.clean(t)
		})
		watch.Stop()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d orders: %+v", rounds, sum)
	if rounds >= usual {
		sum.enough(t)
	}
}

// scriptStats counts what happened, so that a script that shows nothing shows.
type scriptStats struct {
	Steps, Added, Mailed, Delivered, Sleeps, Cancelled, Closed, ClosedInPoll, HandedOn, Resized, WaitersClosed int
}

// enough fails the test if one of the interesting things never happened.
func (s *scriptStats) enough(t *testing.T) {
	t.Helper()
	for _, n := range []int{s.Added, s.Mailed, s.Sleeps, s.Cancelled, s.Closed, s.ClosedInPoll, s.HandedOn, s.Resized, s.WaitersClosed} {
		if n < 10 {
			t.Errorf("something happened less than ten times: %+v", *s)
		}
	}
}

// script is one order of events. One goroutine runs at a time: the driver, which
// chooses what happens next, or the waiter that it has let go on, until that one
// pauses, which it does wherever another processor could come in between, or
// sleeps.
type script struct {
	*rig
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	stats   *scriptStats
	channel *Channel
	queues  []*scriptQueue
	waiters []*scriptWaiter
	inside  *scriptQueue // whose call into the kernel is under way
	ending  bool         // nothing new happens

	mu    sync.Mutex // one waiter may wake another, which then gets to its next pause
	steps []scriptStep
}

type scriptStep struct {
	what string
	n    int
}

func (s *script) note(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, scriptStep{what, n})
}

// fail reports what went wrong, and the way there.
func (s *script) fail(format string, args ...any) {
	s.t.Helper()
	if s.t.Failed() {
		return
	}
	var b strings.Builder
	for _, w := range s.waiters {
		fmt.Fprintf(&b, "waiter %d on queues", w.n)
		for _, q := range w.queues {
			fmt.Fprintf(&b, " %d", q.n)
		}
		b.WriteString("; ")
	}
	b.WriteString("queues 0 and 1 share a channel\n")
	for _, step := range s.steps {
		fmt.Fprintf(&b, "%s %d; ", step.what, step.n)
	}
	s.t.Errorf("seed %d: %s\n%s", s.seed, fmt.Sprintf(format, args...), b.String())
}

func (s *script) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Of a script: how many things it does besides letting waiters go on, and how many
// completions it makes on each queue.
const (
	scriptDeeds = 25
	scriptAdds  = 16
)

// run plays the script.
func (s *script) run() {
	s.make()
	for deeds := 0; deeds < scriptDeeds && !s.t.Failed(); {
		if s.rng.IntN(3) > 0 && s.goOn() {
			continue
		}
		s.deed()
		deeds++
		s.settle()
	}
	// Whoever has something to deliver delivers it, and then all sleep.
	s.ending = true
	s.note("ending", 0)
	for s.goOn() && !s.t.Failed() {
	}
	for _, q := range s.queues {
		s.audit(q)
	}
	s.unmake()
}

// make makes the queues and whatever makes completions on them, and the waiters.
func (s *script) make() {
	var err error
	s.channel, err = s.dev.NewChannel()
	s.must(err)
	s.channel.file = &scriptEvents{s.channel.file, s}
	for n := range 3 {
		opts := &CQOptions{Channel: s.channel}
		if n == 2 {
			opts = &CQOptions{Events: true}
		}
		q := &scriptQueue{s: s, n: n}
		q.CQ, err = s.dev.NewCQ(2*scriptAdds+4, opts)
		s.must(err)
		if n == 2 {
			q.channel.file = &scriptEvents{q.channel.file, s}
		}
		q.sends, err = s.pd.NewQP(RC, &QPOptions{CQ: q.CQ, SendDepth: scriptAdds, RecvDepth: 1, Inline: 8})
		s.must(err)
		s.must(q.sends.Connect(context.Background(), q.sends.Endpoint(), nil))
		q.recvs, err = s.pd.NewQP(RC, &QPOptions{CQ: q.CQ, SendDepth: 1, RecvDepth: scriptAdds})
		s.must(err)
		s.queues = append(s.queues, q)
		s.wrap(q)
	}
	// Each queue goes to one of up to three waiters.
	var parts [3][]*scriptQueue
	for _, q := range s.queues {
		n := s.rng.IntN(3)
		parts[n] = append(parts[n], q)
	}
	for _, part := range parts {
		if len(part) == 0 {
			continue
		}
		w := &scriptWaiter{s: s, n: len(s.waiters), queues: part, goOn: make(chan struct{})}
		w.renew()
		all := make([]cq.Queue, len(part))
		for i, q := range part {
			q.w, all[i] = w, q
		}
		w.Waiter, err = poll.NewWaiter(poll.Event{}, all...)
		s.must(err)
		s.waiters = append(s.waiters, w)
		go w.live()
		synctest.Wait()
	}
}

// unmake ends the waiters and closes everything.
func (s *script) unmake() {
	for _, w := range s.waiters {
		w.over = true
		w.cancel(errEnough)
	}
	s.settle()
	for s.goOn() {
	}
	for _, w := range s.waiters {
		if !w.left {
			s.fail("waiter %d did not end", w.n)
			s.t.FailNow()
		}
		if !w.closed {
			s.must(w.Close())
		}
	}
	for _, q := range s.queues {
		if !q.shut {
			s.shut(q)
		}
	}
	s.must(s.channel.Close())
}

// goOn lets one of the waiters that pause go on to its next pause, or to sleep. It
// returns false when none pauses.
func (s *script) goOn() bool {
	var paused []*scriptWaiter
	for _, w := range s.waiters {
		if w.paused {
			paused = append(paused, w)
		}
	}
	if len(paused) == 0 {
		return false
	}
	w := paused[s.rng.IntN(len(paused))]
	w.paused = false
	w.goOn <- struct{}{}
	s.stats.Steps++
	s.settle()
	return true
}

// settle brings news to those who sleep, as the descriptors do, and sees that
// nobody sleeps who should not.
func (s *script) settle() {
	synctest.Wait()
	for again := true; again; {
		again = false
		for _, w := range s.waiters {
			if !w.asleep() {
				continue
			}
			for _, q := range w.queues {
				if !q.shut && s.k.Readable(q.channel.file.FD()) {
					q.wakeUp()
					synctest.Wait()
					again = true
					break
				}
			}
		}
	}
	for _, w := range s.waiters {
		if !w.asleep() {
			continue
		}
		s.stats.Sleeps++
		if w.ctx.Err() != nil || w.closed {
			s.fail("waiter %d sleeps though it was to end", w.n)
		}
		for _, q := range w.queues {
			if n := q.added - q.got; n > 0 || q.shut || q.mailed > q.gotMail || q.resizing {
				s.fail("waiter %d sleeps beside %d completions and %d in the mail of queue %d, closed %v, to be resized %v", w.n, n, q.mailed-q.gotMail, q.n, q.shut, q.resizing)
			}
		}
	}
	for _, q := range s.queues {
		s.wrap(q)
	}
}

// deed does something.
func (s *script) deed() {
	q, w := s.queues[s.rng.IntN(len(s.queues))], s.waiters[s.rng.IntN(len(s.waiters))]
	switch n := s.rng.IntN(20); {
	case n < 11:
		s.add(q)
	case n < 14:
		s.note("cancel waiter", w.n)
		w.cancel(errEnough)
	case n < 16:
		s.mail(q)
	case n < 18:
		s.resize(q)
	case n < 19:
		if !q.shut {
			s.stats.Closed++
			s.shut(q)
		}
	default:
		if !w.closed && s.rng.IntN(2) == 0 {
			s.note("close waiter", w.n)
			s.stats.WaitersClosed++
			w.closed = true
			s.must(w.Close())
		}
	}
}

var errEnough = errors.New("enough")

// add makes the device add some completions.
func (s *script) add(q *scriptQueue) {
	n := min(1+s.rng.IntN(3), scriptAdds-q.added)
	if q.shut || n <= 0 {
		return
	}
	s.note("add to queue", q.n)
	for range n {
		q.sends.SendQueue().WriteInline(uint64(q.added), s.mr.Remote().At(0), []byte("x"))
		q.added++
	}
	s.must(q.sends.SendQueue().Flush())
	s.stats.Added += n
}

// mail makes the library add some completions: ends of receives that a reset has
// dropped.
func (s *script) mail(q *scriptQueue) {
	if q.shut || q.mailed > 0 {
		return
	}
	s.note("mail to queue", q.n)
	n := 1 + s.rng.IntN(5)
	for i := range n {
		q.recvs.RecvQueue().RecvV(uint64(i), nil)
	}
	s.must(q.recvs.RecvQueue().Flush())
	s.must(q.recvs.Modify(StateReset))
	q.mailed = n
	s.stats.Mailed += n
}

// resize asks for another depth, which the poller has to see to.
func (s *script) resize(q *scriptQueue) {
	if q.shut || q.resizing || q.w.closed {
		return
	}
	s.note("resize queue", q.n)
	q.resizing = true
	depth := 2*scriptAdds + 4 + s.rng.IntN(64)
	go func() {
		err := q.Resize(context.Background(), depth)
		q.resizing = false
		if err != nil && !(q.shut && errors.Is(err, os.ErrClosed)) {
			s.fail("resize of queue %d: %v", q.n, err)
		}
		s.stats.Resized++
	}()
}

// shut closes a queue, and those who make completions on it.
func (s *script) shut(q *scriptQueue) {
	s.note("close queue", q.n)
	s.must(q.sends.Close())
	s.must(q.recvs.Close())
	q.shut = true
	s.must(q.Close())
	synctest.Wait()
}

// audit takes what nobody has waited for, and sees that nothing is missing.
func (s *script) audit(q *scriptQueue) {
	if q.shut {
		return
	}
	q.ring = q.ring.(*scriptRing).CompletionRing // nobody else is there
	var wcs [4]WC
	for {
		n, err := q.CQ.Poll(wcs[:])
		if err != nil || n > 0 && !q.w.closed {
			s.fail("at the end queue %d had %d completions, %v", q.n, n, err)
			return
		}
		if n == 0 {
			break
		}
		q.see(wcs[:n])
	}
	if q.got != q.added || q.gotMail != q.mailed {
		s.fail("queue %d: %d of %d completions, %d of %d from the mail", q.n, q.got, q.added, q.gotMail, q.mailed)
	}
	if st := q.Stats(); st != (CQStats{}) {
		s.fail("queue %d dropped %+v", q.n, st)
	}
}

// scriptQueue is a CQ whose poller pauses before and after all that it does to it.
type scriptQueue struct {
	*CQ
	s            *script
	n            int
	w            *scriptWaiter
	wakeUp       func() // of the waiter
	sends, recvs *QP
	// How many completions were made, by the device and by the library, and how
	// many of each the program has got.
	added, mailed, got, gotMail int
	resizing, shut              bool
}

func (q *scriptQueue) Attach(wake func()) (int, func(), error) {
	_, detach, err := q.CQ.Attach(wake)
	q.wakeUp = wake
	return -1, detach, err // the script is the descriptor
}

func (q *scriptQueue) Poll(wcs []WC) (int, error) {
	q.w.pause("before poll of", q.n)
	shut := q.shut
	n, err := q.CQ.Poll(wcs)
	if q.shut && !shut {
		q.s.stats.ClosedInPoll++
	}
	switch {
	case q.shut && (n != 0 || !errors.Is(err, os.ErrClosed)), !q.shut && err != nil:
		q.s.fail("poll of queue %d, closed %v: %d, %v", q.n, q.shut, n, err)
	}
	q.w.polled = append(q.w.polled, wcs[:n]...)
	q.see(wcs[:n])
	q.w.pause("after poll of", q.n)
	return n, err
}

// see takes completions of the queue, which have to be the next ones.
func (q *scriptQueue) see(wcs []WC) {
	for _, w := range wcs {
		switch {
		case w.QPN == q.sends.QPN() && w.Side == SendSide && w.Status == StatusSuccess && w.ID == uint64(q.got):
			q.got++
		case w.QPN == q.recvs.QPN() && w.Side == RecvSide && w.Flags == cq.FlagSynthetic && w.ID == uint64(q.gotMail):
			q.gotMail++
		default:
			q.s.fail("queue %d delivers %+v after %d completions, and %d from the mail", q.n, w, q.got, q.gotMail)
		}
	}
}

func (q *scriptQueue) Arm(solicited bool) error {
	q.w.pause("before arming", q.n)
	q.s.inside = q
	err := q.CQ.Arm(solicited)
	q.s.inside = nil
	if err != nil && !(q.shut && errors.Is(err, os.ErrClosed)) {
		q.s.fail("arm queue %d: %v", q.n, err)
	}
	q.w.pause("after arming", q.n)
	return err
}

func (q *scriptQueue) TakeEvent() (bool, error) {
	q.w.pause("before taking an event of", q.n)
	q.s.inside = q
	ok, err := q.CQ.TakeEvent()
	q.s.inside = nil
	if err != nil && !(q.shut && errors.Is(err, os.ErrClosed)) {
		q.s.fail("take an event of queue %d: %v", q.n, err)
	}
	q.w.pause("after taking an event of", q.n)
	return ok, err
}

// wrap makes the poller of a queue pause right before and after it has read the
// ring, also a new one.
func (s *script) wrap(q *scriptQueue) {
	if _, ok := q.ring.(*scriptRing); !ok {
		q.ring = &scriptRing{q.ring, q}
	}
}

type scriptRing struct {
	cq.CompletionRing
	q *scriptQueue
}

func (r *scriptRing) Poll(wcs []WC) (int, bool) {
	r.q.w.pause("at the ring of", r.q.n)
	n, drained := r.CompletionRing.Poll(wcs)
	r.q.w.pause("with the batch of", r.q.n)
	return n, drained
}

// scriptFile lets the device add completions right before and after a call of a
// waiter into the kernel. The caller holds locks, so nothing else can happen.
type scriptFile struct {
	kernel.File
	script *script
}

func (f *scriptFile) Ioctl(req []byte) error {
	f.script.addInside()
	err := f.File.Ioctl(req)
	f.script.addInside()
	return err
}

// scriptEvents does so too.
type scriptEvents struct {
	kernel.EventFile
	script *script
}

func (e *scriptEvents) Read(p []byte) (int, error) {
	s := e.script
	s.addInside()
	n, err := e.EventFile.Read(p)
	if n > 0 && s.inside != nil && native.Uint64(p) != s.inside.id {
		s.stats.HandedOn++
	}
	s.addInside()
	return n, err
}

func (s *script) addInside() {
	if q := s.inside; q != nil && !s.ending && s.rng.IntN(4) == 0 {
		s.inside = nil // not for the calls of this
		s.add(s.queues[s.rng.IntN(len(s.queues))])
		s.inside = q
	}
}

// scriptWaiter is a goroutine that waits.
type scriptWaiter struct {
	*poll.Waiter
	s      *script
	n      int
	queues []*scriptQueue
	goOn   chan struct{}
	paused bool
	left   bool // it has ended
	over   bool // it is to end
	closed bool
	ctx    context.Context
	cancel context.CancelCauseFunc
	polled []WC // since the last wait began
}

// asleep says whether it neither pauses nor has ended.
func (w *scriptWaiter) asleep() bool { return !w.paused && !w.left }

func (w *scriptWaiter) pause(what string, queue int) {
	w.s.note(what, queue)
	w.paused = true
	<-w.goOn
}

func (w *scriptWaiter) renew() { w.ctx, w.cancel = context.WithCancelCause(context.Background()) }

// live waits again and again, and now and then polls and arms by hand.
func (w *scriptWaiter) live() {
	s := w.s
	defer func() { w.left = true }()
	var wcs [4]WC
	for {
		w.pause("between waits of waiter", w.n)
		q := w.queues[s.rng.IntN(len(w.queues))]
		switch n := s.rng.IntN(12); {
		case n == 0 && !s.ending:
			q.Poll(wcs[:1+s.rng.IntN(4)])
		case n == 1 && !s.ending:
			q.Arm(false)
		default:
			if !w.wait(wcs[:1+s.rng.IntN(4)]) {
				return
			}
		}
	}
}

// wait waits once. It returns false at the end.
func (w *scriptWaiter) wait(wcs []WC) bool {
	s := w.s
	w.polled = w.polled[:0]
	n, err := w.Wait(w.ctx, wcs)
	if n == 0 && err == nil || n > 0 && err != nil || n != len(w.polled) {
		s.fail("waiter %d: Wait took %d completions and returned %d, %v", w.n, len(w.polled), n, err)
	}
	s.stats.Delivered += n
	for i := range min(n, len(w.polled)) {
		if wcs[i] != w.polled[i] {
			s.fail("waiter %d: Wait returned %+v, it took %+v", w.n, wcs[i], w.polled[i])
		}
	}
	if err == nil {
		return true
	}
	shut := false
	for _, q := range w.queues {
		shut = shut || q.shut
	}
	switch {
	case errors.Is(err, errEnough) && w.ctx.Err() != nil:
		s.stats.Cancelled++
		w.renew()
	case errors.Is(err, os.ErrClosed) && (shut || w.closed):
	default:
		s.fail("waiter %d: Wait: %v", w.n, err)
	}
	return !w.over && !w.closed && !(shut && s.ending && w.delivered())
}

// delivered says whether the waiter's open queues have nothing left.
func (w *scriptWaiter) delivered() bool {
	for _, q := range w.queues {
		if !q.shut && (q.added > q.got || q.mailed > q.gotMail || q.resizing) {
			return false
		}
	}
	return true
}
