package uverbs_test

import (
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// Completion queues of the least, a middle and the largest size, on the first vectors
// and the last, with no events, with events of their own and on a channel that they
// share.
func TestGuestConformanceCQ_Create(t *testing.T) {
	s := guestSystem(t)
	if s.fabric != nil { // The largest queue of a ConnectX takes 256 MB.
		f, err := sim.New(&sim.Options{Devices: []model.DeviceConfig{{Name: s.name, MaxCQE: 1<<16 - 1}}})
		if err != nil {
			t.Fatal(err)
		}
		s = &system{s.name, func(name string) (*uverbs.Device, error) { return f.Open(name, nil) }, f}
	}
	d := s.device(t)
	channel, err := d.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	most := d.Attr().MaxCQE
	try := func(depth int, opts *uverbs.CQOptions) {
		t.Helper()
		q, err := d.NewCQ(depth, opts)
		if err != nil {
			t.Errorf("%d, %+v: %v", depth, opts, err)
			return
		}
		if q.Depth() < depth || q.Device() != d {
			t.Errorf("%d, %+v: depth %d on %s", depth, opts, q.Depth(), q.Device().Name())
		}
		var wcs [4]uverbs.WC
		if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
			t.Errorf("%d, %+v: a new queue has %d, %v", depth, opts, n, err)
		}
		if err := q.Close(); err != nil {
			t.Errorf("%d, %+v: %v", depth, opts, err)
		}
		if err := q.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%d, %+v: closed again: %v", depth, opts, err)
		}
	}
	for _, depth := range []int{1, most / 2, most} {
		try(depth, nil)
	}
	for vector := range min(2, d.CompletionVectors()) {
		try(1, &uverbs.CQOptions{Vector: vector})
	}
	last := d.CompletionVectors() - 1
	try(d.CompletionVectors(), &uverbs.CQOptions{Vector: last})
	for _, depth := range []int{1, 1000} {
		try(depth, &uverbs.CQOptions{Events: true, Vector: last})
		try(depth, &uverbs.CQOptions{Channel: channel})
	}
	if err := channel.Close(); err != nil {
		t.Errorf("close of the channel that no queue uses: %v", err)
	}
}

// What no queue can be is refused, and nothing is left of it.
func TestGuestConformanceCQ_Refused(t *testing.T) {
	s := guestSystem(t)
	d := s.device(t)
	before := s.objects(t)
	for _, test := range []struct {
		depth  int
		vector int
	}{
		{d.Attr().MaxCQE + 1, 0}, {0, 0}, {-1, 0},
		{100, d.CompletionVectors()}, {100, d.CompletionVectors() + 1}, {100, -1},
	} {
		for _, events := range []bool{false, true} {
			if q, err := d.NewCQ(test.depth, &uverbs.CQOptions{Vector: test.vector, Events: events}); !errors.Is(err, uverbs.ErrInvalid) {
				t.Errorf("%+v: %v, %v", test, q, err)
			}
		}
	}
	after := s.objects(t)
	for kind, n := range after {
		if n != before[kind] {
			t.Errorf("%d of %s, %d before", n, kind, before[kind])
		}
	}
}

// A queue becomes smaller and larger, but not smaller than what its queue pairs may
// have complete on it, with completions there or not; those stay.
func TestGuestConformanceCQ_Resize(t *testing.T) {
	p := newPair(t, false)
	q, err := p.dev.NewCQ(30, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, depth := range []int{1, 7} {
		if err := q.ResizeOwned(depth); err != nil {
			t.Fatal(err)
		}
		if q.Depth() < depth {
			t.Errorf("depth %d after a resize to %d", q.Depth(), depth)
		}
	}
	const sends = 6
	p.rewire(t, &uverbs.QPOptions{SendCQ: q, RecvCQ: p.q, SendDepth: sends, RecvDepth: 1}, &uverbs.QPOptions{CQ: p.q})
	refused := func() {
		t.Helper()
		had := q.Depth()
		for _, depth := range []int{1, sends - 1} {
			if err := q.ResizeOwned(depth); !errors.Is(err, uverbs.ErrCQFull) {
				t.Errorf("to %d with %d sends: %v", depth, sends, err)
			}
		}
		for _, depth := range []int{0, -1, p.dev.Attr().MaxCQE + 1} {
			if err := q.ResizeOwned(depth); !errors.Is(err, uverbs.ErrInvalid) {
				t.Errorf("to %d: %v", depth, err)
			}
		}
		if q.Depth() != had {
			t.Errorf("depth %d after refusals, was %d", q.Depth(), had)
		}
	}
	refused()
	for i := range uint64(sends) {
		p.a.SendQueue().Write(i, p.peer.Regions[0].At(0), p.mr.Span(4096, 8))
	}
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	refused()
	hear := pair{q: q}
	for i, w := range hear.wait(t, sends) {
		if want := (uverbs.WC{ID: uint64(i), QPN: p.a.QPN(), Bytes: 8, Opcode: uverbs.OpWrite}); w != want {
			t.Errorf("completion %+v, want %+v", w, want)
		}
	}
	if err := p.a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := q.ResizeOwned(1); err != nil {
		t.Errorf("with no queue pair: %v", err)
	}
}

// Ping-pong over a connection where both sides sleep on a queue of their own.
func TestGuestConformanceCQEvents_RC(t *testing.T) {
	p := newPair(t, false)
	sides := rcSides(t, p, p.mr, sleeper)
	for round := range 40 {
		ping(t, p, sides[round%2], sides[1-round%2], round)
	}
}

// The same with datagrams.
func TestGuestConformanceCQEvents_UD(t *testing.T) {
	m := newMesh(t)
	sides := udSides(t, m, m.mr, sleeper)
	for round := range 40 {
		ping(t, m.pair, sides[round%2], sides[1-round%2], round)
	}
}
