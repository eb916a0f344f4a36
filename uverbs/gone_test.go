package uverbs

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// A queue that was being made while the device died is dead too.
func TestDeviceGoneBeforeNewCQ(t *testing.T) {
	r := newRig(t, false)
	r.dev.lose()
	q, err := r.dev.NewCQ(4, nil)
	if err != nil {
		if !errors.Is(err, ErrDeviceGone) {
			t.Errorf("%v", err)
		}
		return
	}
	var wcs [1]WC
	if n, err := q.Poll(wcs[:]); n != 0 || !errors.Is(err, ErrDeviceGone) {
		t.Errorf("Poll: %d, %v, want %v", n, err, ErrDeviceGone)
	}
}

// Nobody waits for ever for a device that is gone.
func TestWaitsOnDeviceGone(t *testing.T) {
	for name, wait := range map[string]func(ctx context.Context, r *rig) error{
		"room":     func(ctx context.Context, r *rig) error { return r.a.SendQueue().WaitRoom(ctx, 3) },
		"shutdown": func(ctx context.Context, r *rig) error { return r.a.Shutdown(ctx) },
		"drain":    func(ctx context.Context, r *rig) error { return r.a.Drain(ctx, func(WC) {}) },
	} {
		for _, before := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, false)
				sq := r.a.SendQueue()
				for sq.Room() > 0 {
					sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
				}
				r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
				if err := errors.Join(sq.Flush(), r.a.RecvQueue().Flush()); err != nil {
					t.Fatal(err)
				}
				if before {
					r.k.RemoveDevice("rxe0")
					event(t, r.dev)
				} else {
					time.AfterFunc(10*time.Millisecond, func() { r.k.RemoveDevice("rxe0") })
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if err := wait(ctx, r); err != nil && !errors.Is(err, ErrDeviceGone) {
					t.Errorf("%v, want %v", err, ErrDeviceGone)
				}
			})
		}
	}
}

// What Close has discarded does not come back.
func TestNoEndsAfterClose(t *testing.T) {
	r := newRig(t, false)
	r.a.RecvQueue().Recv(1, r.mr.Span(0, 8))
	if err := r.a.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := r.a.Close(); err != nil {
		t.Fatal(err)
	}
	// As a Flush does whose doorbell failed right before the Close.
	r.recvQ.mailbox.adopt(r.recvQ, &r.a.closing, r.a.rq.requests, false)
	var wcs [1]WC
	if n, err := r.recvQ.Poll(wcs[:]); n != 0 || err != nil {
		t.Errorf("after Close: %d, %v, %+v", n, err, wcs[0])
	}
}

// A failed handshake leaves no goroutine behind, also when the peer does not
// read.
func TestHandshakeLeavesNoGoroutine(t *testing.T) {
	r := newRig(t, false)
	qp, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 2, RecvDepth: 2})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	before := runtime.NumGoroutine()
	go theirs.Write(make([]byte, greetingSize))
	if _, err := qp.Handshake(t.Context(), ours); err == nil {
		t.Fatal("zeros are no greeting")
	}
	settles(t, before, "afterwards")
}

// lastByte calls read when the peer's last byte of a handshake arrives.
type lastByte struct {
	net.Conn
	read     func()
	deadline atomic.Bool
}

func (c *lastByte) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 1 && len(p) == 1 {
		c.read()
	}
	return n, err
}

func (c *lastByte) SetDeadline(t time.Time) error {
	c.deadline.Store(true)
	return c.Conn.SetDeadline(t)
}

// A context that ends with the last byte ends the handshake; a connection that
// Handshake gives back has no deadline of ours.
func TestHandshakeCancelledAtTheEnd(t *testing.T) {
	r := newRig(t, false)
	opts := &QPOptions{CQ: r.sendQ, SendDepth: 2, RecvDepth: 2}
	a, err := r.pd.NewQP(RC, opts)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.pd.NewQP(RC, opts)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	go func() {
		b.Handshake(context.Background(), theirs)
		io.Copy(io.Discard, theirs)
	}()
	ctx, cancel := context.WithCancel(t.Context())
	conn := &lastByte{Conn: ours}
	conn.read = func() {
		cancel()
		time.Sleep(10 * time.Millisecond) // the deadline is set by now
	}
	if _, err := a.Handshake(ctx, conn); err == nil && conn.deadline.Load() {
		t.Error("the connection came back with a deadline in the past")
	} else if err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
