package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

// account holds a device to it that every request comes to exactly one end, under its own
// id, on its own queue pair and side.
type account struct {
	t *testing.T
	*uverbstest.Link
	next  uint64
	open  map[uint64]posting
	ended int
	all   []*uverbs.QP
}

// posting is one that was accepted.
type posting struct {
	qpn  uint32
	side uverbs.Side
	end  string
}

// newAccount makes a pair whose requests are counted.
func newAccount(t *testing.T, opts *uverbstest.PairOptions) *account {
	t.Helper()
	l := uverbstest.PairWith(t, opts)
	return &account{t: t, Link: l, open: make(map[uint64]posting), all: []*uverbs.QP{l.A.QP, l.B.QP}}
}

// send posts a message of 64 bytes and returns its id, receive a place for one.
func (a *account) send(e *uverbstest.End) uint64 {
	a.t.Helper()
	return a.post(e, e.QP, uverbs.SendSide)
}

func (a *account) receive(e *uverbstest.End) uint64 {
	a.t.Helper()
	return a.post(e, e.QP, uverbs.RecvSide)
}

// post posts to a queue pair at an end.
func (a *account) post(e *uverbstest.End, qp *uverbs.QP, side uverbs.Side) uint64 {
	a.t.Helper()
	a.next++
	var q interface{ Flush() error } = qp.SendQueue()
	if side == uverbs.SendSide {
		qp.SendQueue().Send(a.next, e.MR.Span(0, 64))
	} else {
		qp.RecvQueue().Recv(a.next, e.MR.Span(64, 64))
		q = qp.RecvQueue()
	}
	if err := q.Flush(); err != nil {
		a.t.Fatalf("%s: %v", e.Name, err)
	}
	a.open[a.next] = posting{qp.QPN(), side, e.Name}
	return a.next
}

// end enters a completion.
func (a *account) end(e *uverbstest.End, w uverbs.WC) {
	a.t.Helper()
	r, ok := a.open[w.ID]
	switch {
	case !ok:
		a.t.Errorf("%s: an end of no request that is under way: %+v", e.Name, w)
	case r != (posting{w.QPN, w.Side, e.Name}):
		a.t.Errorf("%s: %+v is the end of request %+v", e.Name, w, r)
	}
	delete(a.open, w.ID)
	a.ended++
}

// take waits for a completion, which is to be that of a request with a status.
func (a *account) take(e *uverbstest.End, id uint64, status uverbs.Status) uverbs.WC {
	a.t.Helper()
	w := e.Next()
	if w.ID != id || w.Status != status {
		a.t.Errorf("%s: request %d ended with %v, want %d with %v", e.Name, w.ID, w.Status, id, status)
	}
	a.end(e, w)
	return w
}

// none says that there is nothing to take.
func (a *account) none(e *uverbstest.End) {
	a.t.Helper()
	var wcs [1]uverbs.WC
	if n, err := e.CQ.Poll(wcs[:]); n != 0 || err != nil {
		a.t.Errorf("%s: %d completions, %v: %+v", e.Name, n, err, wcs)
	}
}

// settle ends the queue pairs and all that is open with them. As many requests as were
// posted ended, or, if some are lost for a reason, so many fewer.
func (a *account) settle(lost int) {
	a.t.Helper()
	a.Model().ClearFaults()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, e := range []*uverbstest.End{a.A, a.B} {
		for _, qp := range a.all {
			// Who drains one gets the completions of all on the queue.
			if e.CQ.QP(qp.QPN()) != qp {
				continue
			}
			if err := qp.Drain(ctx, func(w uverbs.WC) { a.end(e, w) }); err != nil {
				a.t.Errorf("%s: %v", e.Name, err)
			}
		}
	}
	if a.ended != int(a.next)-lost || len(a.open) != lost {
		a.t.Errorf("%d requests posted, %d ended; open are %v, want %d", a.next, a.ended, a.open, lost)
	}
}

// took fails the test if it is not so long since the start.
func took(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	if d := time.Since(start); d != want {
		t.Errorf("it took %v, want %v", d, want)
	}
}

// ackTimeout is how long a queue pair waits for an acknowledgement by default: 4.096 us
// times two to the power of 14. It repeats a request six times.
const (
	ackTimeout = 4096 * time.Nanosecond << 14
	attempts   = 7
)
