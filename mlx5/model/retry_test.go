package model_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5/model"
)

func modifyTo(state uint8) abi.UverbsModifyQP { return abi.UverbsModifyQP{AttrMask: 1, QPState: state} }

// waitFor waits for the one completion of a queue with a channel.
func waitFor(q *ring) cqe {
	q.c.t.Helper()
	q.arm(false)
	<-q.channel.Ready()
	if !q.event() {
		q.c.t.Fatal("the channel is ready and has no event")
	}
	return q.one()
}

// A peer that does not answer: the request is sent 1+7 times, and every time-out takes
// 4.096 us times 2^17. In a bubble that is no time at all.
func TestRetryExceeded(t *testing.T) {
	for name, vanish := range map[string]func(*two) error{
		"peer in RESET":      func(w *two) error { return w.qb.modify(modifyTo(stateReset)) },
		"peer's port down":   func(w *two) error { return w.b.d.SetPort(1, false) },
		"own port down":      func(w *two) error { return w.a.d.SetPort(1, false) },
		"peer's GID gone":    func(w *two) error { return w.b.d.SetGID(1, 2, model.GID{}) },
		"peer's device gone": func(w *two) error { w.b.d.Fail(); return nil },
		"peer destroyed": func(w *two) error {
			return ioctl(w.b.f, abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_DESTROY, object(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, w.qb.handle), out(abi.UVERBS_ATTR_DESTROY_QP_RESP, make([]byte, 4)))
		},
		"peer closed": func(w *two) error { return w.b.f.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := usual
				p.timeout, p.retry = 17, 7
				w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, p)
				w.a.must("vanish", vanish(w))
				start := time.Now()
				i := w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
				c := waitFor(w.qa.scq)
				if c.opcode != 13 || c.syndrome != 0x15 || c.vendor != 0x81 || c.counter != i {
					t.Errorf("completion %+v", c)
				}
				if got, want := time.Since(start), 8*(4096*time.Nanosecond<<17); got != want {
					t.Errorf("after %v, want %v", got, want)
				}
				w.a.must("close", w.a.f.Close())
			})
		})
	}
}

// A peer that comes back in time: nothing is lost, and the next request has all its
// attempts again.
func TestRetrySucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, usual)
		for range 3 {
			w.a.must("down", w.b.d.SetPort(1, false))
			i := w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
			time.Sleep(5 * (4096 * time.Nanosecond << 13)) // two and a half time-outs
			w.qa.scq.none()
			w.a.must("up", w.b.d.SetPort(1, true))
			if c := waitFor(w.qa.scq); c.opcode != 0 || c.counter != i {
				t.Errorf("completion %+v", c)
			}
		}
		w.b.wantAsync(1, 10)
		w.b.wantAsync(1, 9)
		noViolations(t, w.m)
	})
}

// No receive: the peer's timer counts, as often as rnr_retry says, and 7 is for ever.
func TestRNR(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := usual
		p.rnr, p.minRNR = 3, 12 // 0.64 ms
		w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, p)
		start := time.Now()
		i := w.qa.post(opSend, 0, 0)
		if c := waitFor(w.qa.scq); c.syndrome != 0x16 || c.vendor != 0x87 || c.counter != i {
			t.Errorf("completion %+v", c)
		}
		if got := time.Since(start); got != 3*640*time.Microsecond {
			t.Errorf("after %v", got)
		}
		if w.qb.state() != stateRTS {
			t.Error("the peer is in error")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := usual
		p.rnr, p.minRNR = 7, 0 // 655.36 ms
		w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, p)
		i := w.qa.post(opSend, signaled, 0)
		time.Sleep(time.Hour)
		w.qa.scq.none()
		w.qb.recv()
		if c := waitFor(w.qa.scq); c.opcode != 0 || c.counter != i {
			t.Errorf("completion %+v", c)
		}
		w.a.must("close", w.a.f.Close())
	})
}

// Without a time-out a request waits until the queue pair is told otherwise.
func TestNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := usual
		p.timeout = 0
		w := newTwo(t, rc, cqOptions{}, qpOptions{}, p)
		w.qb.to(stateReset)
		i := w.qa.post(opSend, 0, 0)
		time.Sleep(24 * time.Hour)
		w.qa.scq.none()
		w.qa.to(stateErr)
		checkError(t, w.qa.scq, 13, w.qa.qpn, i, 0x05, 0xf9)
	})
}
