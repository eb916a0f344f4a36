package uverbs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// Recover makes a queue pair good again that has failed, or is in any other state: it
// goes through ERR and RESET to INIT and gets a new PSN, and all its requests come to
// their ends, through Poll of the same CQ. Then exchange connects it, to its peer of
// before or to another one. Everything else stays: CQ, SRQ, memory regions, the number
// of the queue pair, its place in the program. [cq.Status.Remedy] tells whether that is
// enough, and whether the peer has to be looked for.
//
// exchange posts the receives that the peer's first messages need, agrees with the
// peer, as Handshake does over a connection or the program with Endpoint and Connect,
// and returns when the queue pair is in RTS. The peer does the same with its own. A UD
// queue pair is in RTS already then, and exchange may be nil.
//
// Recover waits for no send to be carried out: after a failure they never are. On a
// queue pair that has not failed they end as flushed, carried out or not; one that was
// posted with Unsignaled as well.
//
// Somebody else polls meanwhile, as with Shutdown; who polls in the same goroutine uses
// RecoverPolling. From the beginning on until exchange is called Flush fails with
// ErrState, and what is staged then is void.
//
// When ctx ends, Recover returns its cause. ErrBusy says that another Recover of the
// queue pair is under way, or a Shutdown, ErrDeviceGone that there is nothing to
// recover. A Shutdown that begins meanwhile makes Recover fail with ErrState. Whatever the
// error, also one of exchange, which it wraps, the queue pair takes no requests
// afterwards and is not connected, and Recover may be called again, or Close.
//
// Memory windows that were bound through the queue pair stay bound, and their keys are
// good for the new peer: invalidate or close those that were meant for another. A UD
// queue pair stays in its multicast groups, and keeps its Q_Key.
func (qp *QP) Recover(ctx context.Context, exchange func(ctx context.Context, qp *QP) error) error {
	return qp.renew(ctx, waitTurn(ctx), exchange)
}

// RecoverPolling is Recover for the goroutine that polls: until exchange is called it
// polls both CQs itself and hands every completion, also of other queue pairs, to
// handle. Nobody polls while exchange runs, unless it does so itself.
func (qp *QP) RecoverPolling(ctx context.Context, handle func(WC), exchange func(ctx context.Context, qp *QP) error) error {
	return qp.renew(ctx, qp.pollTurn(handle), exchange)
}

// renew is both. turn is what to do while waiting.
func (qp *QP) renew(ctx context.Context, turn func() error, exchange func(ctx context.Context, qp *QP) error) error {
	if exchange == nil && qp.typ != UD {
		return invalid("%s: recover QP %d: without an exchange nobody connects it", qp.dev.info.Name, qp.qpn)
	}
	fail := func(err error) error {
		return qp.denied("recover", err)
	}
	if !qp.renewal.TryLock() {
		return fail(fmt.Errorf("%w: another Recover is under way", ErrBusy))
	}
	defer qp.renewal.Unlock()
	if qp.closing.Load() {
		return fail(os.ErrClosed)
	}
	shuts := qp.shut()
	if qp.enders.Load() != 0 {
		return fail(fmt.Errorf("%w: a Shutdown or Drain is under way", ErrBusy))
	}
	if err := qp.takeDown(ctx, turn); err != nil {
		if errors.Is(err, ErrDeviceGone) {
			qp.endGone(ctx, false, turn) // what is left ends all the same
		}
		return fail(err)
	}
	if err := qp.bringUp(ctx, shuts, exchange); err != nil {
		// What is half agreed on must not move anything. Where a Shutdown came in
		// between it is to be found as that leaves it.
		to := StateErr
		if qp.shuts.Load() != shuts {
			to = StateReset
		}
		qp.shut()
		qp.Modify(to)
		return fail(err)
	}
	return nil
}

// takeDown takes the queue pair to RESET and brings all requests to their ends.
// Nothing more is posted.
func (qp *QP) takeDown(ctx context.Context, turn func() error) error {
	time.Sleep(storeDelay)
	if err := qp.await(ctx, turn, func() bool { return !qp.flushes() }); err != nil {
		return err
	}
	if qp.State() != StateReset {
		if err := qp.Modify(StateErr); err != nil {
			return err
		}
		// The device flushes what it has, and the library the rest when it has
		// forgotten all: quiet requests that nobody reports, receives that
		// soft-RoCE does not flush.
		if err := qp.awaitFlushed(ctx, turn, func() bool {
			return qp.rq.requests.Idle() && (qp.sq.requests.Idle() || qp.sq.ring.Empty())
		}); err != nil {
			return err
		}
		if err := qp.Modify(StateReset); err != nil {
			return err
		}
	}
	if err := qp.await(ctx, turn, qp.idle); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// bringUp makes a queue pair in RESET new and connects it.
func (qp *QP) bringUp(ctx context.Context, shuts uint32, exchange func(ctx context.Context, qp *QP) error) error {
	// Another one than before: packets of then must not look like those of now.
	qp.psn = (qp.psn + 1 + rand.Uint32N(maxPSN)) & maxPSN
	if err := qp.begin(); err != nil {
		return err
	}
	if err := qp.open(shuts); err != nil {
		return err
	}
	if exchange != nil {
		if err := exchange(ctx, qp); err != nil {
			return fmt.Errorf("%w (it is not connected: call Recover again)", err)
		}
	}
	switch s, err := qp.QueryState(); {
	case err != nil:
		return err
	case s != StateRTS:
		return fmt.Errorf("%w: the exchange left it in %v: it has to connect it (call Recover again)", ErrState, s)
	}
	return nil
}
