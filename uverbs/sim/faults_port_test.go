package sim_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

// event takes the next event of a device, which is there.
func event(t *testing.T, e *uverbstest.End) uverbs.Event {
	t.Helper()
	select {
	case ev := <-e.Device.Events():
		return ev
	case <-time.After(time.Minute):
		t.Fatalf("%s: no event", e.Name)
	}
	return uverbs.Event{}
}

// noEvent says that none is there, nor comes.
func noEvent(t *testing.T, e *uverbstest.End) {
	t.Helper()
	synctest.Wait()
	if n := len(e.Device.Events()); n > 0 {
		t.Errorf("%s: %v", e.Name, <-e.Device.Events())
	}
}

// The cable is out for a while. What is sent meanwhile arrives when it is in again; if that
// takes too long it fails. Only the device whose cable it is is told.
func TestFaultPortDown(t *testing.T) {
	for _, c := range []struct {
		device string
		back   time.Duration
		status uverbs.Status
		want   time.Duration
	}{
		{"sim0", 100 * time.Millisecond, uverbs.StatusSuccess, 2 * ackTimeout},
		{"sim1", 100 * time.Millisecond, uverbs.StatusSuccess, 2 * ackTimeout},
		{"sim0", time.Second, uverbs.StatusRetryExceeded, attempts * ackTimeout},
		{"sim1", time.Second, uverbs.StatusRetryExceeded, attempts * ackTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAccount(t, nil)
			a.Fault(fmt.Sprintf("time 1ms device=%s: port 1 down\ntime %v device=%s: port 1 up", c.device, time.Millisecond+c.back, c.device))
			at, other := a.A, a.B
			if c.device == "sim1" {
				at, other = a.B, a.A
			}
			receive := a.receive(a.B)
			a.take(a.A, a.send(a.A), uverbs.StatusSuccess)
			a.take(a.B, receive, uverbs.StatusSuccess)
			if e := event(t, at); e.Type != uverbs.EventPortError || e.Port != 1 {
				t.Errorf("%v", e)
			}
			if p, err := at.Device.PortAttr(1); err != nil || p.State != uverbs.PortDown {
				t.Errorf("%v, %v", p.State, err)
			}
			start := time.Now()
			receive = a.receive(a.B)
			a.take(a.A, a.send(a.A), c.status)
			took(t, start, c.want)
			if c.status == uverbs.StatusSuccess {
				a.take(a.B, receive, uverbs.StatusSuccess)
			}
			if e := event(t, at); e.Type != uverbs.EventPortActive || e.Port != 1 {
				t.Errorf("%v", e)
			}
			noEvent(t, other)
			a.settle(0)
		})
	}
}

// Datagrams get lost without a word.
func TestFaultPortDownDatagrams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := uverbstest.PairWith(t, &uverbstest.PairOptions{Type: uverbs.UD})
		send := func(id uint64) {
			t.Helper()
			p.A.QP.SendQueue().SendTo(id, p.A.To, p.A.MR.Span(0, 64))
			p.A.Flush()
			if w := p.A.Next(); w.ID != id || w.Err() != nil {
				t.Errorf("%+v", w)
			}
		}
		p.B.QP.RecvQueue().Recv(1, p.B.MR.Span(0, 256))
		p.B.Flush()
		if err := p.B.Model.SetPort(1, false); err != nil {
			t.Fatal(err)
		}
		send(2)
		if err := p.B.Model.SetPort(1, true); err != nil {
			t.Fatal(err)
		}
		var wcs [1]uverbs.WC
		if n, err := p.B.CQ.Poll(wcs[:]); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		send(3)
		if w := p.B.Next(); w.ID != 1 || w.Err() != nil {
			t.Errorf("%+v", w)
		}
	})
}

// An address that changes makes its queue pairs strangers to their peers, whoever sends.
// The program is told; connected anew, from another address, all goes on.
func TestFaultGIDChange(t *testing.T) {
	for _, sender := range []string{"A", "B"} {
		synctest.Test(t, func(t *testing.T) {
			a := newAccount(t, nil)
			source := a.A.QP.Source()
			now := netip.MustParseAddr("10.9.8.7")
			a.Fault(fmt.Sprintf("time 1ms device=sim0: gid 1 %d ::ffff:%v roce2", source.Index, now))
			receive := a.receive(a.B)
			a.take(a.A, a.send(a.A), uverbs.StatusSuccess)
			a.take(a.B, receive, uverbs.StatusSuccess)
			if e := event(t, a.A); e.Type != uverbs.EventGIDChange || e.Port != 1 {
				t.Errorf("%v", e)
			}
			noEvent(t, a.B)
			if g, err := a.A.Device.GID(1, source.Index); err != nil || g.GID != uverbs.GIDFromAddr(now) {
				t.Errorf("%v, %v", g, err)
			}
			from, to := a.A, a.B
			if sender == "B" {
				from, to = a.B, a.A
			}
			a.receive(to)
			start := time.Now()
			a.take(from, a.send(from), uverbs.StatusRetryExceeded)
			took(t, start, attempts*ackTimeout)
			a.settle(0)

			// B knows the way to the new address when it is told of it.
			for _, qp := range a.all {
				if err := qp.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			there := a.A.QP.Endpoint()
			there.GID = uverbs.GIDFromAddr(now)
			if err := errors.Join(a.A.QP.Connect(t.Context(), a.B.QP.Endpoint(), nil), a.B.QP.Connect(t.Context(), there, nil)); err != nil {
				t.Fatal(err)
			}
			receive = a.receive(a.B)
			a.take(a.A, a.send(a.A), uverbs.StatusSuccess)
			a.take(a.B, receive, uverbs.StatusSuccess)
			a.settle(0)
		})
	}
}

// An entry that is emptied is as good as none.
func TestFaultGIDGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		if err := a.A.Model.SetGID(1, a.A.QP.Source().Index, model.GID{}); err != nil {
			t.Fatal(err)
		}
		if e := event(t, a.A); e.Type != uverbs.EventGIDChange {
			t.Errorf("%v", e)
		}
		a.receive(a.B)
		a.take(a.A, a.send(a.A), uverbs.StatusRetryExceeded)
		a.settle(0)
	})
}

// A call of the kernel that takes long is not interrupted, but nothing comes after it
// when the time is over.
func TestFaultSlowConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		a.settle(0)
		for _, qp := range a.all {
			if err := qp.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		a.Fault("ioctl method=IB_USER_VERBS_CMD_MODIFY_QP: slow 4s")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := a.A.QP.Connect(ctx, a.B.QP.Endpoint(), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Connect: %v", err)
		}
		took(t, start, 4*time.Second)
		if s := a.A.QP.State(); s == uverbs.StateRTS {
			t.Errorf("it went on to %v", s)
		}
		// It takes another life: nobody knows how far it got.
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := errors.Join(a.A.QP.Drain(ctx, func(uverbs.WC) {}), a.A.QP.Restart()); err != nil {
			t.Fatal(err)
		}
		for i, qp := range a.all {
			if err := qp.Connect(ctx, a.all[1-i].Endpoint(), nil); err != nil {
				t.Fatal(err)
			}
		}
		receive := a.receive(a.B)
		a.take(a.A, a.send(a.A), uverbs.StatusSuccess)
		a.take(a.B, receive, uverbs.StatusSuccess)
		a.settle(0)
	})
}
