package selftest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/uverbs"
)

// completionTests are about completion queues and how one hears of them.
func completionTests() []test {
	const limit = 3 * time.Minute
	return []test{
		{group: "completions", name: "race of arm and event", limit: limit, run: testArmRace},
		{group: "completions", name: "sleeping waiter", limit: limit, run: testSleep},
		{group: "completions", name: "solicited events only", run: testSolicited},
		{group: "completions", name: "moderation", run: testModeration},
		{group: "completions", name: "resize of a live queue", limit: limit, run: testResize},
		{group: "completions", name: "overrun is told", run: testOverrun},
		{group: "completions", name: "time stamps", run: testTimestamps},
		{group: "completions", name: "entries of 128 bytes", limit: limit, run: func(ctx context.Context, t *bench) error {
			spec := usual(uverbs.RC)
			spec.BigEntries = true
			return stream(ctx, t, spec, spec, Stream{Messages: t.rounds(20000, 500), Bytes: 64, Credit: 8})
		}},
		{group: "completions", name: "compressed entries", limit: limit, run: func(ctx context.Context, t *bench) error {
			a, b := usual(uverbs.RC), usual(uverbs.RC)
			a.SendDepth, b.RecvDepth, b.Compress = 64, 64, true
			return stream(ctx, t, a, b, Stream{Messages: t.rounds(20000, 500), Bytes: 64, Quiet: 32, Credit: 64, Ops: []cq.Opcode{cq.OpSend}})
		}},
	}
}

// withEvents are ends of which A sleeps.
func (t *bench) withEvents(ctx context.Context) error {
	a, b := usual(uverbs.RC), usual(uverbs.RC)
	a.Events = true
	return t.meet(ctx, a, b, nil)
}

// takeEvents takes the events that are there.
func (e *end) takeEvents() (n int, err error) {
	for {
		ok, err := e.cq.TakeEvent()
		if !ok || err != nil {
			return n, err
		}
		n++
	}
}

// testArmRace: a completion comes while the queue is being armed, a little earlier or
// later each time, since another goroutine posts the request. Either it is there when the
// queue is polled after that, or an event comes: without looking at the queue.
func testArmRace(ctx context.Context, t *bench) error {
	if err := t.withEvents(ctx); err != nil {
		return err
	}
	e, there := t.a, 0
	rounds, all, begin := 0, t.rounds(20000, 300), time.Now()
	ask, posted := make(chan int), make(chan error, 1)
	defer close(ask)
	go t.postWhenAsked(ask, posted)
	for i := 0; i < all && !enough(begin, i); i++ {
		if _, err := e.takeEvents(); err != nil {
			return err
		}
		ask <- i
		dawdle(i * 7 % 300)
		if err := e.cq.Arm(false); err != nil {
			return err
		}
		if err := e.poll(); err != nil {
			return err
		}
		if len(e.polled) > 0 {
			there++
		} else if err := t.awaitEvent(ctx, fmt.Sprintf("round %d", i)); err != nil {
			return err
		}
		if err := <-posted; err != nil {
			return err
		}
		done, err := e.take(ctx, 1)
		if err != nil {
			return err
		}
		if err := expect(done, Done{ID: uint64(i), Op: cq.OpWrite, Bytes: 8}); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		rounds++
	}
	t.notef("%s; %d with the completion there after arming, %d with an event", ofThese(rounds, all, "rounds"), there, rounds-there)
	return e.quiet()
}

// postWhenAsked posts a write for each round that it is asked for.
func (t *bench) postWhenAsked(ask <-chan int, posted chan<- error) {
	e, sq := t.a, t.a.qp.SendQueue()
	data, target := make([]byte, 8), e.peer.At(targetAt)
	fill(data, 1, e.marker)
	for i := range ask {
		dawdle(i * 13 % 500)
		sq.WriteInline(uint64(i), target, data)
		posted <- sq.Flush()
	}
}

// dawdle takes a moment.
func dawdle(n int) {
	for i := range n {
		moment.Store(int64(i))
	}
}

var moment atomic.Int64

// awaitEvent waits for an event of A's queue, which is armed and was empty after that.
func (t *bench) awaitEvent(ctx context.Context, when string) error {
	e := t.a
	limit, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	err := wait(limit, 0, func() (bool, error) {
		ok, err := e.cq.TakeEvent()
		return ok, err
	})
	if !errors.Is(err, errImpatient) {
		return err
	}
	if err := e.poll(); err != nil {
		return err
	}
	if len(e.polled) > 0 {
		return fmt.Errorf("%s: the queue was armed and empty, a completion came, and in %v no event: it was lost", when, t.patience)
	}
	return fmt.Errorf("%s: neither a completion nor an event came in %v", when, t.patience)
}

// testSleep waits by the library's own waiter.
func testSleep(ctx context.Context, t *bench) error {
	if err := t.withEvents(ctx); err != nil {
		return err
	}
	e, sq := t.a, t.a.qp.SendQueue()
	w, err := poll.NewWaiter(poll.Event{}, e.cq)
	if err != nil {
		return err
	}
	defer w.Close()
	rounds, all, begin := 0, t.rounds(10000, 200), time.Now()
	for i := 0; i < all && !enough(begin, i); i++ {
		sq.WriteInline(uint64(i), e.peer.At(targetAt), e.mem.Bytes()[:8])
		if err := sq.Flush(); err != nil {
			return err
		}
		limit, cancel := context.WithTimeout(ctx, t.patience)
		var wcs [4]uverbs.WC
		n, err := w.Wait(limit, wcs[:])
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("round %d: the waiter slept for %v and was not woken", i, t.patience)
		}
		if err != nil {
			return err
		}
		some := wcs[:n]
		if e.tamper != nil {
			some = e.tamper(e, some)
		}
		for k := range some {
			if err := expect([]Done{doneOf(&some[k])}, Done{ID: uint64(i), Op: cq.OpWrite, Bytes: 8}); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		rounds++
	}
	t.notef("%s", ofThese(rounds, all, "rounds"))
	return nil
}

// testSolicited: a message that is not solicited raises no event of a queue that was armed
// for those only; one that is does.
func testSolicited(ctx context.Context, t *bench) error {
	if err := t.withEvents(ctx); err != nil {
		return err
	}
	if err := t.post(ctx, t.a, Work{Op: cq.OpRecv, ID: 1, Pieces: []Piece{{0, 64}}}, Work{Op: cq.OpRecv, ID: 2, Pieces: []Piece{{0, 64}}}); err != nil {
		return err
	}
	if err := t.a.cq.Arm(true); err != nil {
		return err
	}
	for i, flags := range []cq.SendFlags{0, cq.Solicited} {
		id := uint64(1 + i)
		if err := t.post(ctx, t.b, Work{Op: cq.OpSend, ID: id, Flags: flags, Pieces: []Piece{{0, 8}}}); err != nil {
			return err
		}
		if err := t.expect(ctx, t.b, Done{ID: id, Op: cq.OpSend, Bytes: 8}); err != nil {
			return err
		}
		if flags == 0 {
			if err := t.expect(ctx, t.a, Done{ID: id, Side: cq.RecvSide, Op: cq.OpRecv, Bytes: 8}); err != nil {
				return err
			}
			if n, err := t.a.takeEvents(); n > 0 || err != nil {
				return errors.Join(err, errors.New("a message that is not solicited raised an event of a queue that was armed for solicited ones"))
			}
			continue
		}
		if err := t.awaitEvent(ctx, "a solicited message"); err != nil {
			return err
		}
		if err := t.expect(ctx, t.a, Done{ID: id, Side: cq.RecvSide, Op: cq.OpRecv, Bytes: 8}); err != nil {
			return err
		}
	}
	return nil
}

// testModeration: an event that may wait comes all the same.
func testModeration(ctx context.Context, t *bench) error {
	if err := t.withEvents(ctx); err != nil {
		return err
	}
	const count, period = 8, 2 * time.Millisecond
	if err := t.a.cq.Moderate(count, period); err != nil {
		return err
	}
	for i := range t.rounds(200, 20) {
		if _, err := t.a.takeEvents(); err != nil {
			return err
		}
		if err := t.a.cq.Arm(false); err != nil {
			return err
		}
		if err := t.post(ctx, t.a, Work{Op: cq.OpWrite, ID: uint64(i), To: targetAt, Pieces: []Piece{{0, 8}}}); err != nil {
			return err
		}
		if err := t.awaitEvent(ctx, fmt.Sprintf("round %d", i)); err != nil {
			return err
		}
		if err := t.expect(ctx, t.a, Done{ID: uint64(i), Op: cq.OpWrite, Bytes: 8}); err != nil {
			return err
		}
	}
	t.notef("%s or %v", plural.Of(count, "completion"), period)
	return nil
}

// testResize resizes A's queue over and over while messages go.
func testResize(ctx context.Context, t *bench) error {
	a, b := usual(uverbs.RC), usual(uverbs.RC)
	a.CQDepth = 64
	if err := t.meet(ctx, a, b, &Options{RNRRetries: uverbs.RetryForever}); err != nil {
		return err
	}
	if err := t.a.cq.ResizeOwned(100); err != nil {
		return err
	}
	q := t.a.cq
	streaming, stop := context.WithCancel(ctx)
	var resizes atomic.Int64
	resized := make(chan error, 1)
	go func() {
		for i := 0; streaming.Err() == nil; i++ {
			if err := q.Resize(streaming, []int{500, 40, 64, 1000}[i%4]); err != nil {
				if streaming.Err() == nil {
					resized <- fmt.Errorf("resize %d: %w", i, err)
					return
				}
				break
			}
			resizes.Add(1)
			time.Sleep(time.Millisecond)
		}
		resized <- nil
	}()
	// On a busy machine all messages may have gone before there was a resize.
	again := true
	var err error
	for again {
		err = streamAgain(ctx, t, Stream{Messages: t.rounds(30000, 1500), Bytes: 64, Credit: 8})
		again = err == nil && resizes.Load() == 0 && len(resized) == 0
	}
	stop()
	rerr := <-resized
	n := resizes.Load()
	t.notef("%s", plural.Of(n, "resize"))
	if err == nil && rerr == nil && n == 0 {
		return errors.New("no resize was done")
	}
	return errors.Join(err, rerr)
}

// testOverrun posts more than the queue holds and polls nothing.
func testOverrun(ctx context.Context, t *bench) error {
	a, b := usual(uverbs.RC), usual(uverbs.RC)
	a.CQDepth, a.SendDepth, a.AllowOverrun = 16, 256, true
	if err := t.meet(ctx, a, b, nil); err != nil {
		return err
	}
	depth := t.a.cq.Depth()
	posted := 3 * depth
	for i := range posted {
		if t.a.qp.SendQueue().Room() == 0 {
			posted = i
			break
		}
		if err := t.post(ctx, t.a, Work{Op: cq.OpWrite, ID: uint64(i), To: targetAt, Pieces: []Piece{{0, 8}}}); err != nil {
			return err
		}
	}
	if _, err := t.order(ctx, t.a, Order{Do: doEvent, Event: uverbs.EventCQError}); err != nil {
		t.notef("no asynchronous event of it came")
	} else {
		t.notef("the asynchronous event came")
	}
	limit, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	polled, unbroken, next := 0, 0, uint64(0)
	for {
		w, err := t.a.next(limit)
		switch {
		case errors.Is(err, uverbs.ErrOverrun):
			t.notef("%s posted to a queue of %d, %s polled, then the error", plural.Of(posted, "request"), depth, plural.Of(polled, "completion"))
			if unbroken > depth+1 { // one place more is there on devices that do not leave it free
				return fmt.Errorf("%d completions came out of a queue of %d", unbroken, depth)
			}
			return nil
		case errors.Is(err, errImpatient):
			return fmt.Errorf("%d requests were posted to a queue of %d, %d completions came, and no error: the rest is lost and nobody said so", posted, depth, polled)
		case err != nil:
			return err
		case w.Status == cq.StatusSuccess && (w.ID < next || w.ID >= uint64(posted)):
			return fmt.Errorf("the completion of request %d of %d came, and the next is one of %d or later", w.ID, posted, next)
		}
		// Polling makes room: a device that is still at work writes later completions after
		// those that are lost.
		if w.ID == uint64(unbroken) {
			unbroken++
		}
		next = w.ID + 1
		polled++
	}
}

// stampSlack is how far the device's clock may be from the system's: it is translated by
// what the kernel last saw of both.
const stampSlack = 50 * time.Millisecond

// testTimestamps: stamps do not go back, and lie between post and poll.
func testTimestamps(ctx context.Context, t *bench) error {
	a, b := usual(uverbs.RC), usual(uverbs.RC)
	a.Timestamps = true
	if err := t.meet(ctx, a, b, nil); err != nil {
		return err
	}
	clock, cerr := t.a.dev.Clock()
	if cerr == nil {
		defer clock.Close()
	} else if !errors.Is(cerr, uverbs.ErrNotSupported) {
		return cerr
	}
	last := uint64(0)
	worst := time.Duration(0)
	mask := t.a.dev.Attr().TimestampMask
	for i := range t.rounds(1000, 50) {
		before := time.Now()
		if err := t.post(ctx, t.a, Work{Op: cq.OpWrite, ID: uint64(i), To: targetAt, Pieces: []Piece{{0, 8}}}); err != nil {
			return err
		}
		done, err := t.a.take(ctx, 1)
		if err != nil {
			return err
		}
		after, stamp := time.Now(), done[0].Stamp
		if err := expect(done, Done{ID: uint64(i), Op: cq.OpWrite, Bytes: 8}); err != nil {
			return err
		}
		if stamp == 0 {
			return fmt.Errorf("completion %d has no time stamp", i)
		}
		if i > 0 && (stamp-last)&mask > mask/2 {
			return fmt.Errorf("completion %d is stamped %d, and the one before %d", i, stamp, last)
		}
		if last = stamp; cerr != nil {
			continue
		}
		at, err := clock.Time(stamp)
		if errors.Is(err, uverbs.ErrBusy) {
			continue
		}
		if err != nil {
			return err
		}
		off := max(before.Sub(at), at.Sub(after))
		if worst = max(worst, off); off > stampSlack {
			return fmt.Errorf("completion %d is stamped %v before it was posted or after it was polled", i, off)
		}
	}
	if cerr != nil {
		t.notef("no clock to hold them against: %s", printable.Error(cerr))
	} else if worst > 0 {
		t.notef("at most %v outside of post and poll", worst)
	}
	return nil
}
