package uverbstest

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// Flush hands the device what is staged on the receive queue and the send queue of QP, and
// ends the test if that fails. It is for the test's goroutine.
func (e *End) Flush() {
	e.t.Helper()
	if err := e.QP.RecvQueue().Flush(); err != nil {
		e.t.Fatalf("%s: %v", e.Name, err)
	}
	if err := e.QP.SendQueue().Flush(); err != nil {
		e.t.Fatalf("%s: %v", e.Name, err)
	}
}

// Next takes the next completion of CQ, however the request ended, and ends the test if
// none comes. It is for the test's goroutine, which is the poller of CQ meanwhile.
func (e *End) Next() uverbs.WC {
	e.t.Helper()
	return e.Take(1)[0]
}

// Take is [End.Next] for n completions.
func (e *End) Take(n int) []uverbs.WC {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), e.patience)
	defer cancel()
	wait := e.look
	if w, err := poll.NewWaiter(poll.Event{}, e.CQ); err == nil {
		defer w.Close()
		wait = w.Wait
	} else if !errors.Is(err, uverbs.ErrNoEvents) {
		e.t.Fatalf("%s: %v", e.Name, err)
	}
	wcs := make([]uverbs.WC, n)
	for got := 0; got < n; {
		k, err := wait(ctx, wcs[got:])
		if err != nil {
			e.t.Fatalf("%s: %d completions of %d, then: %v", e.Name, got, n, err)
		}
		got += k
	}
	return wcs
}

// look is how to wait for a queue without events where a loop without rest would stop
// the time.
func (e *End) look(ctx context.Context, wcs []uverbs.WC) (int, error) {
	for {
		if n, err := e.CQ.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		time.Sleep(10 * time.Microsecond)
	}
}
