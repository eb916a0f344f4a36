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
		if s.rng.IntN(6) > 0 && s.goOn() {
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
	// Each queue goes to one of up to three waiters, the two of the shared
	// channel mostly to different ones.
	var parts [3][]*scriptQueue
	for _, q := range s.queues {
		n := s.rng.IntN(3)
		if q.n == 1 && len(parts[n]) > 0 {
			n = s.rng.IntN(3)
		}
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

// goOn lets one of the waiters that pause go on to its next pause, or to sleep; or
// one that sleeps see that its descriptor is readable. It returns false when there
// is none.
func (s *script) goOn() bool {
	var able []*scriptWaiter
	for _, w := range s.waiters {
		if w.paused || w.readable() != nil {
			able = append(able, w)
		}
	}
	if len(able) == 0 {
		return false
	}
	w := able[s.rng.IntN(len(able))]
	if q := w.readable(); q != nil {
		s.note("readable: waiter", w.n)
		q.wakeUp()
	} else {
		w.paused = false
		w.goOn <- struct{}{}
	}
	s.stats.Steps++
	s.settle()
	return true
}

// settle sees that nobody sleeps who should not.
func (s *script) settle() {
	synctest.Wait()
	for _, w := range s.waiters {
		if !w.asleep() || w.readable() != nil {
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
