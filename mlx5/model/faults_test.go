package model_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

// fault runs a test on two connected queue pairs, in a bubble.
func fault(t *testing.T, script string, f func(t *testing.T, w *two)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, usual)
		if err := w.m.Script(script); err != nil {
			t.Fatal(err)
		}
		f(t, w)
		w.a.f.Close()
		w.b.f.Close()
		noViolations(t, w.m)
	})
}

const ackTimeout = 4096 * time.Nanosecond << 14 // of the usual path

func TestFaultDrop(t *testing.T) {
	fault(t, "request 2 device=sim0: drop", func(t *testing.T, w *two) {
		start := time.Now()
		for range 3 {
			i := w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
			if c := waitFor(w.qa.scq); c.opcode != 0 || c.counter != i {
				t.Fatalf("completion %+v", c)
			}
		}
		if got := time.Since(start); got != ackTimeout {
			t.Errorf("one time-out, took %v", got)
		}
	})
	fault(t, "request times=forever: drop", func(t *testing.T, w *two) {
		w.qa.post(opWrite, 0, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
		if c := waitFor(w.qa.scq); c.syndrome != 0x15 {
			t.Errorf("completion %+v", c)
		}
	})
}

func TestFaultDelay(t *testing.T) {
	fault(t, "request 1 op=write: delay 5ms", func(t *testing.T, w *two) {
		start := time.Now()
		i1 := w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
		i2 := w.qa.post(opNop, signaled, 0) // stays behind it
		w.qa.scq.none()
		if c := waitFor(w.qa.scq); c.counter != i1 || time.Since(start) != 5*time.Millisecond {
			t.Errorf("after %v completion %+v", time.Since(start), c)
		}
		if c := w.qa.scq.one(); c.counter != i2 {
			t.Errorf("completion %+v", c)
		}
	})
}

// A request lets those of other queue pairs go first.
func TestFaultBehind(t *testing.T) {
	fault(t, "request op=write: behind 2 at-most=1s", func(t *testing.T, w *two) {
		other := w.a.qp(rc, w.qa.scq, w.qa.rcq, qpOptions{})
		other.init(usual)
		other.join(other, usual)
		w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
		for range 3 {
			other.post(opNop, signaled, 0)
		}
		var order []uint32
		for _, c := range w.qa.scq.all() {
			order = append(order, c.qpn)
		}
		if len(order) != 4 || order[0] != other.qpn || order[1] != other.qpn || order[2] != w.qa.qpn || order[3] != other.qpn {
			t.Errorf("order of QPs %#x", order)
		}
	})
	fault(t, "request: behind 2", func(t *testing.T, w *two) {
		start := time.Now()
		w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
		if c := waitFor(w.qa.scq); c.opcode != 0 || time.Since(start) != 10*time.Millisecond {
			t.Errorf("after %v completion %+v", time.Since(start), c)
		}
	})
}

func TestFaultNotReady(t *testing.T) {
	fault(t, "request times=2: not-ready timer=10", func(t *testing.T, w *two) {
		start := time.Now()
		w.qb.recv()
		w.qa.post(opSend, signaled, 0)
		if c := waitFor(w.qa.scq); c.opcode != 0 || time.Since(start) != 2*320*time.Microsecond {
			t.Errorf("after %v completion %+v", time.Since(start), c)
		}
	})
	fault(t, "request times=forever: not-ready", func(t *testing.T, w *two) {
		w.qb.recv()
		w.qa.post(opSend, signaled, 0)
		if c := waitFor(w.qa.scq); c.syndrome != 0x16 {
			t.Errorf("completion %+v", c)
		}
	})
}

func TestFaultFail(t *testing.T) {
	fault(t, "request 3: fail syndrome=0x14 vendor=0xd8", func(t *testing.T, w *two) {
		for range 3 {
			w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
		}
		w.qa.scq.one()
		w.qa.scq.one()
		checkError(t, w.qa.scq, 13, w.qa.qpn, 2, 0x14, 0xd8)
		if w.qa.state() != stateErr || w.qb.state() != stateRTS {
			t.Errorf("states %d and %d", w.qa.state(), w.qb.state())
		}
	})
}

// Completions that are held back come in order.
func TestFaultHold(t *testing.T) {
	fault(t, "completion 2 device=sim0: hold 7ms", func(t *testing.T, w *two) {
		for range 4 {
			w.qa.post(opNop, signaled, 0)
		}
		w.qa.scq.one()
		w.qa.scq.none()
		start := time.Now()
		for i := range uint16(3) {
			if i == 0 {
				if c := waitFor(w.qa.scq); c.counter != 1 || time.Since(start) != 7*time.Millisecond {
					t.Errorf("after %v completion %+v", time.Since(start), c)
				}
			} else if c := w.qa.scq.one(); c.counter != i+1 {
				t.Errorf("completion %+v", c)
			}
		}
	})
	fault(t, "completion: hold", func(t *testing.T, w *two) {
		w.qa.post(opNop, signaled, 0)
		time.Sleep(time.Hour)
		w.qa.scq.none()
		w.m.Release()
		w.qa.scq.one()
	})
	// What follows does not come first, though the fault is no more.
	fault(t, "completion: hold", func(t *testing.T, w *two) {
		w.qa.post(opNop, signaled, 0)
		w.m.ClearFaults()
		w.qa.post(opNop, signaled, 0)
		w.qa.scq.none()
		w.m.Release()
		for i := range uint16(2) {
			if c := w.qa.scq.one(); c.counter != i {
				t.Errorf("completion %+v", c)
			}
		}
		w.qa.post(opNop, signaled, 0)
		w.qa.scq.one()
	})
	// A queue pair that is in RESET has no completion under way.
	fault(t, "completion: hold", func(t *testing.T, w *two) {
		w.qa.post(opNop, signaled, 0)
		w.qa.scq.none()
		w.qa.to(stateReset)
		w.qa.scq.one()
		w.m.Release()
		w.qa.scq.none()
	})
}

func TestFaultOverrun(t *testing.T) {
	fault(t, "completion 3: overrun", func(t *testing.T, w *two) {
		for range 3 {
			w.qa.post(opNop, signaled, 0)
		}
		if got := len(w.qa.scq.all()); got != 2 {
			t.Errorf("%d completions", got)
		}
		w.a.wantAsync(w.qa.scq.user, 0)
		w.a.wantAsync(w.qa.user, 1)
	})
}

func TestFaultEvents(t *testing.T) {
	complete := func(w *two) {
		w.qa.scq.arm(false)
		w.qa.post(opNop, signaled, 0)
	}
	fault(t, "event: lose", func(t *testing.T, w *two) {
		complete(w)
		if w.qa.scq.event() {
			t.Error("an event that was to be lost")
		}
		w.qa.scq.one()
		// The device thinks that it told: it takes another arm with the next serial number.
		w.qa.scq.serial++
		complete(w)
		if !w.qa.scq.event() {
			t.Error("the second event is missing")
		}
	})
	fault(t, "event: duplicate", func(t *testing.T, w *two) {
		complete(w)
		if !w.qa.scq.event() || !w.qa.scq.event() || w.qa.scq.event() {
			t.Error("not two events")
		}
	})
	fault(t, "event: delay 3ms", func(t *testing.T, w *two) {
		complete(w)
		start := time.Now()
		<-w.qa.scq.channel.Ready()
		if !w.qa.scq.event() || time.Since(start) != 3*time.Millisecond {
			t.Errorf("after %v", time.Since(start))
		}
	})
	fault(t, "async type=10: lose", func(t *testing.T, w *two) {
		w.a.must("down", w.a.d.SetPort(1, false))
		w.a.must("up", w.a.d.SetPort(1, true))
		w.a.wantAsync(1, 9)
	})
}

func TestFaultIoctl(t *testing.T) {
	fault(t, "ioctl 2 method=IB_USER_VERBS_CMD_ALLOC_PD: refuse ENOMEM\nioctl method=UVERBS_METHOD_CQ_CREATE: slow 1s", func(t *testing.T, w *two) {
		alloc := func() error {
			return ioctl(w.a.f, 0, 0, write(abi.IB_USER_VERBS_CMD_ALLOC_PD, core(make([]byte, 8)), coreOut(make([]byte, 4)), uhwOut(make([]byte, 4)))...)
		}
		wantErrno(t, "first", alloc(), 0)
		wantErrno(t, "second", alloc(), request.ENOMEM)
		wantErrno(t, "third", alloc(), 0)
		start := time.Now()
		w.a.cq(8, cqOptions{})
		if got := time.Since(start); got != time.Second {
			t.Errorf("the slow call took %v", got)
		}
	})
}

func TestFaultDevice(t *testing.T) {
	fault(t, "time 10ms device=sim1: port 1 down\ntime 20ms device=sim1: port 1 up\ntime 30ms device=sim1: gid 1 2 none\ntime 40ms device=sim1: fatal", func(t *testing.T, w *two) {
		want := []struct {
			after   time.Duration
			element uint64
			typ     uint32
		}{{10 * time.Millisecond, 1, 10}, {20 * time.Millisecond, 1, 9}, {30 * time.Millisecond, 1, 18}, {40 * time.Millisecond, 0, 8}}
		start := time.Now()
		for _, x := range want {
			<-w.b.async.Ready()
			w.b.wantAsync(x.element, x.typ)
			if got := time.Since(start); got != x.after {
				t.Errorf("event %d after %v, want %v", x.typ, got, x.after)
			}
		}
		// The device is gone.
		var b [16]byte
		if _, err := w.b.async.Read(b[:]); !errors.Is(err, request.EIO) {
			t.Errorf("async: %v", err)
		}
		wantErrno(t, "ioctl", ioctl(w.b.f, abi.UVERBS_OBJECT_PD, abi.UVERBS_METHOD_PD_DESTROY, object(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, w.b.pd)), request.EIO)
		if _, err := w.b.d.Open(model.Local{}, nil); !errors.Is(err, request.EIO) {
			t.Errorf("open: %v", err)
		}
		w.qb.post(opNop, signaled, 0)
		w.qb.scq.none()
	})
}

// Faults that are taken back do nothing any more.
func TestClearFaults(t *testing.T) {
	fault(t, "request times=forever: drop\ntime 1s device=sim0: fatal", func(t *testing.T, w *two) {
		w.m.ClearFaults()
		time.Sleep(time.Minute)
		checkSend(t, w.qa, opWrite, w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8)), 0)
	})
}

func TestInjectErrors(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"})
	for _, f := range []model.Fault{
		{},
		{At: 99, Do: model.Drop{}},
		{At: model.AtEvent, Do: model.Drop{}},
		{Do: model.Drop{}, Nth: -1},
		{Do: model.Drop{}, Times: -2},
		{Do: model.Drop{}, Device: "sim7"},
		{Do: model.Drop{}, Method: "x"},
		{Do: model.Delay{}},
		{Do: model.Behind{}},
		{Do: model.NotReady{Timer: 32}},
		{Do: model.Fail{}},
		{At: model.AtCompletion, Do: model.Hold{For: -1}},
		{At: model.AtIoctl, Do: model.Refuse{}},
		{At: model.AtIoctl, Do: model.Slow{}},
		{At: model.AtTime, Do: model.Fatal{}},
		{At: model.AtTime, Device: "sim0", Do: model.Port{Number: 2}},
		{At: model.AtTime, Device: "sim0", Do: model.ChangeGID{Port: 1, Index: 256}},
	} {
		if m.Inject(f) == nil {
			t.Errorf("%+v: no error", f)
		}
	}
	// A script with a wrong device injects nothing at all.
	if m.Script("request: drop\nrequest device=sim7: drop") == nil {
		t.Error("no error")
	}
}

// What no sound device does: a completion that is not written, and one that is twice.
func TestUnsoundCompletions(t *testing.T) {
	for script, want := range map[string][]int{"completion 2: lose": {0, 2}, "completion 2: duplicate": {0, 1, 1, 2}} {
		fault(t, script, func(t *testing.T, w *two) {
			var posted []uint16
			for range 3 {
				posted = append(posted, w.qa.post(opWrite, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8)))
			}
			got := w.qa.scq.all()
			if len(got) != len(want) {
				t.Fatalf("%s: completions %+v", script, got)
			}
			for i, c := range got {
				if c.opcode != 0 || c.counter != posted[want[i]] {
					t.Errorf("%s: completion %d is %+v, want that of request %d", script, i, c, want[i])
				}
			}
		})
	}
}
