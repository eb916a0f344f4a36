package model_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

const (
	scatterToCQE      = 2
	scatterToCQESends = 2 | 256
)

// Small payloads go into the CQE where the queue pair allows it, of 32 or 64 bytes.
func TestScatterToCQE(t *testing.T) {
	for _, c := range []struct {
		size, room uint32
		format     uint8
	}{{64, 32, 0x4}, {128, 64, 0x8}} {
		t.Run(fmt.Sprint(c.size), func(t *testing.T) {
			w := newTwo(t, rc, cqOptions{size: c.size}, qpOptions{flags: scatterToCQESends}, usual)
			for i := range w.ma.b[:64] {
				w.ma.b[i] = byte(i + 1)
				w.mb.b[256+i] = byte(i + 100)
			}
			payload := func(e cqe) []byte {
				if c.size == 64 {
					return e.raw[:e.bytes]
				}
				return e.before[:e.bytes]
			}
			w.qb.recv(sge(w.mb, 0, 128))
			w.qa.post(opSend, 0, 0, sge(w.ma, 0, int(c.room)))
			if e := w.qb.rcq.one(); e.format != c.format || !bytes.Equal(payload(e), w.ma.b[:c.room]) || w.mb.b[0] != 0 {
				t.Errorf("format %#x, payload %x; in memory %x", e.format, e.raw, w.mb.b[:8])
			}
			// One byte more goes to memory.
			w.qb.recv(sge(w.mb, 0, 128))
			w.qa.post(opSend, 0, 0, sge(w.ma, 0, int(c.room)+1))
			if e := w.qb.rcq.one(); e.format != 0 || !bytes.Equal(w.mb.b[:c.room+1], w.ma.b[:c.room+1]) {
				t.Errorf("format %#x; in memory %x", e.format, w.mb.b[:8])
			}
			// An RDMA WRITE with immediate has its payload elsewhere.
			w.qb.recv()
			w.qa.post(opWriteImm, 0, 5, raddr(w.mb, 512), sge(w.ma, 0, 8))
			if e := w.qb.rcq.one(); e.format != 0 || !bytes.Equal(w.mb.b[512:520], w.ma.b[:8]) {
				t.Errorf("format %#x", e.format)
			}
			// What reads and atomics bring.
			w.qa.post(opRead, signaled, 0, raddr(w.mb, 256), sge(w.ma, 4096, 10))
			if e := w.qa.scq.one(); e.format != c.format || !bytes.Equal(payload(e), w.mb.b[256:266]) || w.ma.b[4096] != 0 {
				t.Errorf("READ: format %#x, %x", e.format, e.raw)
			}
			w.qa.post(opFAA, signaled, 0, raddr(w.mb, 256), atomicOperands(0, 0), sge(w.ma, 4096, 8))
			if e := w.qa.scq.one(); e.format != c.format || !bytes.Equal(payload(e), w.mb.b[256:264]) {
				t.Errorf("FAA: format %#x, %x", e.format, e.raw)
			}
			// Without a completion there is no place in it.
			w.qa.post(opRead, 0, 0, raddr(w.mb, 256), sge(w.ma, 4096, 10))
			if !bytes.Equal(w.ma.b[4096:4106], w.mb.b[256:266]) {
				t.Error("an unsignalled READ is lost")
			}
			noViolations(t, w.m)
		})
	}
	// Sends need a flag of their own, or all of them signalled.
	w := newTwo(t, rc, cqOptions{}, qpOptions{flags: scatterToCQE}, usual)
	w.qa.post(opRead, signaled, 0, raddr(w.mb, 0), sge(w.ma, 0, 8))
	if e := w.qa.scq.one(); e.format != 0 {
		t.Errorf("format %#x", e.format)
	}
}

// The queue overruns when the ring is full: an event, no more completions, the queue
// pairs in error.
func TestOverrun(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	for range 32 {
		w.qa.post(opNop, signaled, 0)
	}
	w.qa.scq.one()
	w.qa.post(opNop, signaled, 0) // has the place of the one that was polled
	if w.qa.state() != stateRTS {
		t.Fatal("overrun too early")
	}
	w.qa.recv()
	w.qa.post(opNop, signaled, 0)
	w.a.wantAsync(w.qa.scq.user, 0)
	w.a.wantAsync(w.qa.user, 1)
	if w.qa.state() != stateErr {
		t.Errorf("state %d", w.qa.state())
	}
	if got := len(w.qa.scq.all()); got != 32 {
		t.Errorf("%d completions before the overrun", got)
	}
	// The other queue of the pair gets its flushes, the dead one nothing.
	checkError(t, w.qa.rcq, 14, w.qa.qpn, 0, 0x05, 0xf9)
	w.qa.post(opNop, signaled, 0)
	w.qa.scq.none()
}

func TestIgnoreOverrun(t *testing.T) {
	w := newTwo(t, rc, cqOptions{oi: true}, qpOptions{}, usual)
	for range 40 {
		w.qa.post(opNop, signaled, 0)
	}
	if w.qa.state() != stateRTS {
		t.Errorf("state %d", w.qa.state())
	}
	if c, ok := w.qa.scq.peek(39); !ok || c.counter != 39 {
		t.Errorf("completion %+v", c)
	}
}

func (q *ring) resize(n uint32) error {
	b := newRing(q.c.t, n, q.size)
	r := abi.UverbsResizeCQ{CQHandle: q.handle, CQE: n - 1}
	u := abi.MLX5IBResizeCQ{BufAddr: at(b), CQESize: uint16(q.size)}
	err := ioctl(q.c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_RESIZE_CQ, core(r.Bytes()), coreOut(make([]byte, 8)), uhw(u.Bytes()))...)
	if err != nil || n == q.n {
		return err
	}
	// Move over what was not polled, each one entry further, up to the one that says so.
	old := *q
	q.b, q.n = b, n
	for i := q.ci; ; i++ {
		c, ok := old.peek(i)
		if !ok {
			q.c.t.Fatalf("the old ring has no entry that ends it: index %d", i)
		}
		if c.opcode == 5 {
			break
		}
		e := b[(i+1)%n*q.size:][:q.size]
		copy(e, old.b[i%old.n*q.size:][:q.size])
		e[q.size-1] = e[q.size-1]&^1 | byte((i+1)/n&1)
	}
	q.ci++
	store(q.db, q.ci&0xffffff)
	return nil
}

func TestResize(t *testing.T) {
	for _, size := range []uint32{64, 128} {
		w := newTwo(t, rc, cqOptions{size: size}, qpOptions{}, usual)
		q := w.qa.scq
		next := uint16(0)
		post := func(n int) {
			for range n {
				w.qa.post(opNop, signaled, 0)
			}
		}
		take := func(n int) {
			t.Helper()
			for range n {
				if c := q.one(); c.counter != next {
					t.Fatalf("completion of %d, want %d", c.counter, next)
				}
				next++
			}
		}
		for round, n := range []uint32{64, 16, 128, 8, 32, 4, 64} {
			post(3)
			take(1)
			w.a.must(fmt.Sprintf("resize %d", round), q.resize(n))
			post(1)
			take(3)
			q.none()
			for range 3 * n {
				post(1)
				take(1)
			}
		}
		w.a.must("resize to the same", q.resize(64))
		post(20)
		wantErrno(t, "resize below what is there", q.resize(16), request.EINVAL)
		take(4)
		// Sixteen and the entry of the resize are one too many, fifteen are not.
		wantErrno(t, "resize to what is there", q.resize(16), request.EINVAL)
		take(1)
		w.a.must("resize to one more than is there", q.resize(16))
		take(15)
		post(16)
		wantErrno(t, "resize of a full ring", q.resize(64), request.EINVAL)
		take(16)
		noViolations(t, w.m)
	}
}

func (q *ring) moderate(count, period uint16) error {
	r := abi.UverbsExModifyCQ{CQHandle: q.handle, AttrMask: 1, Attr: abi.UverbsCQModeration{CQCount: count, CQPeriod: period}}
	return ioctl(q.c.f, 0, 0, write(abi.IB_USER_VERBS_CMD_FLAG_EXTENDED|abi.IB_USER_VERBS_EX_CMD_MODIFY_CQ, core(r.Bytes()))...)
}

// Events wait for enough completions, or for enough time.
func TestModeration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwo(t, rc, cqOptions{channel: true}, qpOptions{}, usual)
		q := w.qa.scq
		w.a.must("MODIFY_CQ", q.moderate(3, 100))
		wantErrno(t, "a long period", q.moderate(1, 0x1000), request.EINVAL)
		q.arm(false)
		for i := range 3 {
			if q.event() {
				t.Fatalf("an event after %d completions", i)
			}
			w.qa.post(opNop, signaled, 0)
		}
		if !q.event() {
			t.Fatal("no event after three completions")
		}
		q.all()
		q.arm(false)
		start := time.Now()
		w.qa.post(opNop, signaled, 0)
		<-q.channel.Ready()
		for !q.event() { // the value may be from before
			<-q.channel.Ready()
		}
		if got := time.Since(start); got != 100*time.Microsecond {
			t.Errorf("the event came after %v", got)
		}
		// The time counts from the first completion after an event: what was left of
		// the time before is gone.
		q.all()
		q.arm(false)
		w.qa.post(opNop, signaled, 0)
		time.Sleep(50 * time.Microsecond)
		w.qa.post(opNop, signaled, 0)
		w.qa.post(opNop, signaled, 0)
		if !q.event() {
			t.Fatal("no event after three completions")
		}
		q.all()
		q.arm(false)
		w.qa.post(opNop, signaled, 0)
		time.Sleep(60 * time.Microsecond)
		if q.event() {
			t.Error("an event from the time before")
		}
		time.Sleep(40 * time.Microsecond)
		synctest.Wait()
		if !q.event() {
			t.Error("no event after the time")
		}
		noViolations(t, w.m)
	})
}

// Time stamps are the device's clock, which the clock page translates.
func TestTimestamps(t *testing.T) {
	for _, khz := range []uint64{1_000_000, 156_250} {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, model.DeviceConfig{Name: "sim0", ClockKHz: khz})
			c := open(t, m, "sim0")
			page := pages(t, 4096)
			if _, err := c.f.Map(7<<8<<12, 4096, true); err == nil {
				t.Error("the clock page can be mapped for writing")
			}
			p, err := c.f.Map(7<<8<<12, 4096, false)
			c.must("map the clock page", err)
			c.must("place the clock page", p.Place(at(page)))
			q := c.qp(rc, c.cq(64, cqOptions{}), c.cq(64, cqOptions{}), qpOptions{})
			q.init(usual)
			q.join(q, usual)
			for _, pause := range []time.Duration{0, time.Second, time.Hour, 100 * 24 * time.Hour} {
				time.Sleep(pause)
				q.post(opNop, signaled, 0)
				var info abi.MLX5IBClockInfo
				copy(info.Bytes(), page)
				delta := (q.scq.one().stamp - info.Cycles) & info.Mask
				if delta > info.Mask/2 {
					t.Fatalf("after %v the page is %d cycles ahead", pause, -int64(delta))
				}
				ns := info.Nsec + (delta*uint64(info.Mult)+info.Frac)>>info.Shift
				if d := time.Now().UnixNano() - int64(ns); d < -100 || d > 100_000 {
					t.Errorf("after %v: the stamp is %d ns off", pause, d)
				}
				if info.Sign&1 != 0 {
					t.Error("the page says that it is being written")
				}
			}
			real := c.cq(64, cqOptions{realTime: true})
			r := c.qp(rc, real, real, qpOptions{})
			r.init(usual)
			r.join(r, usual)
			r.post(opNop, signaled, 0)
			if s, now := real.one().stamp, time.Now(); s != uint64(now.Unix())<<32|uint64(now.Nanosecond()) {
				t.Errorf("real time %#x, it is %v", s, now)
			}
			noViolations(t, m)
		})
	}
}

// expand reads completions of which some are compressed, as a program would.
func (q *ring) expand() (list []cqe) {
	for {
		c, ok := q.peek(q.ci)
		if !ok {
			return list
		}
		if c.format != 0xc {
			list = append(list, c)
			q.ci++
			continue
		}
		n, first := c.bytes, q.ci
		for i := range n {
			array := first + i/8*8
			if i < 8 {
				array = first + 1
			}
			mini := q.b[array%q.n*q.size+i%8*8:]
			e := c
			e.format, e.bytes, e.counter = 0, be.Uint32(mini[4:]), c.counter+uint16(i)
			list = append(list, e)
		}
		for i := range n {
			q.b[((first+i)%q.n+1)*q.size-1] = 0xf0
		}
		q.ci += n
		store(q.db, q.ci&0xffffff)
	}
}

func TestCompression(t *testing.T) {
	for _, batch := range []int{1, 2, 7, 8, 9, 16, 17} {
		w := newTwo(t, rc, cqOptions{compress: true}, qpOptions{blocks: 64, receives: 32, shift: 4}, usual)
		next := uint16(0)
		compressed := false
		for range 40 {
			var first uint64
			for i := range batch {
				w.qb.recv(sge(w.mb, 0, 4096))
				_, first = w.qa.put(opSend, 0, 0, sge(w.ma, 0, i+1))
			}
			w.qa.ring(first)
			if c, ok := w.qb.rcq.peek(w.qb.rcq.ci); ok && c.format == 0xc {
				compressed = true
			}
			got := w.qb.rcq.expand()
			if len(got) != batch {
				t.Fatalf("%d completions, want %d", len(got), batch)
			}
			for i, c := range got {
				if c.opcode != 2 || c.counter != next || c.bytes != uint32(i+1) || c.qpn != w.qb.qpn {
					t.Fatalf("batch %d: completion %d is %+v", batch, i, c)
				}
				next++
			}
		}
		if compressed != (batch > 1) {
			t.Errorf("batch %d: compressed %v", batch, compressed)
		}
		noViolations(t, w.m)
	}
}
