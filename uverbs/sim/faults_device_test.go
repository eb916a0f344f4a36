package sim_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

// When a device fails, everybody who waits for something of it learns so, at once; every
// request that was accepted can still be had to its end, and everything closes without
// error, whatever becomes of the events that tell of it.
func TestFaultFatal(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		events int
	}{
		"alone":                  {"", 1},
		"without any event":      {"\nasync device=sim0 times=forever: lose\nevent device=sim0 times=forever: lose", 0},
		"with every event twice": {"\nasync device=sim0 times=forever: duplicate\nevent device=sim0 times=forever: duplicate", 2},
		"with late events":       {"\nasync device=sim0 times=forever: delay 5ms\nevent device=sim0 times=forever: delay 5ms", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fatal(t, "time 1s device=sim0: fatal"+c.script, c.events) })
		})
	}
}

// fatal is one such end, of which the program gets so many events.
func fatal(t *testing.T, script string, want int) {
	a := newAccount(t, nil)
	one, two := another(a)
	events, err := a.A.Device.NewCQ(64, &uverbs.CQOptions{Events: true})
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := a.A.PD.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: events})
	if err != nil {
		t.Fatal(err)
	}
	a.Fault("request times=forever device=sim0: delay 1h" + "\n" + script)
	for range 4 {
		a.receive(a.A)
		a.receive(a.B)
		a.post(a.B, two, uverbs.RecvSide)
	}
	for range 16 {
		a.send(a.A)
		a.post(a.A, one, uverbs.SendSide)
	}

	start := time.Now()
	var waiting sync.WaitGroup
	wait := func(what string, f func() error) {
		waiting.Go(func() {
			if err := f(); !errors.Is(err, uverbs.ErrDeviceGone) {
				t.Errorf("%s: %v", what, err)
			}
			if d := time.Since(start); d < time.Second || d > time.Second+5*time.Millisecond {
				t.Errorf("%s ended after %v", what, d)
			}
		})
	}
	w, err := poll.NewWaiter(poll.Event{}, events)
	if err != nil {
		t.Fatal(err)
	}
	wait("Wait", func() error {
		var wcs [2]uverbs.WC
		_, err := w.Wait(context.Background(), wcs[:])
		return err
	})
	wait("WaitRoom", func() error { return a.A.QP.SendQueue().WaitRoom(context.Background(), 1) })
	wait("WaitRoom of another", func() error { return one.SendQueue().WaitRoom(context.Background(), 16) })
	synctest.Wait() // all of them sleep
	var ends sync.WaitGroup
	ends.Go(func() {
		// Who hears of the device's end from Poll goes on until nothing is left.
		if err := a.A.QP.Drain(context.Background(), func(w uverbs.WC) {
			if w.Status != uverbs.StatusFlushed {
				t.Errorf("%+v", w)
			}
			a.end(a.A, w)
		}); err != nil {
			t.Errorf("Drain: %v", err)
		}
		if err := one.Drain(context.Background(), func(w uverbs.WC) { a.end(a.A, w) }); err != nil {
			t.Errorf("Drain of the other: %v", err)
		}
	})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		seen := 0
		for e := range a.A.Device.Events() {
			if e.Type == uverbs.EventDeviceFatal {
				seen++
			}
		}
		if seen != want {
			t.Errorf("%d events of the end, want %d", seen, want)
		}
	}()
	waiting.Wait()
	ends.Wait()
	for id, r := range a.open {
		if r.end == "A" {
			t.Errorf("request %d did not end: %+v", id, r)
		}
	}

	// Nothing can be had any more.
	_, errPD := a.A.Device.NewPD()
	_, errMR := a.A.PD.Register(make([]byte, 64), uverbs.LocalWrite)
	_, errCQ := a.A.Device.NewCQ(8, nil)
	_, errPort := a.A.Device.PortAttr(1)
	_, errQP := fresh.Query()
	_, errOpen := a.Open("sim0", nil)
	ca, cb := net.Pipe()
	go func() { cb.Read(make([]byte, 1)); cb.Close() }()
	_, errShake := fresh.Handshake(context.Background(), ca)
	ca.Close()
	for what, err := range map[string]error{"NewPD": errPD, "Register": errMR, "NewCQ": errCQ, "PortAttr": errPort, "Query": errQP} {
		if !errors.Is(err, uverbs.ErrDeviceGone) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !errors.Is(errOpen, syscall.EIO) {
		t.Errorf("Open: %v", errOpen)
	}
	if errShake == nil {
		t.Error("a handshake succeeded")
	}

	// And all closes. The peer hears of it when it sends.
	errRegion, errInUse := a.A.MR.Close(), a.A.PD.Close()
	if errRegion != nil || !errors.Is(errInUse, uverbs.ErrInUse) {
		t.Errorf("the region: %v; the PD, which is in use: %v", errRegion, errInUse)
	}
	if err := errors.Join(w.Close(), fresh.Close(), events.Close(), a.A.QP.Close(), one.Close(), a.A.CQ.Close(), a.A.PD.Close(), a.A.Device.Close(), a.A.Memory.Close()); err != nil {
		t.Error(err)
	}
	<-closed
	start = time.Now()
	a.take(a.B, a.send(a.B), uverbs.StatusRetryExceeded)
	took(t, start, attempts*ackTimeout)
	for _, qp := range []*uverbs.QP{a.B.QP, two} {
		if err := qp.Drain(context.Background(), func(w uverbs.WC) { a.end(a.B, w) }); err != nil {
			t.Error(err)
		}
	}
	if len(a.open) != 0 || a.ended != int(a.next) {
		t.Errorf("%d requests, %d ended, %v are open", a.next, a.ended, a.open)
	}
}

// A handshake whose device's kernel is slow, or whose device fails in the middle, ends.
func TestFaultHandshake(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         error
		took         time.Duration
	}{
		{"slow", "ioctl 2 device=sim0 method=IB_USER_VERBS_CMD_MODIFY_QP: slow 4s", context.DeadlineExceeded, 4 * time.Second},
		{"slow, and in time", "ioctl 2 device=sim0 method=IB_USER_VERBS_CMD_MODIFY_QP: slow 2s", nil, 2 * time.Second},
		{"fatal", "ioctl device=sim0 method=IB_USER_VERBS_CMD_MODIFY_QP: slow 2s\ntime 1s device=sim0: fatal", uverbs.ErrDeviceGone, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := uverbstest.Pair(t)
				ends := []*uverbstest.End{p.A, p.B}
				for _, e := range ends {
					if err := errors.Join(e.QP.Drain(context.Background(), func(uverbs.WC) {}), e.QP.Restart()); err != nil {
						t.Fatal(err)
					}
				}
				p.Fault(c.script)
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				var errs [2]error
				var took [2]time.Duration
				conns := [2]net.Conn{}
				conns[0], conns[1] = net.Pipe()
				start := time.Now()
				var both sync.WaitGroup
				for i, e := range ends {
					both.Go(func() {
						_, errs[i] = e.QP.Handshake(ctx, conns[i], e.MR.Remote())
						took[i] = time.Since(start)
						if errs[i] != nil {
							conns[i].Close()
						}
					})
				}
				both.Wait()
				for _, conn := range conns {
					conn.Close()
				}
				if !errors.Is(errs[0], c.want) || took[0] != c.took {
					t.Errorf("A: %v after %v, want %v after %v", errs[0], took[0], c.want, c.took)
				}
				if (errs[1] == nil) != (c.want == nil) || took[1] > c.took {
					t.Errorf("B: %v after %v", errs[1], took[1])
				}
			})
		})
	}
}
