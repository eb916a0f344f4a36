package selftest

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// recovery is a Recover that is under way: between its two orders the other end's has to
// come as far.
type recovery struct {
	qp     *uverbs.QP
	ended  []Done
	ready  chan struct{} // closed when the queue pair is in INIT
	meet   chan *Order
	done   chan struct{} // closed when Recover has returned
	err    error         // what it returned
	cancel context.CancelFunc
}

// recover begins to make the queue pair new. What was outstanding goes into the answer.
func (e *end) recover(ctx context.Context, a *Answer) error {
	if e.again != nil {
		return errors.New("a recovery is under way")
	}
	for i := range e.polled {
		a.Done = append(a.Done, doneOf(&e.polled[i]))
	}
	e.polled = nil
	// It goes on after this order.
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &recovery{qp: e.qp, ready: make(chan struct{}), meet: make(chan *Order), done: make(chan struct{}), cancel: cancel}
	e.again = r
	go func() {
		defer close(r.done)
		r.err = r.qp.RecoverPolling(whole, func(w uverbs.WC) { r.ended = append(r.ended, doneOf(&w)) }, r.exchange)
	}()
	select {
	case <-r.ready:
		a.Done = append(a.Done, r.ended...)
		to := e.qp.Endpoint()
		a.Endpoint = &to
		return nil
	case <-r.done:
		e.again = nil
		return fmt.Errorf("end %s: recover: %w", e.name, r.err)
	case <-ctx.Done():
		cancel()
		<-r.done
		e.again = nil
		return fmt.Errorf("end %s: recover: requests do not come to their ends: %w", e.name, r.err)
	}
}

// exchange waits for the order to connect.
func (r *recovery) exchange(ctx context.Context, qp *uverbs.QP) error {
	close(r.ready)
	select {
	case o := <-r.meet:
		return qp.Connect(ctx, *o.Peer, o.Options.connection())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// meetAgain is the second order.
func (e *end) meetAgain(ctx context.Context, o *Order) error {
	err := e.again.connect(ctx, o)
	select {
	case <-e.again.done:
		e.again.cancel()
		e.again = nil
	default:
	}
	return err
}

func (r *recovery) connect(ctx context.Context, o *Order) error {
	select {
	case r.meet <- o:
	case <-r.done:
		return r.err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return errors.New("a queue pair that recovers does not connect")
	}
}
