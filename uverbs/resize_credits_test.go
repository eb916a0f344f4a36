package uverbs

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// Whoever else resizes, and however it ends, no more completions can be claimed
// than the ring holds, or will hold.
func TestResizeCredits(t *testing.T) {
	r := newRig(t, false)
	q, err := r.dev.NewCQ(255, nil)
	if err != nil {
		t.Fatal(err)
	}
	fits := func(n int) bool {
		t.Helper()
		qp, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: n - 1, RecvDepth: 1})
		if err == nil {
			if err := qp.Close(); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, ErrCQFull) {
			t.Fatal(err)
		}
		return err == nil
	}
	// pending begins a resize that nobody sees to before it is cancelled.
	pending := func(depth int) (cancel func()) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Resize(ctx, depth) }()
		for waiting := 0; waiting == 0; {
			q.mailbox.mu.Lock()
			waiting = len(q.mailbox.resizes)
			q.mailbox.mu.Unlock()
		}
		return func() {
			stop()
			says(t, "cancelled", <-done, context.Canceled)
		}
	}
	cancel := pending(200)
	if fits(201) || !fits(200) {
		t.Error("a resize to 200 is pending: not exactly 200 completions fit")
	}
	if err := q.ResizeOwned(63); err != nil {
		t.Fatal(err)
	}
	cancel()
	if n := q.Depth(); n != 63 || fits(64) || !fits(63) {
		t.Errorf("depth %d after a resize to 63 and one that was cancelled", n)
	}
	cancel = pending(40)
	if err := q.ResizeOwned(127); err != nil {
		t.Fatal(err)
	}
	if fits(41) || !fits(40) {
		t.Error("a resize to 40 is pending: not exactly 40 completions fit")
	}
	cancel()
	if n := q.Depth(); n != 127 || !fits(127) {
		t.Errorf("depth %d after a resize to 127 and one that was cancelled", n)
	}
	// The old ring cannot be replaced by zero pages, but it is the old one.
	old := q.half.(*rxeCQ).mapping
	r.k.FailAt(fakekernel.Detach, 1, syscall.ENOMEM)
	if err := q.ResizeOwned(31); err != nil {
		t.Errorf("a resize whose old ring stays mapped: %v", err)
	}
	if n := q.Depth(); n != 31 || fits(32) {
		t.Errorf("depth %d after a resize to 31", n)
	}
	if err := old.Unmap(); err != nil { // in the collector's place
		t.Error(err)
	}
}
