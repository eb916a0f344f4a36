package uverbs

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// A queue pair that is closed while Restart or Recover has nearly made it new takes
// nothing afterwards.
func TestCloseBesideOpen(t *testing.T) {
	for name, how := range map[string]func(qp *QP) error{
		"restart": (*QP).Restart,
		"recover": func(qp *QP) error { return qp.RecoverPolling(t.Context(), func(WC) {}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, false)
			qp, err := r.pd.NewQP(UD, &QPOptions{CQ: r.sendQ})
			if err != nil {
				t.Fatal(err)
			}
			if err := qp.Drain(t.Context(), func(WC) {}); err != nil {
				t.Fatal(err)
			}
			closed, calls := make(chan error, 1), 0
			r.k.Fail(func(c fakekernel.Call) error {
				// The third makes it ready to send.
				if calls++; calls == 3 {
					go func() { closed <- qp.Close() }()
					for !qp.closing.Load() {
						time.Sleep(time.Millisecond)
					}
					time.Sleep(time.Millisecond) // more than Close takes to shut it
				}
				return nil
			})
			err = how(qp)
			r.k.Fail(nil)
			says(t, name, err, os.ErrClosed)
			if err := <-closed; err != nil {
				t.Error(err)
			}
			qp.RecvQueue().Recv(1, r.mr.Span(0, 64))
			says(t, "receive", qp.RecvQueue().Flush(), os.ErrClosed)
		})
	}
}

// Shutdown is not undone by a Recover that began before, and none begins beside it.
func TestShutdownBesideRecover(t *testing.T) {
	r := newRig(t, false)
	for i := range uint64(4) {
		r.a.RecvQueue().Recv(i, r.mr.Span(0, 8))
	}
	if err := r.a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	exchange := func(context.Context, *QP) error {
		t.Error("exchange was called")
		return nil
	}
	// Nobody polls: both wait.
	recovered, down := make(chan error, 1), make(chan error, 1)
	go func() { recovered <- r.a.Recover(t.Context(), exchange) }()
	within(t, "Recover begins", func() {
		for !(r.a.State() == StateReset) {
			time.Sleep(time.Millisecond)
		}
	})
	go func() { down <- r.a.Shutdown(t.Context()) }()
	within(t, "Shutdown begins", func() {
		for !(r.a.enders.Load() == 1 && r.a.shuts.Load() > 1) {
			time.Sleep(time.Millisecond)
		}
	})
	says(t, "beside Recover", r.a.Recover(t.Context(), exchange), ErrBusy, "Recover")
	wait(t, r.recvQ, 4)
	says(t, "shut down meanwhile", <-recovered, ErrState, "shut down")
	if err := <-down; err != nil {
		t.Error(err)
	}
	if s, err := r.a.QueryState(); err != nil || s != StateReset {
		t.Errorf("in %v, %v", s, err)
	}

	if err := errors.Join(r.a.Restart(), r.b.Modify(StateReset), r.b.Restart(), r.swap(r.b)(t.Context(), r.a)); err != nil {
		t.Fatal(err)
	}
	r.a.RecvQueue().Recv(9, r.mr.Span(0, 8))
	if err := r.a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	go func() { down <- r.a.Shutdown(t.Context()) }()
	within(t, "Shutdown begins", func() {
		for !(r.a.State() == StateReset) {
			time.Sleep(time.Millisecond)
		}
	})
	says(t, "beside Shutdown", r.a.Recover(t.Context(), exchange), ErrBusy, "Shutdown")
	wait(t, r.recvQ, 1)
	if err := <-down; err != nil {
		t.Error(err)
	}
	if err := errors.Join(r.b.Modify(StateReset), r.b.Restart(), r.a.RecoverPolling(t.Context(), func(WC) {}, r.swap(r.b))); err != nil {
		t.Error(err)
	}
}
