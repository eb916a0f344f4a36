package uverbs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// inFlush runs f while a Flush of receives is under way, in a time that goes on when
// everybody waits: what f does not wait with, it has done when the time has gone on.
// Afterwards all come to their ends.
func inFlush(t *testing.T, f func(r *rig) error, look func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false)
		s := &slowRecvRing{RecvRing: r.a.rq.ring, entered: make(chan struct{}), goOn: make(chan struct{})}
		r.a.rq.ring = s
		r.a.RecvQueue().Recv(7, r.mr.Span(0, 8))
		flushed, done := make(chan error, 1), make(chan error, 1)
		go func() { flushed <- r.a.RecvQueue().Flush() }()
		<-s.entered
		go func() { done <- f(r) }()
		time.Sleep(5 * time.Millisecond)
		look(r)
		close(s.goOn)
		if err := errors.Join(<-flushed, <-done); err != nil {
			t.Fatal(err)
		}
	})
}

// TestResetWaitsForFlush without a clock on the wall.
func TestResetAwaitsFlush(t *testing.T) {
	inFlush(t, func(r *rig) error { return r.a.Modify(StateReset) }, func(r *rig) {
		if s := r.a.State(); s != StateRTS {
			t.Errorf("beside a Flush the queue pair went to %v", s)
		}
	})
}

// TestShutdownWaitsForFlush without a clock on the wall.
func TestShutdownAwaitsFlush(t *testing.T) {
	ends := 0
	inFlush(t, func(r *rig) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // of the bubble
		defer cancel()
		return r.a.Drain(ctx, func(WC) { ends++ })
	}, func(r *rig) {
		if s := r.a.State(); s != StateRTS || ends != 0 {
			t.Errorf("beside a Flush the queue pair went to %v, with %d ends", s, ends)
		}
	})
	if ends != 1 {
		t.Errorf("%d ends of one receive", ends)
	}
}
