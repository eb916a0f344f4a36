package sim_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/uverbstest"
)

// A request that is lost is sent again after the time-out, and those behind it wait.
func TestFaultDropOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		a.Fault("request 2 device=sim0: drop")
		start := time.Now()
		var sends, receives [4]uint64
		for i := range sends {
			receives[i] = a.receive(a.B)
		}
		for i := range sends {
			sends[i] = a.send(a.A)
		}
		for i := range sends {
			a.take(a.A, sends[i], uverbs.StatusSuccess)
			a.take(a.B, receives[i], uverbs.StatusSuccess)
			if i == 0 {
				took(t, start, 0)
			}
		}
		took(t, start, ackTimeout)
		a.settle(0)
	})
}

// A request that is lost as often as it is repeated fails when the last time-out is over,
// and what was posted after it is flushed. The receiver has seen nothing.
func TestFaultDropForever(t *testing.T) {
	for _, c := range []struct {
		opts uverbs.ConnectOptions
		want time.Duration
	}{
		{uverbs.ConnectOptions{}, attempts * ackTimeout},
		{uverbs.ConnectOptions{AckTimeout: time.Second, Retries: 1}, 2 * 4096 * time.Nanosecond << 18},
		{uverbs.ConnectOptions{AckTimeout: 4 * time.Second, Retries: 7}, 8 * 4096 * time.Nanosecond << 20},
		{uverbs.ConnectOptions{AckTimeout: 10 * time.Microsecond, Retries: uverbs.NoRetry}, 4096 * time.Nanosecond << 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAccount(t, &uverbstest.PairOptions{Connect: c.opts})
			a.Fault("request times=forever device=sim0: drop")
			start := time.Now()
			a.receive(a.B)
			first, second := a.send(a.A), a.send(a.A)
			a.take(a.A, first, uverbs.StatusRetryExceeded)
			took(t, start, c.want)
			a.take(a.A, second, uverbs.StatusFlushed)
			if s, err := a.A.QP.QueryState(); err != nil || s != uverbs.StateErr {
				t.Errorf("%v, %v", s, err)
			}
			a.none(a.B)
			a.settle(0)
		})
	}
}

// Nobody repeats what is lost on an unreliable transport, and the sender is not told.
func TestFaultDropUnreliable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, &uverbstest.PairOptions{Type: uverbs.UC})
		a.Fault("request 2 device=sim0: drop")
		first, second := a.receive(a.B), a.receive(a.B)
		for range 3 {
			a.take(a.A, a.send(a.A), uverbs.StatusSuccess)
		}
		a.take(a.B, first, uverbs.StatusSuccess)
		a.take(a.B, second, uverbs.StatusSuccess)
		a.settle(0)
	})
}

// A request that is late holds up those behind it, on its own queue pair.
func TestFaultDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		one, two := another(a)
		a.Fault(fmt.Sprintf("request 2 qp=%#x: delay 5ms", a.A.QP.QPN()))
		for range 3 {
			a.receive(a.B)
		}
		receive := a.post(a.B, two, uverbs.RecvSide)
		start := time.Now()
		sends := [3]uint64{a.send(a.A), a.send(a.A), a.send(a.A)}
		other := a.post(a.A, one, uverbs.SendSide)
		a.take(a.A, sends[0], uverbs.StatusSuccess)
		a.take(a.A, other, uverbs.StatusSuccess)
		took(t, start, 0)
		a.take(a.A, sends[1], uverbs.StatusSuccess)
		a.take(a.A, sends[2], uverbs.StatusSuccess)
		took(t, start, 5*time.Millisecond)
		a.take(a.B, 1, uverbs.StatusSuccess)
		a.take(a.B, receive, uverbs.StatusSuccess)
		a.settle(0)
	})
}

// another makes one more pair of queue pairs, on the same completion queues.
func another(a *account) (one, two *uverbs.QP) {
	t := a.t
	t.Helper()
	var qps [2]*uverbs.QP
	for i, e := range []*uverbstest.End{a.A, a.B} {
		qp, err := e.PD.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: e.CQ})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := qp.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
				t.Error(err)
			}
		})
		qps[i] = qp
	}
	for i, qp := range qps {
		if err := qp.Connect(t.Context(), qps[1-i].Endpoint(), nil); err != nil {
			t.Fatal(err)
		}
	}
	a.all = append(a.all, qps[:]...)
	return qps[0], qps[1]
}

// A request goes behind those of other queue pairs, so many of them, or when none
// come as long as it is told. On its own queue pair the order stays.
func TestFaultBehind(t *testing.T) {
	for _, others := range []int{0, 1, 2, 4} {
		synctest.Test(t, func(t *testing.T) {
			a := newAccount(t, nil)
			one, two := another(a)
			a.Fault(fmt.Sprintf("request qp=%#x: behind 2 at-most=3ms", a.A.QP.QPN()))
			start := time.Now()
			a.receive(a.B)
			a.receive(a.B)
			sends := [2]uint64{a.send(a.A), a.send(a.A)}
			var want []uint64
			for i := range others {
				a.post(a.B, two, uverbs.RecvSide)
				want = append(want, a.post(a.A, one, uverbs.SendSide))
				if i == 1 {
					want = append(want, sends[:]...)
				}
			}
			wait := time.Duration(0)
			if others < 2 {
				want = append(want, sends[:]...)
				wait = 3 * time.Millisecond
			}
			for _, id := range want {
				a.take(a.A, id, uverbs.StatusSuccess)
			}
			took(t, start, wait)
			a.settle(0)
		})
	}
}

// A peer that has no receive says how long to wait, and is asked again as often as the
// sender is willing.
func TestFaultNotReady(t *testing.T) {
	const timer12 = 640 * time.Microsecond
	for _, c := range []struct {
		times   string
		retries int
		status  uverbs.Status
		waits   time.Duration
	}{
		{"3", 0, uverbs.StatusSuccess, 3},
		{"6", 0, uverbs.StatusSuccess, 6},
		{"7", 0, uverbs.StatusRNRRetryExceeded, 6},
		{"forever", 2, uverbs.StatusRNRRetryExceeded, 2},
		{"forever", uverbs.NoRetry, uverbs.StatusRNRRetryExceeded, 0},
		{"100", uverbs.RetryForever, uverbs.StatusSuccess, 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAccount(t, &uverbstest.PairOptions{Connect: uverbs.ConnectOptions{RNRRetries: c.retries}})
			a.Fault("request times=" + c.times + " device=sim0: not-ready timer=12")
			start := time.Now()
			receive, send := a.receive(a.B), a.send(a.A)
			a.take(a.A, send, c.status)
			took(t, start, c.waits*timer12)
			if c.status == uverbs.StatusSuccess {
				a.take(a.B, receive, uverbs.StatusSuccess)
			}
			a.settle(0)
		})
	}
}

// Without a fault: the receive comes late, or never.
func TestNoReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		start := time.Now()
		send := a.send(a.A)
		time.Sleep(time.Millisecond)
		receive := a.receive(a.B)
		a.take(a.A, send, uverbs.StatusSuccess)
		a.take(a.B, receive, uverbs.StatusSuccess)
		took(t, start, 2*640*time.Microsecond)
		start = time.Now()
		a.take(a.A, a.send(a.A), uverbs.StatusRNRRetryExceeded)
		took(t, start, 6*640*time.Microsecond)
		a.settle(0)
	})
}

// Every syndrome that devices write, on the first request or a later one, becomes the
// status that drivers make of it, with the device's own code beside it. What comes after
// is flushed. Of the rest the peer learns when it sends itself.
func TestFaultSyndromes(t *testing.T) {
	known := 0
	for s := 1; s <= 255; s++ {
		syndrome := mlx5.Syndrome(s)
		if syndrome.Known() {
			known++
		} else if s%50 != 0 {
			continue
		}
		for _, nth := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				a := newAccount(t, &uverbstest.PairOptions{Connect: uverbs.ConnectOptions{Retries: 1}})
				vendor := uint32(s ^ 0x88)
				a.Fault(fmt.Sprintf("request %d device=sim0 op=send: fail syndrome=%#x vendor=%#x", nth, s, vendor))
				var receives, sends []uint64
				for range 4 {
					receives = append(receives, a.receive(a.B))
				}
				for range 4 {
					sends = append(sends, a.send(a.A))
				}
				for i := range sends {
					switch {
					case i < nth-1:
						a.take(a.A, sends[i], uverbs.StatusSuccess)
						a.take(a.B, receives[i], uverbs.StatusSuccess)
					case i == nth-1:
						if w := a.take(a.A, sends[i], syndrome.Status()); w.VendorErr != vendor {
							t.Errorf("syndrome %#x: vendor %#x, want %#x", s, w.VendorErr, vendor)
						}
					default:
						if w := a.take(a.A, sends[i], uverbs.StatusFlushed); w.VendorErr != uint32(mlx5.VendorFlushed) {
							t.Errorf("syndrome %#x: flushed with vendor %#x", s, w.VendorErr)
						}
					}
				}
				a.none(a.B)
				start := time.Now()
				a.take(a.B, a.send(a.B), uverbs.StatusRetryExceeded)
				took(t, start, 2*ackTimeout)
				a.settle(0)
			})
		}
	}
	if known != 18 {
		t.Errorf("%d syndromes are known, want the 18 of the driver headers", known)
	}
}
