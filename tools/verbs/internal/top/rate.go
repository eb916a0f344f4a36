package top

import (
	"math"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/tools/verbs/internal/top/trace"
)

// statusName is the name of a completion status. The last number that the
// tracer tells apart stands for all others too.
func statusName(status int) string {
	if status == len(trace.Posts{}.ByStatus)-1 {
		return "other"
	}
	return cq.Status(status).String()
}

// psnBits is the width of a packet sequence number.
const psnBits = 24

// perSecond is how fast a counter grew; nil where it went backwards, or no
// time did pass.
func perSecond(now, before uint64, passed time.Duration) *float64 {
	if passed <= 0 || now < before {
		return nil
	}
	r := float64(now-before) / passed.Seconds()
	return &r
}

// perSecondOf is that of a counter with so many bits. What would be more than
// half of its range is taken for a step back.
func perSecondOf(bits int, now, before uint32, passed time.Duration) *float64 {
	d := (now - before) & (1<<bits - 1)
	if d >= 1<<(bits-1) {
		return nil
	}
	return perSecond(uint64(d), 0, passed)
}

// rates fills in what two looks say together. Objects are the same in both
// where their numbers and their owners are.
func rates(now, before *Look) {
	old := make(map[uint32]*Device)
	for _, d := range before.Devices {
		old[d.Index] = d
	}
	for _, d := range now.Devices {
		if o := old[d.Index]; o != nil {
			portRates(d, o)
			qpRates(d, o)
			cqRates(d, o)
		}
	}
	was := make(map[callKey]*Call)
	for _, c := range before.Calls {
		was[c.key] = c
	}
	passed := now.Time.Sub(before.Time)
	for _, c := range now.Calls {
		count := uint64(0) // a method that nobody had called
		if o := was[c.key]; o != nil {
			count = o.Count
		}
		c.Rate = perSecond(c.Count, count, passed)
	}
}

func portRates(d, old *Device) {
	type key struct {
		port         uint32
		source, name string
	}
	was := make(map[key]*Counter)
	at := make(map[uint32]time.Time)
	for _, p := range old.Ports {
		at[p.Port] = p.at
		for _, c := range p.Counters {
			was[key{p.Port, c.Source, c.Name}] = c
		}
	}
	for _, p := range d.Ports {
		for _, c := range p.Counters {
			if o := was[key{p.Port, c.Source, c.Name}]; o != nil {
				c.Rate = perSecond(c.Value, o.Value, p.at.Sub(at[p.Port]))
			}
		}
	}
}

// sameOwner says whether two objects with the same number are one. The thread
// that made an object may end between two looks.
func sameOwner(a, b Owner) bool {
	return a.Kernel == b.Kernel && deref(a.PID) == deref(b.PID) && (a.Thread == nil || b.Thread == nil || *a.Thread == *b.Thread)
}

func qpRates(d, old *Device) {
	was := make(map[uint32]*QP, len(old.QPs))
	for _, q := range old.QPs {
		was[q.Num] = q
	}
	passed := d.qpsAt.Sub(old.qpsAt)
	for _, q := range d.QPs {
		o := was[q.Num]
		if o == nil || !q.connected || !o.connected || *q.Remote != *o.Remote || !sameOwner(q.Owner, o.Owner) {
			continue
		}
		q.SendRate = perSecondOf(psnBits, q.SendPSN, o.SendPSN, passed)
		q.RecvRate = perSecondOf(psnBits, q.RecvPSN, o.RecvPSN, passed)
	}
}

func cqRates(d, old *Device) {
	was := make(map[uint32]*CQ, len(old.CQs))
	for _, q := range old.CQs {
		was[q.ID] = q
	}
	for _, q := range d.CQs {
		if o := was[q.ID]; o != nil && sameOwner(q.Owner, o.Owner) && q.seen != nil && o.seen != nil {
			q.rates(o)
		}
	}
}

func (q *CQ) rates(old *CQ) {
	s, o := q.seen, old.seen
	passed := s.at.Sub(o.at)
	if s.User != nil && o.User != nil {
		if s.User.Handle != o.User.Handle {
			return // another queue with the same number
		}
		q.EventRate = perSecondOf(32, s.User.EventsRead, o.User.EventsRead, passed)
	}
	if s.Errors != nil && o.Errors != nil {
		q.ErrorRate = perSecond(*s.Errors, *o.Errors, passed)
	}
	yes, no := true, false
	switch {
	case s.Posts != nil && o.Posts != nil:
		q.CQERate, q.AtLeast = perSecond(s.Posts.CQEs, o.Posts.CQEs, passed), &no
	case s.Ring != nil && o.Ring != nil && s.Ring.Usable == o.Ring.Usable && s.Ring.Usable < math.MaxUint32:
		slots := uint64(s.Ring.Usable) + 1
		moved := (uint64(s.Ring.Produced) + slots - uint64(o.Ring.Produced)%slots) % slots
		q.CQERate, q.AtLeast = perSecond(moved, 0, passed), &yes
	}
	if s.Events != nil && o.Events != nil {
		q.Wake = wake(s.Events.Wake, o.Events.Wake)
	}
}

// wake is what was measured between two looks.
func wake(now, before trace.Latency) *Wake {
	if now.N <= before.N || now.Total < before.Total {
		return nil
	}
	n := now.N - before.N
	w := &Wake{N: n, AvgUsec: usec(now.Total-before.Total) / float64(n), MaxUsec: usec(now.Max)}
	limit := func(share float64) float64 {
		counted := uint64(0)
		for i := range now.Log2 {
			if now.Log2[i] > before.Log2[i] {
				counted += now.Log2[i] - before.Log2[i]
			}
			if float64(counted) >= share*float64(n) {
				return min(usec(1<<(i+1)), w.MaxUsec)
			}
		}
		return w.MaxUsec
	}
	w.P50Usec, w.P99Usec = limit(0.5), limit(0.99)
	return w
}

// sumRates adds the rates of the objects to their owners.
func sumRates(l *Look) {
	type key struct {
		pid    uint32
		kernel string
	}
	of := make(map[key]*Process)
	for _, p := range l.Processes {
		of[key{deref(p.PID), p.Kernel}] = p
	}
	add := func(to **float64, r *float64) {
		if r == nil {
			return
		}
		sum := deref(*to) + *r
		*to = &sum
	}
	for _, d := range l.Devices {
		for _, q := range d.QPs {
			p := of[key{deref(q.PID), q.Kernel}]
			add(&p.SendRate, q.SendRate)
			add(&p.RecvRate, q.RecvRate)
		}
		for _, q := range d.CQs {
			p := of[key{deref(q.PID), q.Kernel}]
			add(&p.EventRate, q.EventRate)
			add(&p.CQERate, q.CQERate)
			if q.CQERate != nil {
				least := deref(p.AtLeast) || deref(q.AtLeast)
				p.AtLeast = &least
			}
		}
	}
}
