package uverbs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// errEnding is why a queue pair that is being shut down takes nothing more.
var errEnding error = &reason{err: &ErrState, behind: ": it was shut down, or Recover has not got it going: Close it, or Restart or Recover it to use it again"}

// whyEnding is why nothing may be posted any more. Close sets closing before
// ending, so that who sees ending sees the right reason.
func (qp *QP) whyEnding() error {
	switch {
	case qp.closing.Load():
		return os.ErrClosed
	case qp.dev.lost.Load():
		return ErrDeviceGone
	}
	return errEnding
}

// Shutdown ends a queue pair in good order: it takes no more requests, waits
// until the device has carried out all sends, takes the queue pair to ERR and
// then to RESET, and returns when every request that Flush accepted has come to
// its end through Poll. Receives end as flushed; where the device does not end
// them (soft-RoCE, for receives posted late) the library does, with
// [cq.FlagSynthetic].
//
// Somebody else polls meanwhile: Shutdown is for programs whose poller is
// another goroutine. A program that polls in the same one uses Drain. When ctx
// ends first, Shutdown returns its cause; the queue pair takes no more requests,
// and Shutdown can be called again.
//
// From its beginning on Flush fails with ErrState, and after Close with
// os.ErrClosed. When it returns, the poller may still be working on the last
// completions that Poll gave it: close memory that it reads then in the poller
// itself, or when it has told that it is done.
//
// Afterwards Close discards nothing, and Restart makes the queue pair new.
func (qp *QP) Shutdown(ctx context.Context) error {
	return qp.end(ctx, "shut down", waitTurn(ctx))
}

// shut makes the queue pair take no more requests, and returns what open asks for.
func (qp *QP) shut() (shuts uint32) {
	qp.modify.Lock()
	defer qp.modify.Unlock()
	qp.ending.Store(true)
	return qp.shuts.Add(1)
}

// open makes the queue pair take requests again, unless it was shut since. Who ends it
// for good says so, and sets ending, before waiting for the lock, and sets ending again
// with it held.
func (qp *QP) open(shuts uint32) error {
	qp.modify.Lock()
	defer qp.modify.Unlock()
	if qp.closing.Load() || qp.dev.lost.Load() || qp.shuts.Load() != shuts {
		return qp.whyEnding()
	}
	qp.ending.Store(false)
	return nil
}

// waitTurn is what a goroutine does that waits for a poller: nothing for a while.
func waitTurn(ctx context.Context) func() error {
	pause := time.NewTimer(0)
	return func() error {
		pause.Reset(time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
		return nil
	}
}

// Drain is Shutdown for the goroutine that polls: it polls both CQs itself and
// hands every completion, also of other queue pairs, to handle. Another
// goroutine that waits on one of the CQs is a second poller, which Drain cannot
// see: end its Wait first.
func (qp *QP) Drain(ctx context.Context, handle func(WC)) error {
	return qp.end(ctx, "drain", qp.pollTurn(handle))
}

// pollTurn is what the poller does meanwhile: it polls both CQs.
func (qp *QP) pollTurn(handle func(WC)) func() error {
	var wcs [16]WC
	queues := []*CQ{qp.sendCQ, qp.recvCQ}
	if queues[0] == queues[1] {
		queues = queues[:1]
	}
	return func() (err error) {
		idle := true
		for _, q := range queues {
			n, e := q.Poll(wcs[:])
			if e != nil {
				err = e
				continue
			}
			for _, w := range wcs[:n] {
				handle(w)
			}
			idle = idle && n == 0
		}
		if idle {
			time.Sleep(100 * time.Microsecond)
		}
		return err
	}
}

// A grace is how long nothing may come to its end: flushGrace, in which the device flushes the
// next completion, but no fewer than graceTurns. A machine that stood still has not looked.
type grace struct {
	since time.Time
	turns int
	room  int
}

const (
	flushGrace = 100 * time.Millisecond
	graceTurns = 20
)

// over is asked once a turn. The grace begins anew where more is true, and when something
// came to its end, which makes room.
func (g *grace) over(room int, more bool) bool {
	if more || room != g.room || g.since.IsZero() {
		*g = grace{since: time.Now(), room: room}
	}
	g.turns++
	return g.turns > graceTurns && time.Since(g.since) > flushGrace
}

// end is Shutdown and Drain. turn is what to do while waiting.
func (qp *QP) end(ctx context.Context, op string, turn func() error) error {
	carried := false
	fail := func(err error) error {
		if errors.Is(err, ErrDeviceGone) {
			if err = qp.endGone(ctx, carried, turn); err == nil {
				return nil
			}
		}
		return qp.denied(op, err)
	}
	if qp.closing.Load() {
		return fail(os.ErrClosed)
	}
	qp.enders.Add(1) // before shut: see renew, which looks after it
	defer qp.enders.Add(-1)
	qp.shut()
	// A Flush that began before goes on to its end. In any case there is one
	// turn: Drain delivers what is there already.
	time.Sleep(storeDelay)
	first := true
	if err := qp.await(ctx, turn, func() bool {
		if first {
			first = false
			return false
		}
		return !qp.flushes()
	}); err != nil {
		return fail(err)
	}
	// Quiet sends at the end of the queue have nobody to report them. That
	// the device is done with the ring says that they were carried out. It is
	// never done where it does not look at the ring of a queue pair that has
	// failed, as soft-RoCE of Linux 5.10.
	failed, asked := false, false
	var g grace
	if err := qp.await(ctx, turn, func() bool {
		qp.sq.tail()
		if qp.sq.requests.Idle() || qp.sq.ring.Empty() {
			return true
		}
		if asked = g.over(qp.sq.requests.Vacant(), asked); asked {
			s, err := qp.QueryState()
			failed = err == nil && s == StateErr
		}
		return failed
	}); err != nil {
		return fail(err)
	}
	carried = !failed
	for _, to := range []QPState{StateErr, StateReset} {
		if to == StateReset {
			qp.modify.Lock()
			qp.carried = carried
			qp.modify.Unlock()
		}
		if qp.State() == StateReset {
			break // ended before, or never left it
		}
		if err := qp.Modify(to); err != nil {
			return fail(err)
		}
		// Before the reset, which makes the device forget them, it gets the
		// time to flush its receives itself.
		if to == StateErr {
			if err := qp.awaitFlushed(ctx, turn, qp.rq.requests.Idle); err != nil {
				return fail(err)
			}
		}
	}
	if err := qp.await(ctx, turn, qp.idle); err != nil {
		return fail(err)
	}
	return nil
}

// idle says whether all requests have come to their ends.
func (qp *QP) idle() bool { return qp.sq.requests.Idle() && qp.rq.requests.Idle() }

// await takes turns until done.
func (qp *QP) await(ctx context.Context, turn func() error, done func() bool) error {
	for !done() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if qp.closing.Load() {
			return os.ErrClosed
		}
		if qp.dev.lost.Load() {
			return ErrDeviceGone
		}
		if err := turn(); err != nil {
			return err
		}
	}
	return nil
}

// awaitFlushed takes turns until done, or until nothing has come to its end for a
// while.
func (qp *QP) awaitFlushed(ctx context.Context, turn func() error, done func() bool) error {
	var g grace
	return qp.await(ctx, turn, func() bool {
		return done() || g.over(qp.sq.requests.Vacant()+qp.rq.requests.Vacant(), false)
	})
}

// endGone waits for the ends of the requests of a queue pair whose device is gone.
// carried says that it had carried out all sends before.
func (qp *QP) endGone(ctx context.Context, carried bool, turn func() error) error {
	lost := qp.dev.lost.Load()
	if !lost { // nobody but the call that failed says so
		qp.orphan(carried)
	}
	var g grace
	for !qp.idle() {
		over := g.over(qp.sq.requests.Vacant()+qp.rq.requests.Vacant(), lost && !qp.dev.hasLeft())
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case qp.closing.Load():
			return os.ErrClosed
		case over: // the poller was told, and has left
			return ErrDeviceGone
		}
		if err := turn(); err != nil && !errors.Is(err, ErrDeviceGone) {
			return err
		}
	}
	return nil
}

// Restart makes a queue pair that was shut down as NewQP made it: a UD one ready
// to send, others ready to be connected again, in INIT and with a new PSN. The CQ
// and all else stays.
func (qp *QP) Restart() error {
	if qp.closing.Load() {
		return qp.denied("restart", os.ErrClosed)
	}
	shuts := qp.shuts.Load()
	if s := qp.State(); s != StateReset {
		return fmt.Errorf("goverbs: %s: restart QP %d: %w: it is in %v: shut it down first", qp.dev.info.Name, qp.qpn, ErrState, s)
	}
	qp.psn = rand.Uint32() & maxPSN
	if err := qp.begin(); err != nil {
		return err
	}
	if err := qp.open(shuts); err != nil {
		return qp.denied("restart", err)
	}
	return nil
}

// WaitRoom waits until n more sends can be staged. The poller of the CQ is
// another goroutine: it is what makes room. It returns ErrInvalid when n is more
// than the queue holds at all.
func (q *SendQueue) WaitRoom(ctx context.Context, n int) error {
	qp := q.qp
	if n > q.requests.Depth() {
		return invalid("%s: wait for room for %d sends: the queue holds %d", qp.dev.info.Name, n, q.requests.Depth())
	}
	staged := int(q.requests.Staged())
	if n+staged > q.requests.Depth() {
		return invalid("%s: wait for room for %d sends: %d of the queue's %d are staged: Flush first", qp.dev.info.Name, n, staged, q.requests.Depth())
	}
	for q.Room() < n || qp.dev.lost.Load() {
		ready, err := qp.sendCQ.mailbox.watch(qp.sendCQ, q.requests, n+staged)
		if err == nil && qp.ending.Load() {
			qp.sendCQ.mailbox.unwatch(ready)
			err = qp.whyEnding()
		}
		if err != nil {
			return qp.denied("wait for room in", err)
		}
		if q.Room() >= n && !qp.dev.lost.Load() { // it came while we asked
			qp.sendCQ.mailbox.unwatch(ready)
			return nil
		}
		select {
		case <-ready:
		case <-ctx.Done():
			qp.sendCQ.mailbox.unwatch(ready)
			return qp.denied("wait for room in", context.Cause(ctx))
		}
	}
	return nil
}
