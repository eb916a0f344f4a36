package uverbs_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
)

// What stands before a ring that is timed hides nothing of it: quiet sends at the end of
// the queue are waited for, requests are explained in full, and the queue pair is good
// again after a reset.
func TestModelTimedRing(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := pairOn(t, d, 64, &uverbs.CQOptions{Stats: &uverbs.StatsOptions{Sample: 1}})
	again := func() {
		t.Helper()
		for _, qp := range []*uverbs.QP{p.a, p.b} {
			if err := errors.Join(qp.Drain(t.Context(), func(w uverbs.WC) { t.Errorf("%+v", w) }), qp.Restart()); err != nil {
				t.Fatal(err)
			}
		}
		p.connect(t)
	}
	to := p.mr.Remote()
	for round := range uint64(3) {
		for i := range uint64(3) {
			p.a.SendQueue().Write(i, to.At(0), p.mr.Span(0, 8), uverbs.Unsignaled)
		}
		if err := p.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		again()
		p.a.SendQueue().Write(9, to.At(0), p.mr.Span(0, 8))
		if err := p.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		if w := p.take(t, 1)[0]; w.ID != 9 || w.Err() != nil {
			t.Errorf("%+v", w)
		}
		if n := p.q.Stats().PostToCompletion.Count; n != round+1 {
			t.Errorf("%d requests were timed, want %d", n, round+1)
		}
	}
	bad := to
	bad.RKey ^= 0x5500
	p.a.SendQueue().Write(10, bad.At(64), p.mr.Span(0, 8))
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	w := p.take(t, 1)[0]
	if e := p.q.Explain(&w); !e.IsFirst || e.Request == nil || !e.Request.Details || e.Request.RKey != bad.RKey || len(e.Request.Spans) != 1 {
		t.Errorf("%v", e)
	}
}
