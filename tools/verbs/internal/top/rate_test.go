package top

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/top/trace"
)

func TestPerSecond(t *testing.T) {
	for _, c := range []struct {
		now, before uint64
		passed      time.Duration
		want        float64 // -1: unknown
	}{
		{100, 0, time.Second, 100}, {100, 100, time.Second, 0}, {100, 50, 100 * time.Millisecond, 500}, {99, 100, time.Second, -1},
		{100, 0, 0, -1}, {100, 0, -time.Second, -1}, {1<<64 - 1, 0, time.Second, 1 << 64}, {0, 1<<64 - 1, time.Second, -1},
	} {
		got := perSecond(c.now, c.before, c.passed)
		if got == nil && c.want != -1 || got != nil && *got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for _, c := range []struct {
		bits        int
		now, before uint32
		want        float64
	}{
		{24, 5, 1<<24 - 5, 10}, {24, 1<<24 - 5, 5, -1}, {24, 0, 0, 0}, {24, 1<<23 - 1, 0, 1<<23 - 1}, {24, 1 << 23, 0, -1},
		{24, 1<<32 - 1, 0, -1}, {32, 5, 1<<32 - 5, 10}, {32, 0, 5, -1},
	} {
		got := perSecondOf(c.bits, c.now, c.before, time.Second)
		if got == nil && c.want != -1 || got != nil && *got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// rates1 returns queue pair 17 and completion queue 1 of rxe0 after a
// change between two looks.
func rates1(t *testing.T, change func(w *world)) (q *QP, c *CQ) {
	t.Helper()
	w := newWorld().traced()
	col := w.collector()
	look(t, col)
	w.pass(time.Second)
	change(w)
	d := look(t, col).device("rxe0")
	for _, x := range d.QPs {
		if x.Num == 17 {
			q = x
		}
	}
	for _, x := range d.CQs {
		if x.ID == 1 {
			c = x
		}
	}
	return q, c
}

// What has the number of an object of before is not that object, when anything
// says otherwise, and has no rates.
func TestAnotherObject(t *testing.T) {
	q, c := rates1(t, func(*world) {})
	if deref(q.SendRate) != 400 || deref(q.RecvRate) != 40 || deref(c.EventRate) != 100 || deref(c.CQERate) != 1000 || deref(c.AtLeast) || c.Wake == nil {
		t.Fatalf("nothing changed: %+v, %+v", q, c)
	}
	for what, change := range map[string]func(w *world){
		"another peer":    func(w *world) { w.netlink.devices[0].qps[1].Remote++ },
		"another thread":  func(w *world) { w.netlink.devices[0].qps[1].TID = 105 },
		"reset":           func(w *world) { w.netlink.devices[0].qps[1].State = 0 },
		"another process": func(w *world) { w.netlink.devices[0].qps[1].TID = 113 },
		"psn goes back":   func(w *world) { x := &w.netlink.devices[0].qps[1]; x.SendPSN, x.RecvPSN = 1<<24-200, 100 },
	} {
		if q, _ := rates1(t, change); q.SendRate != nil || q.RecvRate != nil {
			t.Errorf("%s: %v, %v", what, q.SendRate, q.RecvRate)
		}
	}
	id := trace.CQID{DeviceIndex: 0, ResID: 1}
	for what, change := range map[string]func(q *trace.CQ){
		"another handle": func(q *trace.CQ) { q.User.Handle++ },
	} {
		if _, c := rates1(t, func(w *world) { q := w.tracer.cqs[id]; change(&q); w.tracer.cqs[id] = q }); c.EventRate != nil || c.CQERate != nil || c.ErrorRate != nil || c.Wake != nil {
			t.Errorf("%s: %+v", what, c)
		}
	}
	if _, c := rates1(t, func(w *world) { w.netlink.devices[0].cqs[1].TID = 113 }); c.EventRate != nil || c.CQERate != nil {
		t.Errorf("another owner: %+v", c)
	}
	if _, c := rates1(t, func(w *world) { q := w.tracer.cqs[id]; e := uint64(3); q.Errors = &e; w.tracer.cqs[id] = q }); c.ErrorRate != nil || deref(c.Errors) != 3 {
		t.Errorf("errors went back: %+v", c)
	}
	if _, c := rates1(t, func(w *world) { delete(w.tracer.cqs, id) }); c.Occupied != nil || c.EventRate != nil {
		t.Errorf("the probe missed it: %+v", c)
	}
	// Without the level that counts each completion there is a lower limit.
	if _, c := rates1(t, func(w *world) {
		q := w.tracer.cqs[id]
		q.Posts = nil
		q.Ring = &trace.Ring{Usable: 127, Produced: 72}
		w.tracer.cqs[id] = q
	}); deref(c.CQERate) != 100 || !deref(c.AtLeast) { // from 100 to 72 of 128
		t.Errorf("by the ring: %v, %v", deref(c.CQERate), c.AtLeast)
	}
	for _, r := range []*trace.Ring{{Usable: 63, Produced: 1}, {Usable: 1<<32 - 1}, {Usable: 127, Produced: 1<<32 - 1, Occupied: 1<<32 - 1}, {}} {
		_, c := rates1(t, func(w *world) { q := w.tracer.cqs[id]; q.Posts, q.Ring = nil, r; w.tracer.cqs[id] = q })
		if v := deref(c.CQERate); v < 0 || v > 127 {
			t.Errorf("%+v gives %v", r, v)
		}
	}
}

// The high-water mark is of one queue: the next with its number begins anew, and
// so does one that was not there for a look.
func TestHighWater(t *testing.T) {
	w := newWorld().traced()
	c := w.collector()
	id := trace.CQID{DeviceIndex: 0, ResID: 2}
	for _, step := range []struct {
		handle   uint64
		occupied uint32
		gone     bool
		want     uint32
	}{{1, 80, false, 80}, {1, 10, false, 80}, {1, 100, false, 100}, {2, 5, false, 5}, {2, 0, true, 0}, {2, 3, false, 3}} {
		w.tracer.cqs[id] = trace.CQ{User: &trace.UserCQ{Handle: step.handle}, Ring: &trace.Ring{Occupied: step.occupied, Usable: 511}}
		if step.gone {
			delete(w.tracer.cqs, id)
		}
		w.time = w.time.Add(time.Second)
		if q := look(t, c).device("rxe0").CQs[2]; deref(q.HighWater) != step.want || !step.gone && deref(q.Exact) {
			t.Errorf("%+v: %+v", step, q)
		}
	}
}

func TestWake(t *testing.T) {
	var before, now trace.Latency
	if w := wake(now, before); w != nil {
		t.Errorf("nothing was measured: %+v", w)
	}
	before = trace.Latency{N: 10, Total: time.Second, Max: time.Second, Log2: [32]uint64{29: 10}}
	now = trace.Latency{N: 110, Total: time.Second + 100*10*time.Microsecond, Max: time.Second, Log2: [32]uint64{29: 10, 12: 50, 13: 49, 31: 1}}
	w := wake(now, before)
	if w.N != 100 || w.AvgUsec != 10 || w.P50Usec != 8.192 || w.P99Usec != 16.384 || w.MaxUsec != 1e6 {
		t.Errorf("%+v", w)
	}
	// Counts that contradict each other have no quantiles beyond the maximum.
	if w := wake(trace.Latency{N: 5, Max: time.Microsecond}, trace.Latency{}); w.P50Usec != 1 || w.P99Usec != 1 {
		t.Errorf("%+v", w)
	}
	if w := wake(before, now); w != nil {
		t.Errorf("backwards: %+v", w)
	}
}
