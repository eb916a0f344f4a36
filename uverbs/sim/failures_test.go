package sim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

// revive recovers both queue pairs of an account and connects them to one another.
func (a *account) revive() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	see := func(e *uverbstest.End) func(uverbs.WC) { return func(w uverbs.WC) { a.end(e, w) } }
	if err := a.A.QP.RecoverPolling(ctx, see(a.A), func(ctx context.Context, qa *uverbs.QP) error {
		return a.B.QP.RecoverPolling(ctx, see(a.B), func(ctx context.Context, qb *uverbs.QP) error {
			return errors.Join(qa.Connect(ctx, qb.Endpoint(), nil), qb.Connect(ctx, qa.Endpoint(), nil))
		})
	}); err != nil {
		a.t.Fatal(err)
	}
}

// Whatever a device says of a request, it is the first failure of its queue pair, what
// follows has it as its cause, it is explained, and the queue pair can be recovered.
func TestEveryFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		known := 0
		for n := range 0x30 {
			syndrome := mlx5.Syndrome(n)
			if !syndrome.Known() || syndrome.Status() == cq.StatusFlushed {
				continue
			}
			known++
			vendor := uint32(0x30 + n)
			a.Fault(fmt.Sprintf("request 2 device=sim0: fail syndrome=%#x vendor=%#x", n, vendor))
			for range 3 {
				a.receive(a.B)
			}
			before, bad, after := a.send(a.A), a.send(a.A), a.send(a.A)
			a.take(a.A, before, uverbs.StatusSuccess)
			if w, ok := a.A.QP.FirstFailure(); ok || a.A.QP.Cause() != nil {
				t.Errorf("%v: before it: %+v, %v", syndrome, w, a.A.QP.Cause())
			}
			w := a.take(a.A, bad, syndrome.Status())
			e := a.A.CQ.Explain(&w)
			if first, ok := a.A.QP.FirstFailure(); !ok || first != w || !errors.Is(a.A.QP.Cause(), w.Status) || !e.IsFirst || w.VendorErr != vendor {
				t.Errorf("%v: %+v, %+v, %v, %v", syndrome, w, first, ok, a.A.QP.Cause())
			}
			if r := e.Request; r == nil || r.ID != bad || r.Op != uverbs.OpSend || r.Bytes != 64 || !r.Details || len(r.Spans) != 1 || r.Spans[0].Region != a.A.MR || len(e.Before) != 1 || e.Before[0].ID != before || len(e.Unknown) != 0 {
				t.Errorf("%v: %v", syndrome, e)
			}
			if e.Vendor != "" && e.Vendor != mlx5.VendorSyndrome(vendor).String() || e.Fault != w.Status.Fault() || e.Remedy != w.Status.Remedy() {
				t.Errorf("%v: %v", syndrome, e)
			}
			w = a.take(a.A, after, uverbs.StatusFlushed)
			e = a.A.CQ.Explain(&w)
			if e.IsFirst || e.First == nil || e.First.ID != bad || e.Fault != cq.FaultConsequence || e.Remedy < e.First.Status.Remedy() ||
				!strings.Contains(e.String(), fmt.Sprintf("the first failure was that of send request %d", bad)) {
				t.Errorf("%v: %v", syndrome, e)
			}
			a.Model().ClearFaults()
			a.revive()
		}
		if known < 12 {
			t.Errorf("only %d syndromes", known)
		}
		receive, send := a.receive(a.B), a.send(a.A)
		a.take(a.A, send, uverbs.StatusSuccess)
		a.take(a.B, receive, uverbs.StatusSuccess)
		a.settle(0)
	})
}

// A queue pair that fails without any request of its own has an event as its cause, and
// is recovered all the same.
func TestFailureByEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		a.receive(a.B)
		bad := a.B.MR.Remote()
		bad.RKey ^= 0x5500
		a.next++
		id := a.next
		a.A.QP.SendQueue().Write(id, bad.At(0), a.A.MR.Span(0, 8))
		a.A.Flush()
		a.open[id] = posting{a.A.QP.QPN(), uverbs.SendSide, "A"}
		a.take(a.A, id, uverbs.StatusRemoteAccess)
		w := a.B.Next() // its receive, flushed: it was the responder that saw the wrong key
		a.end(a.B, w)
		synctest.Wait() // the event is read
		var told *uverbs.EventError
		if err := a.B.QP.Cause(); w.Status != uverbs.StatusFlushed || !errors.As(err, &told) || told.Type != uverbs.EventQPAccessError {
			t.Errorf("%+v: %v", w, err)
		}
		if text := a.B.CQ.Explain(&w).String(); !strings.Contains(text, "no request failed by itself") || !strings.Contains(text, "QP access error") {
			t.Error(text)
		}
		a.revive()
		if err := a.B.QP.Cause(); err != nil {
			t.Error(err)
		}
		receive, send := a.receive(a.B), a.send(a.A)
		a.take(a.A, send, uverbs.StatusSuccess)
		a.take(a.B, receive, uverbs.StatusSuccess)
		a.settle(0)
	})
}
