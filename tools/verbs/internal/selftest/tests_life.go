package selftest

import (
	"context"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/uverbs"
)

// lifeTests take queue pairs through their lives, and listen for asynchronous events.
func lifeTests() []test {
	return []test{
		{group: "life", name: "recover after a failure", run: testRecover},
		{group: "life", name: "shut down with work under way", run: testDrain},
		{group: "life", name: "close with receives outstanding", run: testCloseOutstanding},
		{group: "async", name: "SRQ limit", claims: claimsSRQ, run: testSRQLimit},
		{group: "async", name: "access error at the responder", run: testAccessEvent},
	}
}

// testRecover: both queue pairs fail, are recovered, and carry messages again.
func testRecover(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	rounds := t.rounds(20, 3)
	if err := t.meet(ctx, spec, spec, &Options{RNRRetries: uverbs.RetryForever}); err != nil {
		return err
	}
	for i := range rounds {
		if err := t.post(ctx, t.a, Work{Op: cq.OpWrite, ID: 1, WrongKey: true, Pieces: []Piece{{0, 64}}}); err != nil {
			return err
		}
		notes := t.notes
		if err := t.failure(ctx, t.a, 1, cq.SendSide, t.refusal(cq.StatusRemoteAccess)...); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		for k, s := range []side{t.a, t.b} {
			a, err := t.order(ctx, s, Order{Do: doRecover})
			if err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
			t.made[k].Endpoint = a.Endpoint
		}
		const messages = 50
		s := Stream{Messages: messages, Bytes: 64, Credit: 8, Stall: t.patience.Seconds()}
		if err := t.connect(ctx, &Options{RNRRetries: uverbs.RetryForever}); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		if err := streamAgain(ctx, t, s); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		t.notes = notes
	}
	t.notef("%s", plural.Of(rounds, "time"))
	return nil
}

// testDrain: sends are under way and receives outstanding when the queue pair is drained;
// the sends are carried out and the receives flushed.
func testDrain(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	spec.SendDepth = 32
	if err := t.meet(ctx, spec, spec, nil); err != nil {
		return err
	}
	for id := range uint64(10) {
		if err := t.post(ctx, t.a, Work{Op: cq.OpRecv, ID: 100 + id, Pieces: []Piece{{0, 64}}}); err != nil {
			return err
		}
	}
	var work []Work
	var want []Done
	for id := range uint64(30) {
		w := Work{Op: cq.OpWrite, ID: id, To: targetAt, Pieces: []Piece{{0, 4096}}}
		if id%3 != 0 {
			w.Flags = cq.Unsignaled
		} else {
			want = append(want, Done{ID: id, Op: cq.OpWrite, Bytes: 4096})
		}
		work = append(work, w)
	}
	if err := t.post(ctx, t.a, work...); err != nil {
		return err
	}
	done, err := t.drain(ctx)
	if err != nil {
		return err
	}
	return expect(done, append(want, flushed(cq.RecvSide, 100, 110)...)...)
}

// testCloseOutstanding: what a closed queue pair left behind does not come out of its
// CQ, which goes on with another.
func testCloseOutstanding(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	spec.CQDepth = 128
	if err := t.meet(ctx, spec, spec, nil); err != nil {
		return err
	}
	e := t.a
	for i := range t.rounds(50, 5) {
		if err := t.post(ctx, e, Work{Op: cq.OpRecv, ID: 666, Pieces: []Piece{{0, 64}}}); err != nil {
			return err
		}
		if i%2 == 0 { // a completion that is not polled
			if err := t.post(ctx, e, Work{Op: cq.OpWrite, ID: 667, To: targetAt, Pieces: []Piece{{0, 64}}}); err != nil {
				return err
			}
		}
		if err := e.qp.Close(); err != nil {
			return err
		}
		var err error
		if e.qp, err = e.pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: e.cq, SendDepth: spec.SendDepth, RecvDepth: spec.RecvDepth}); err != nil {
			return err
		}
		if err := e.quiet(); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		// Its queue pair is new for the other end too.
		a, err := t.order(ctx, t.b, Order{Do: doRecover})
		if err != nil {
			return err
		}
		to := e.qp.Endpoint()
		t.made[0].Endpoint, t.made[1].Endpoint = &to, a.Endpoint
		if err := t.connect(ctx, nil); err != nil {
			return err
		}
		if err := t.one(ctx, Work{Op: cq.OpWrite, ID: 1, To: targetAt, Pieces: []Piece{{0, 64}}}, Done{Bytes: 64}); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return nil
}

// testSRQLimit: the event comes when fewer receives are left than the limit.
func testSRQLimit(ctx context.Context, t *bench) error {
	a, b := usual(uverbs.RC), usual(uverbs.RC)
	b.SRQ = 16
	if err := t.make(ctx, a, b); err != nil {
		return err
	}
	for id := range uint64(16) {
		if err := t.post(ctx, t.b, Work{Op: cq.OpRecv, ID: id, Pieces: []Piece{{0, 64}}}); err != nil {
			return err
		}
	}
	if err := t.connect(ctx, nil); err != nil {
		return err
	}
	// Receives that were posted after the limit do not arm it on every device: it is
	// armed by SetLimit, with all of them there.
	if _, err := t.order(ctx, t.b, Order{Do: doLimit, N: 8}); err != nil {
		return err
	}
	for id := range uint64(9) {
		if err := t.one(ctx, Work{Op: cq.OpSend, ID: id, Pieces: []Piece{{0, 64}}}, Done{Bytes: 64}); err != nil {
			return err
		}
	}
	_, err := t.order(ctx, t.b, Order{Do: doEvent, Event: uverbs.EventSRQLimitReached})
	return err
}

// testAccessEvent: the end whose memory was not for the other one hears of it.
func testAccessEvent(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	if err := t.meet(ctx, spec, spec, nil); err != nil {
		return err
	}
	if t.made[1].Device.Driver == uverbs.DriverRXE.String() {
		return fmt.Errorf("%w by soft-RoCE, which raises no event of it", uverbs.ErrNotSupported)
	}
	if err := t.post(ctx, t.a, Work{Op: cq.OpWrite, ID: 1, WrongKey: true, Pieces: []Piece{{0, 64}}}); err != nil {
		return err
	}
	if err := t.expect(ctx, t.a, Done{ID: 1, Status: cq.StatusRemoteAccess}); err != nil {
		return err
	}
	_, err := t.order(ctx, t.b, Order{Do: doEvent, Event: uverbs.EventQPAccessError, Patience: min(t.patience, 5*time.Second).Seconds()})
	return err
}
