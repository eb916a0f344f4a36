package uverbs

import (
	"context"
	"errors"
	"os"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

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

// readable is a queue whose channel wakes the sleeping waiter, or nil.
func (w *scriptWaiter) readable() *scriptQueue {
	for _, q := range w.queues {
		if w.asleep() && !q.shut && w.s.k.Readable(q.channel.file.FD()) {
			return q
		}
	}
	return nil
}

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
