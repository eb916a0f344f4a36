package uverbs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
)

// A reset makes the device forget the receives that were posted, whether or not new
// ones are posted afterwards: its record of them begins anew, too.
func TestModelResetForgetsReceives(t *testing.T) {
	_, p := modelPair(t, model.DeviceConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for id := range uint64(3) {
		p.b.RecvQueue().Recv(id, p.mr.Span(4096, 64))
	}
	if err := p.b.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	for _, qp := range []*uverbs.QP{p.a, p.b} {
		if err := qp.Drain(ctx, func(uverbs.WC) {}); err != nil {
			t.Fatal(err)
		}
	}
	for _, qp := range []*uverbs.QP{p.a, p.b} {
		if err := qp.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	p.connect(t)
	p.a.SendQueue().SendInline(7, []byte("nobody takes it"))
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if w := p.wait(t, 1)[0]; w.ID != 7 || w.Side != uverbs.SendSide || w.Status != cq.StatusRNRRetryExceeded {
		t.Errorf("a message for which no receive was posted since the reset: %+v", w)
	}
}

// TestModelShutdownWaitsForQuietSends for Drain, in a time in which nothing waits: where
// nobody hears of the last sends, the deadline passes at once.
func TestModelDrainHearsOfQuietSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := modelPair(t, model.DeviceConfig{})
		inject(t, f, "request op=write: delay 50ms")
		for i := range 3 {
			p.mem.Bytes()[i] = byte(i + 1)
			p.a.SendQueue().Write(uint64(i), p.peer.Regions[0].At(uint64(4096+i)), p.mr.Span(i, 1), uverbs.Unsignaled)
		}
		if err := p.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := p.a.Drain(ctx, func(w uverbs.WC) { t.Errorf("a quiet send that succeeded is heard of: %+v", w) })
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]byte(p.mem.Bytes()[4096:]); got != [3]byte{1, 2, 3} {
			t.Errorf("the writes brought %v", got)
		}
	})
}

// TestWiringCloseAwaitsDoorbell in a time in which nothing waits: a Close that does not
// wait is over when the time goes on.
func TestModelCloseAwaitsFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := modelPair(t, model.DeviceConfig{})
		entered, goOn := p.a.Slow(true)
		flushed, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			p.a.SendQueue().Write(2, p.peer.Regions[0].At(0), p.mr.Span(4096, 8))
			flushed <- p.a.SendQueue().Flush()
		}()
		<-entered
		go func() { closed <- p.a.Close() }()
		time.Sleep(5 * time.Millisecond)
		select {
		case err := <-closed:
			t.Errorf("Close did not wait for a Flush: %v", err)
			closed <- err
		default:
		}
		close(goOn)
		if err := errors.Join(<-flushed, <-closed); err != nil {
			t.Fatal(err)
		}
	})
}
