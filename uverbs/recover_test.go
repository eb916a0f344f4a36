package uverbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// recoverHow are the two ways to recover the rig's first queue pair. Every completion
// goes to see.
func recoverHow(t *testing.T, r *rig) map[string]func(ctx context.Context, see func(WC), exchange func(context.Context, *QP) error) error {
	return map[string]func(ctx context.Context, see func(WC), exchange func(context.Context, *QP) error) error{
		"polling": func(ctx context.Context, see func(WC), exchange func(context.Context, *QP) error) error {
			return r.a.RecoverPolling(ctx, see, exchange)
		},
		"beside pollers": func(ctx context.Context, see func(WC), exchange func(context.Context, *QP) error) error {
			var stop atomic.Bool
			var pollers sync.WaitGroup
			for _, q := range []*CQ{r.sendQ, r.recvQ} {
				pollers.Go(func() {
					var wcs [3]WC
					for !stop.Load() {
						n, err := q.Poll(wcs[:])
						if err != nil && !errors.Is(err, ErrDeviceGone) {
							t.Error(err)
						}
						for _, w := range wcs[:n] {
							see(w)
						}
					}
				})
			}
			defer pollers.Wait()
			defer stop.Store(true)
			return r.a.Recover(ctx, exchange)
		},
	}
}

// swap connects the rig's first queue pair to another one, which is new.
func (r *rig) swap(peer *QP) func(context.Context, *QP) error {
	return func(ctx context.Context, qp *QP) error {
		if err := qp.Connect(ctx, peer.Endpoint(), nil); err != nil {
			return err
		}
		return peer.Connect(ctx, qp.Endpoint(), nil)
	}
}

// Whatever state a queue pair is in, and whatever is under way on it, Recover brings
// all to its end once and connects the queue pair to a new peer on the same CQs.
func TestRecover(t *testing.T) {
	post := func(r *rig) {
		for i := range uint64(9) {
			r.a.RecvQueue().Recv(i, r.mr.Span(0, 8))
		}
		if err := r.a.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(4) {
			r.a.SendQueue().Write(i, r.peer.Regions[0].At(0), r.mr.Span(4096, 8))
		}
	}
	states := map[string]struct {
		sends, recvs int
		get          func(r *rig, see func(WC))
	}{
		"failed": {6, 9, func(r *rig, see func(WC)) {
			post(r)
			bad := r.peer.Regions[0]
			bad.RKey ^= 0x5500
			r.a.SendQueue().Write(4, bad.At(0), r.mr.Span(4096, 8))
			r.a.SendQueue().Write(5, r.peer.Regions[0].At(0), r.mr.Span(4096, 8), Unsignaled)
			if err := r.a.SendQueue().Flush(); err != nil {
				t.Fatal(err)
			}
		}},
		"sound": {4, 9, func(r *rig, see func(WC)) {
			post(r)
			if err := r.a.SendQueue().Flush(); err != nil {
				t.Fatal(err)
			}
		}},
		"taken to ERR": {4, 9, func(r *rig, see func(WC)) {
			post(r)
			if err := errors.Join(r.a.SendQueue().Flush(), r.a.Modify(StateErr)); err != nil {
				t.Fatal(err)
			}
		}},
		"taken to RESET": {4, 9, func(r *rig, see func(WC)) {
			post(r)
			if err := errors.Join(r.a.SendQueue().Flush(), r.a.Modify(StateReset)); err != nil {
				t.Fatal(err)
			}
		}},
		"shut down": {4, 9, func(r *rig, see func(WC)) {
			post(r)
			if err := errors.Join(r.a.SendQueue().Flush(), r.a.Drain(t.Context(), see)); err != nil {
				t.Fatal(err)
			}
		}},
		"never connected": {0, 1, func(r *rig, see func(WC)) {
			if err := errors.Join(r.a.Modify(StateReset), r.a.Restart()); err != nil {
				t.Fatal(err)
			}
			r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
			if err := r.a.RecvQueue().Flush(); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for name, state := range states {
		for _, how := range []string{"polling", "beside pollers"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				r := newRig(t, false)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				for round := range 3 {
					var mu sync.Mutex
					n := map[Side]map[uint64]int{SendSide: {}, RecvSide: {}}
					first := WC{}
					see := func(w WC) {
						mu.Lock()
						defer mu.Unlock()
						if n[w.Side][w.ID]++; n[w.Side][w.ID] > 1 {
							t.Errorf("request %d of the %v side ended %d times: %+v", w.ID, w.Side, n[w.Side][w.ID], w)
						}
						if first == (WC{}) && w.Status != StatusSuccess && w.Status != StatusFlushed {
							first = w
						}
					}
					state.get(r, see)
					peer, err := r.pd.NewQP(RC, &QPOptions{SendCQ: r.sendQ, RecvCQ: r.recvQ})
					if err != nil {
						t.Fatal(err)
					}
					psn, called := r.a.psn, false
					if err := recoverHow(t, r)[how](ctx, see, func(ctx context.Context, qp *QP) error {
						called = true
						mu.Lock()
						if len(n[SendSide]) != state.sends || len(n[RecvSide]) != state.recvs {
							t.Errorf("%v ended, want %d sends and %d receives", n, state.sends, state.recvs)
						}
						mu.Unlock()
						if qp.State() != StateInit || qp.psn == psn || qp.SendQueue().Room() != 16 || qp.RecvQueue().Room() != 16 {
							t.Errorf("%v, PSN %#x, before %#x, room for %d and %d", qp.State(), qp.psn, psn, qp.SendQueue().Room(), qp.RecvQueue().Room())
						}
						if w, ok := qp.FirstFailure(); ok || qp.Cause() != nil {
							t.Errorf("of the life before: %+v, %v", w, qp.Cause())
						}
						qp.RecvQueue().Recv(77, r.mr.Span(0, 8))
						return errors.Join(qp.RecvQueue().Flush(), r.swap(peer)(ctx, qp))
					}); err != nil || !called {
						t.Fatalf("%v, %v", err, called)
					}
					if (name == "failed") != (first.Status == StatusRemoteAccess && first.ID == 4) {
						t.Errorf("the first failure is %+v", first)
					}
					peer.SendQueue().SendInline(78, nil)
					peer.SendQueue().Send(79, r.mr.Span(0, 8))
					r.a.SendQueue().Write(80, r.mr.Remote().At(0), r.mr.Span(4096, 8))
					r.a.RecvQueue().Recv(81, r.mr.Span(0, 8))
					if err := errors.Join(r.a.RecvQueue().Flush(), peer.SendQueue().Flush(), r.a.SendQueue().Flush()); err != nil {
						t.Fatal(err)
					}
					for _, w := range append(wait(t, r.sendQ, 3), wait(t, r.recvQ, 2)...) {
						if w.Err() != nil {
							t.Errorf("round %d: %v", round, w.Err())
						}
					}
					r.b.Close()
					r.b = peer
					// Its messages come from another queue pair now.
					r.peer.Endpoint = peer.Endpoint()
				}
				for _, q := range []*CQ{r.sendQ, r.recvQ} {
					if s := q.Stats(); s.Stray != 0 {
						t.Errorf("dropped %+v", s)
					}
				}
			})
		}
	}
}

// Of a failure and its flushes the queue pair names the first, whichever CQ it was on.
func TestCause(t *testing.T) {
	r := newRig(t, false)
	if w, ok := r.a.FirstFailure(); ok || r.a.Cause() != nil {
		t.Errorf("at first: %+v, %v", w, r.a.Cause())
	}
	r.a.RecvQueue().Recv(1, r.mr.Span(0, 4)) // too short
	r.a.RecvQueue().Recv(2, r.mr.Span(0, 8))
	r.b.SendQueue().Send(3, r.mr.Span(4096, 8))
	r.b.SendQueue().Send(4, r.mr.Span(4096, 8))
	if err := errors.Join(r.a.RecvQueue().Flush(), r.b.SendQueue().Flush()); err != nil {
		t.Fatal(err)
	}
	recvs, sends := wait(t, r.recvQ, 2), wait(t, r.sendQ, 2)
	for i, c := range []struct {
		qp    *QP
		first WC
		text  string
	}{{r.a, recvs[0], "recv request 1"}, {r.b, sends[0], "send request 3"}} {
		if w, ok := c.qp.FirstFailure(); !ok || w != c.first || w.Status == StatusFlushed {
			t.Errorf("%d: %+v, want %+v", i, w, c.first)
		}
		says(t, "cause", c.qp.Cause(), c.first.Status, c.text, fmt.Sprintf("RC QP %d failed", c.qp.QPN()))
		var e *cq.CompletionError
		if !errors.As(c.qp.Cause(), &e) || e.ID != c.first.ID {
			t.Errorf("%d: %v is no completion's", i, c.qp.Cause())
		}
	}
	// It is there until the queue pair is new.
	if err := r.a.Drain(t.Context(), func(WC) {}); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.a.FirstFailure(); !ok {
		t.Error("forgotten after Drain")
	}
	if err := r.a.Restart(); err != nil {
		t.Fatal(err)
	}
	if w, ok := r.a.FirstFailure(); ok || r.a.Cause() != nil {
		t.Errorf("after Restart: %+v, %v", w, r.a.Cause())
	}
	if w, ok := r.b.FirstFailure(); !ok {
		t.Errorf("the peer's: %+v", w)
	}
}

// What the device tells counts where no request has failed, and only of a queue pair
// that has: it may be late.
func TestCauseByEvent(t *testing.T) {
	r := newRig(t, false)
	tell := func(e EventType) { r.dev.async.handle(Event{Type: e, QP: r.a}) }
	for _, e := range []EventType{EventQPFatal, EventQPRequestError, EventQPAccessError} {
		tell(e)
		if s, err := r.a.QueryState(); s != StateRTS || r.a.State() != StateRTS || err != nil || r.a.Cause() != nil {
			t.Errorf("late %v: %v, %v, %v", e, s, err, r.a.Cause())
		}
	}
	for _, e := range []EventType{EventCommEstablished, EventQPLastWQEReached, EventQPAccessError} {
		if err := r.a.Modify(StateErr); err != nil {
			t.Fatal(err)
		}
		tell(e)
		if e != EventQPAccessError && r.a.Cause() != nil {
			t.Errorf("%v: %v", e, r.a.Cause())
		}
	}
	tell(EventQPFatal)
	var told *EventError
	if err := r.a.Cause(); !errors.As(err, &told) || told.Type != EventQPAccessError {
		t.Errorf("%v", err)
	}
	if err := r.a.RecoverPolling(t.Context(), func(WC) {}, r.swap(r.b)); err == nil {
		t.Error("the peer was not reset")
	}
	if err := errors.Join(r.b.Modify(StateReset), r.b.Restart(), r.a.RecoverPolling(t.Context(), func(WC) {}, r.swap(r.b))); err != nil {
		t.Fatal(err)
	}
	if r.a.Cause() != nil {
		t.Errorf("%v", r.a.Cause())
	}
	for _, e := range []EventType{EventQPFatal, EventQPRequestError, EventQPAccessError} {
		if s := (&EventError{e}).Error(); len(s) < 30 {
			t.Errorf("%q", s)
		}
	}
}

// However Recover fails, it says why, nothing is half connected, and it can be called
// again.
func TestRecoverFails(t *testing.T) {
	r := newRig(t, false)
	see := func(WC) {}
	refused := errors.New("the peer wants nothing of us")
	says(t, "no exchange", r.a.RecoverPolling(t.Context(), see, nil), ErrInvalid, "exchange")
	if r.a.State() != StateRTS {
		t.Errorf("in %v", r.a.State())
	}
	for name, c := range map[string]struct {
		exchange func(context.Context, *QP) error
		what     error
		text     string
	}{
		"refused": {func(_ context.Context, qp *QP) error {
			qp.RecvQueue().Recv(5, r.mr.Span(0, 8))
			return errors.Join(qp.RecvQueue().Flush(), refused)
		}, refused, "call Recover again"},
		"not connected": {func(context.Context, *QP) error { return nil }, ErrState, "left it in INIT"},
		"half connected": {func(ctx context.Context, qp *QP) error {
			return errors.Join(r.swap(r.b)(ctx, qp), refused)
		}, refused, "call Recover again"},
		"another Recover": {func(ctx context.Context, qp *QP) error {
			return qp.RecoverPolling(ctx, see, r.swap(r.b))
		}, ErrBusy, "under way"},
	} {
		if err := errors.Join(r.b.Modify(StateReset), r.b.Restart()); err != nil {
			t.Fatal(err)
		}
		says(t, name, r.a.RecoverPolling(t.Context(), see, c.exchange), c.what, c.text)
		if s, err := r.a.QueryState(); s != StateErr || err != nil {
			t.Errorf("%s: left in %v, %v", name, s, err)
		}
		r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
		says(t, name+": receive", r.a.RecvQueue().Flush(), ErrState, "Recover")
		r.a.SendQueue().Send(1, r.mr.Span(0, 8))
		says(t, name+": send", r.a.SendQueue().Flush(), ErrState, "Recover")
	}
	// Nobody polls.
	if err := errors.Join(r.b.Modify(StateReset), r.b.Restart(), r.a.RecoverPolling(t.Context(), see, r.swap(r.b))); err != nil {
		t.Fatal(err)
	}
	r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
	if err := r.a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	why := errors.New("no patience")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, why)
	defer cancel()
	says(t, "nobody polls", r.a.Recover(ctx, r.swap(r.b)), why, fmt.Sprint("recover QP ", r.a.QPN()))
	n := 0
	if err := errors.Join(r.b.Modify(StateReset), r.b.Restart(), r.a.RecoverPolling(t.Context(), func(WC) { n++ }, r.swap(r.b))); err != nil || n != 1 {
		t.Fatal(err, n)
	}
	// Closed meanwhile, and before.
	says(t, "closed meanwhile", r.a.RecoverPolling(t.Context(), see, func(ctx context.Context, qp *QP) error {
		return errors.Join(qp.Close(), qp.Connect(ctx, r.b.Endpoint(), nil))
	}), os.ErrClosed)
	says(t, "closed", r.a.RecoverPolling(t.Context(), see, r.swap(r.b)), os.ErrClosed)
}

// Any call of the kernel's may fail on the way. The next Recover gets through.
func TestRecoverFailsAtEveryCall(t *testing.T) {
	r := newRig(t, false)
	see := func(WC) {}
	failed := errors.New("the kernel would not")
	for n := 1; ; n++ {
		if err := errors.Join(r.b.Modify(StateReset), r.b.Restart()); err != nil {
			t.Fatal(err)
		}
		r.k.FailAt(fakekernel.AnyOp, n, failed)
		err := r.a.RecoverPolling(t.Context(), see, r.swap(r.b))
		r.k.Fail(nil)
		if err == nil {
			if n < 6 {
				t.Errorf("only %d calls", n-1)
			}
			break
		}
		says(t, fmt.Sprint("call ", n), err, failed)
	}
	if s, err := r.a.QueryState(); s != StateRTS || err != nil {
		t.Errorf("%v, %v", s, err)
	}
}

// Of a device that is gone nothing can be recovered, but all comes to its end.
func TestRecoverGone(t *testing.T) {
	for _, how := range []string{"polling", "beside pollers"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, false)
			for i := range uint64(5) {
				r.a.RecvQueue().Recv(i, r.mr.Span(0, 8))
			}
			if err := r.a.RecvQueue().Flush(); err != nil {
				t.Fatal(err)
			}
			r.k.RemoveDevice("rxe0")
			var n atomic.Int32
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := recoverHow(t, r)[how](ctx, func(WC) { n.Add(1) }, func(context.Context, *QP) error {
				t.Error("exchange was called")
				return nil
			})
			says(t, "gone", err, ErrDeviceGone)
			// It waits for pollers that have had their turn. Those of a busy machine may not
			// have, and hear of what is left afterwards.
			for end := time.Now().Add(patience); how != "polling" && !r.a.idle() && time.Now().Before(end); {
				var wcs [3]WC
				for _, q := range []*CQ{r.sendQ, r.recvQ} {
					k, err := q.Poll(wcs[:])
					if err != nil && !errors.Is(err, ErrDeviceGone) {
						t.Fatal(err)
					}
					n.Add(int32(k))
				}
			}
			if n.Load() != 5 || !r.a.idle() {
				t.Errorf("%d requests ended", n.Load())
			}
		})
	}
}

// A UD queue pair needs no exchange.
func TestRecoverUD(t *testing.T) {
	r := newRig(t, false, fakekernel.Device{})
	qp, err := r.pd.NewQP(UD, &QPOptions{CQ: r.sendQ, QKey: 0x1234})
	if err != nil {
		t.Fatal(err)
	}
	qp.RecvQueue().Recv(1, r.mr.Span(0, 100))
	if err := errors.Join(qp.RecvQueue().Flush(), qp.Modify(StateErr)); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := qp.RecoverPolling(t.Context(), func(WC) { n++ }, nil); err != nil || n != 1 {
		t.Fatal(err, n)
	}
	if s, err := qp.QueryState(); s != StateRTS || err != nil || qp.Endpoint().QKey != 0x1234 {
		t.Errorf("%v, %v, Q_Key %#x", s, err, qp.Endpoint().QKey)
	}
}
