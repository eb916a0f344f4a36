package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// sleeper is a program that sleeps on the completion queue of B while A sends, a
// millisecond after it was asked to.
type sleeper struct {
	*account
	w        *poll.Waiter
	from, to *uverbs.QP
}

// newSleeper makes one: with a completion queue that has a channel of its own, or shares
// one with another queue.
func newSleeper(t *testing.T, shared bool) *sleeper {
	t.Helper()
	s := &sleeper{account: newAccount(t, nil)}
	s.from, s.to = s.A.QP, s.B.QP
	q := s.B.CQ
	if shared {
		ch, err := s.B.Device.NewChannel()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { check(t, ch.Close()) })
		for range 2 {
			one, err := s.B.Device.NewCQ(64, &uverbs.CQOptions{Channel: ch})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { check(t, one.Close()) })
			q = one
		}
		if s.to, err = s.B.PD.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { check(t, s.to.Close()) })
		if s.from, err = s.A.PD.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: s.A.CQ}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { check(t, s.from.Close()) })
		if err := errors.Join(s.from.Connect(t.Context(), s.to.Endpoint(), nil), s.to.Connect(t.Context(), s.from.Endpoint(), nil)); err != nil {
			t.Fatal(err)
		}
		s.all = append(s.all, s.from, s.to)
	}
	s.Fault("request times=forever device=sim0: delay 1ms")
	var err error
	if s.w, err = poll.NewWaiter(poll.Event{}, q); err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// round sends a message to the sleeper, which is to have it after so long. Its waits end
// after a second.
func (s *sleeper) round(want time.Duration) {
	s.t.Helper()
	receive := s.post(s.B, s.to, uverbs.RecvSide)
	send := s.post(s.A, s.from, uverbs.SendSide)
	start := time.Now()
	s.wait(receive)
	took(s.t, start, want)
	s.take(s.A, send, uverbs.StatusSuccess)
}

func (s *sleeper) wait(id uint64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var wcs [4]uverbs.WC
	n, err := s.w.Wait(ctx, wcs[:])
	if n != 1 || err != nil || wcs[0].ID != id {
		s.t.Fatalf("Wait: %d, %v, %+v", n, err, wcs[0])
	}
	s.end(s.B, wcs[0])
}

// finish ends a sleeper.
func (s *sleeper) finish() {
	s.t.Helper()
	check(s.t, s.w.Close())
	if s.to == s.B.QP {
		s.settle(0)
		return
	}
	s.Model().ClearFaults()
	for _, qp := range []*uverbs.QP{s.to, s.from} {
		check(s.t, qp.Drain(context.Background(), func(w uverbs.WC) {}))
	}
	if len(s.open) > 0 {
		s.t.Errorf("open are %v", s.open)
	}
}

// asleep runs a test on both kinds of channels.
func asleep(t *testing.T, test func(s *sleeper)) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared channel %v", shared), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSleeper(t, shared)
				test(s)
				s.finish()
			})
		})
	}
}

// Without a fault.
func TestSleeps(t *testing.T) {
	asleep(t, func(s *sleeper) {
		for range 10 {
			s.round(time.Millisecond)
		}
	})
}

// An event that is late wakes late, and no harm comes of it.
func TestFaultEventLate(t *testing.T) {
	asleep(t, func(s *sleeper) {
		s.Fault("event 2 times=5 device=sim1: delay 5ms")
		for i := range 10 {
			want := time.Millisecond
			if i >= 1 && i < 6 {
				want += 5 * time.Millisecond
			}
			s.round(want)
		}
	})
}

// An event that comes twice wakes once more than it needs to, however often, and the events
// after it come.
func TestFaultEventTwice(t *testing.T) {
	for times := 1; times <= 9; times++ {
		asleep(t, func(s *sleeper) {
			s.Fault(fmt.Sprintf("event 2 times=%d device=sim1: duplicate", times))
			for range 20 {
				s.round(time.Millisecond)
			}
		})
	}
}

// An event that gets lost costs one wait all of its time: then it takes what has come. The
// events after it come. Without a time a program would sleep for ever: neither it nor the
// library can know.
func TestFaultEventLost(t *testing.T) {
	for times := 1; times <= 9; times++ {
		asleep(t, func(s *sleeper) {
			s.Fault(fmt.Sprintf("event 2 times=%d device=sim1: lose", times))
			for i := range 20 {
				want := time.Millisecond
				if i >= 1 && i < 1+times {
					want = time.Second
				}
				s.round(want)
			}
		})
	}
}

// As above, when what the event was of was taken before: the wait after it finds nothing
// to take, and ends as it has to; the one after that sleeps and wakes.
func TestFaultEventLostBesideItsCompletion(t *testing.T) {
	asleep(t, func(s *sleeper) {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Microsecond)
		defer cancel()
		var wcs [4]uverbs.WC
		wait := func(ctx context.Context, want time.Duration) {
			s.t.Helper()
			start := time.Now()
			if n, err := s.w.Wait(ctx, wcs[:]); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
				s.t.Errorf("Wait: %d, %v", n, err)
			}
			took(s.t, start, want)
		}
		wait(ctx, 100*time.Microsecond) // it is armed now
		s.Fault("event device=sim1: lose")
		receive := s.post(s.B, s.to, uverbs.RecvSide)
		send := s.post(s.A, s.from, uverbs.SendSide)
		s.take(s.A, send, uverbs.StatusSuccess)
		s.wait(receive) // it is there
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		wait(ctx, time.Second)
		for range 5 {
			s.round(time.Millisecond)
		}
	})
}

// Events of all kinds of misfortune, one after another.
func TestFaultEventsMixed(t *testing.T) {
	asleep(t, func(s *sleeper) {
		for i := range 200 {
			want := time.Millisecond
			switch i * 7 % 5 {
			case 0:
				s.Fault("event device=sim1: lose")
				want = time.Second
			case 1:
				s.Fault("event device=sim1: duplicate")
			case 2:
				s.Fault("event device=sim1: delay 3ms")
				want += 3 * time.Millisecond
			}
			s.round(want)
		}
	})
}

// Asynchronous events are late, lost or twice there, and that is all.
func TestFaultAsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, nil)
		flip := func(up bool) {
			t.Helper()
			check(t, a.A.Model.SetPort(1, up))
		}
		want := func(typ uverbs.EventType, n int) {
			t.Helper()
			for range n {
				if e := event(t, a.A); e.Type != typ || e.Port != 1 {
					t.Errorf("%v, want %v", e, typ)
				}
			}
			noEvent(t, a.A)
		}
		flip(false)
		want(uverbs.EventPortError, 1)
		a.Fault("async device=sim0: duplicate")
		flip(true)
		want(uverbs.EventPortActive, 2)
		a.Fault("async device=sim0: lose")
		flip(false)
		want(0, 0)
		flip(true)
		want(uverbs.EventPortActive, 1)
		a.Fault("async type=10 device=sim0: delay 3ms")
		start := time.Now()
		flip(false)
		flip(true)
		if e := event(t, a.A); e.Type != uverbs.EventPortActive {
			t.Errorf("%v: what is not late comes first", e)
		}
		took(t, start, 0)
		want(uverbs.EventPortError, 1)
		took(t, start, 3*time.Millisecond)
		receive := a.receive(a.B)
		a.take(a.A, a.send(a.A), uverbs.StatusSuccess)
		a.take(a.B, receive, uverbs.StatusSuccess)
		a.settle(0)
	})
}

// An overrun of which nobody tells: what the device does not write any more nobody gets,
// and the end of the queue pair takes as long as the program allows. All closes.
func TestFaultOverrunUntold(t *testing.T) {
	for _, untold := range []string{"lose", "delay 5ms", "duplicate"} {
		t.Run(untold, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAccount(t, nil)
				a.Fault("completion device=sim0: overrun\nasync times=forever device=sim0: " + untold)
				a.receive(a.B)
				a.send(a.A)
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				start := time.Now()
				err := a.A.QP.Drain(ctx, func(w uverbs.WC) {
					if w.Status != uverbs.StatusFlushed {
						t.Errorf("%+v", w)
					}
					a.end(a.A, w)
				})
				if untold == "lose" {
					check(t, err)
				} else if !errors.Is(err, uverbs.ErrOverrun) {
					t.Errorf("Drain: %v", err)
				}
				if d := time.Since(start); d > time.Second {
					t.Errorf("Drain took %v", d)
				}
				check(t, errors.Join(a.A.QP.Close(), a.A.CQ.Close()))
				check(t, a.B.QP.Drain(ctx, func(w uverbs.WC) { a.end(a.B, w) }))
			})
		})
	}
}
