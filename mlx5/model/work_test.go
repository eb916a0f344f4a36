package model_test

import (
	"sync"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
)

// The device allocates nothing for the requests that it carries.
func TestWorkAllocatesNothing(t *testing.T) {
	w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, usual)
	receive := sge(w.mb, 0, 64)
	data, remote, operands := sge(w.ma, 0, 8), raddr(w.mb, 128), atomicOperands(1, 2)
	word := make([]byte, 1024)
	post := func(op, flags uint8, segments ...[]byte) {
		b := word[:16]
		index := w.qa.pi
		ds := 1
		for _, s := range segments {
			b = append(b, s...)
			ds += len(s) / 16
		}
		clear(b[8:16])
		be.PutUint32(b, uint32(index)<<8|uint32(op))
		be.PutUint32(b[4:], w.qa.qpn<<8|uint32(ds))
		b[11] = flags
		w.qa.ring(w.qa.raw(b))
	}
	take := func(q *ring) {
		q.ci++
		store(q.db, q.ci&0xffffff)
	}
	var event [8]byte
	got := testing.AllocsPerRun(100, func() {
		w.qb.rcq.arm(false)
		w.qb.recv(receive)
		post(opSend, signaled, data)
		post(opWrite, signaled, remote, data)
		post(opRead, signaled, remote, data)
		post(opFAA, signaled, remote, operands, data)
		for range 4 {
			take(w.qa.scq)
		}
		take(w.qb.rcq)
		if _, err := w.qb.rcq.channel.Read(event[:]); err != nil {
			t.Fatal(err)
		}
		w.qb.rcq.serial++
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
	noViolations(t, w.m)
}

// Many programs at once: every completion comes once and in order.
func TestConcurrentPrograms(t *testing.T) {
	const programs, rounds = 6, 200
	m := newModel(t, model.DeviceConfig{Name: "sim0"}, model.DeviceConfig{Name: "sim1"})
	var pairs [programs]*two
	for i := range pairs {
		w := &two{m: m, a: open(t, m, "sim0"), b: open(t, m, "sim1")}
		w.qa = w.a.qp(rc, w.a.cq(32, cqOptions{channel: true}), w.a.cq(64, cqOptions{}), qpOptions{})
		w.qb = w.b.qp(rc, w.b.cq(32, cqOptions{}), w.b.cq(64, cqOptions{}), qpOptions{})
		w.ma, w.mb = w.a.mr(4096, allAccess), w.b.mr(4096, allAccess)
		connect(w.qa, w.qb, usual)
		pairs[i] = w
	}
	var wg sync.WaitGroup
	for _, w := range pairs {
		wg.Go(func() {
			for n := range uint32(rounds) {
				r := w.qb.recv(sge(w.mb, 0, 64))
				w.qa.scq.arm(false)
				i := w.qa.post(opSendImm, signaled, n, sge(w.ma, 0, 8))
				<-w.qa.scq.channel.Ready()
				if !w.qa.scq.event() {
					t.Error("no event")
					return
				}
				if c, ok := w.qa.scq.poll(); !ok || c.counter != i {
					t.Errorf("completion %+v, %v", c, ok)
					return
				}
				if c, ok := w.qb.rcq.poll(); !ok || c.counter != r || c.imm != n {
					t.Errorf("completion %+v, %v", c, ok)
					return
				}
			}
		})
	}
	wg.Wait()
	noViolations(t, m)
}

func BenchmarkSend(b *testing.B) {
	w := newTwo(b, rc, cqOptions{}, qpOptions{}, usual)
	receive, data := sge(w.mb, 0, 64), sge(w.ma, 0, 8)
	b.ReportAllocs()
	for b.Loop() {
		w.qb.recv(receive)
		w.qa.post(opSend, signaled, 0, data)
		for _, q := range []*ring{w.qa.scq, w.qb.rcq} {
			q.ci++
			store(q.db, q.ci&0xffffff)
		}
	}
}
