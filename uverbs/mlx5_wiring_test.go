package uverbs_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// wired is a ConnectX in software. What a program did that a correct one does not do
// fails the test.
func wired(t testing.TB, config model.DeviceConfig) (*sim.Fabric, *uverbs.Device) {
	t.Helper()
	config.Name = "sim0"
	f, err := sim.New(&sim.Options{Devices: []model.DeviceConfig{config}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Open("sim0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
		for _, v := range f.Model().Violations() {
			t.Errorf("the device saw what no correct program does: %s", v)
		}
	})
	return f, d
}

// A device in software is told where in the page a BlueFlame register was written, of
// whose halves one after the other is, and what stands there.
func TestWiringBlueFlameHalves(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false) // they have the registers of one page
	if _, err := p.pd.NewQP(uverbs.UD, &uverbs.QPOptions{CQ: p.q}); err != nil {
		t.Fatal(err)
	}
	var told []uverbs.Told
	offset, size := d.WatchRegisters(func(w uverbs.Told) { told = append(told, w) })
	ud, err := p.pd.NewQP(uverbs.UD, &uverbs.QPOptions{CQ: p.q})
	if err != nil {
		t.Fatal(err)
	}
	ah, err := p.pd.NewAH(ud.Endpoint(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rings := 0
	for _, n := range []int{1, 2, 1, 1, 3} {
		for i := range n {
			ud.SendQueue().SendTo(uint64(i), uverbs.Dest{AH: ah, QPN: ud.QPN()}, p.mr.Span(0, 8))
		}
		if err := ud.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		p.wait(t, n)
		if rings++; len(told) != rings {
			t.Fatalf("told %d times of %d doorbells", len(told), rings)
		}
		w := told[rings-1]
		if want := offset + (rings-1)%2*size/2; w.Offset != want || binary.BigEndian.Uint64(w.Stored) != w.Value {
			t.Errorf("doorbell %d: told of %#x at %#x, where %x is, want it at %#x", rings, w.Value, w.Offset, w.Stored, want)
		}
	}
}

// A register has one queue pair at a time, few have one, and it comes back.
func TestWiringRegistersAreOwn(t *testing.T) {
	f, d := wired(t, model.DeviceConfig{})
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	q, err := d.NewCQ(1024, nil)
	if err != nil {
		t.Fatal(err)
	}
	const own, pages = 16, 8
	make1 := func() *uverbs.QP {
		qp, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SendDepth: 1, RecvDepth: 1})
		if err != nil {
			t.Fatal(err)
		}
		return qp
	}
	uars := func() int { return f.Model().Device("sim0").Objects()["UAR"] - 1 } // without the shared one
	for range 3 * own {
		qp := make1()
		if qp.Register() == nil {
			t.Fatal("a queue pair has no register of its own, although the others are closed")
		}
		if err := qp.Close(); err != nil {
			t.Fatal(err)
		}
		qp = nil
		uverbs.Collect()
	}
	if n := uars(); n >= pages {
		t.Errorf("%d pages of registers for one queue pair at a time", n)
	}
	var all []*uverbs.QP
	seen := map[any]int{}
	for i := range own + 8 {
		qp := make1()
		all = append(all, qp)
		r := qp.Register()
		if have := r != nil; have != (i < own) {
			t.Errorf("queue pair %d has a register of its own: %v", i, have)
		}
		if other, ok := seen[r]; ok && r != nil {
			t.Errorf("queue pairs %d and %d ring at one register for BlueFlame", other, i)
		}
		seen[r] = i
	}
	if n := uars(); n != pages {
		t.Errorf("%d pages of registers for %d queue pairs", n, len(all))
	}
}

// Doorbell records come back, and stand on cache lines of their own.
func TestWiringRecords(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	make1 := func() *uverbs.CQ {
		q, err := d.NewCQ(1, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	a, b := make1(), make1()
	if x, y := a.RecordAt(), b.RecordAt(); max(x, y)-min(x, y) < 64 {
		t.Errorf("records at %#x and %#x are on one cache line", x, y)
	}
	for range 20 {
		for range 10 {
			if err := make1().Close(); err != nil {
				t.Fatal(err)
			}
		}
		uverbs.Collect()
	}
	if n := d.RecordPages(); n != 1 {
		t.Errorf("%d pages of records for a dozen at a time", n)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
}

// What the kernel refuses to destroy goes on: its memory stays as it was until the device
// is closed, and nobody else gets its doorbell record or register.
func TestWiringNotDestroyed(t *testing.T) {
	f, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	const depth = 4
	var records []uintptr
	var register any
	var to uverbs.Endpoint
	var from *uverbs.QP
	func() { // so that nothing of it is on the stack afterwards
		q, err := d.NewCQ(2*depth, nil)
		if err != nil {
			t.Fatal(err)
		}
		other, err := p.pd.NewQP(uverbs.RC, &uverbs.QPOptions{SendCQ: p.q, RecvCQ: q, SendDepth: depth, RecvDepth: depth})
		if err != nil {
			t.Fatal(err)
		}
		if from, err = p.pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: p.q}); err != nil {
			t.Fatal(err)
		}
		to = other.Endpoint()
		if err := errors.Join(from.Connect(t.Context(), to, nil), other.Connect(t.Context(), from.Endpoint(), nil)); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(depth) {
			other.RecvQueue().Recv(i, p.mr.Span(4096+64*int(i), 64))
		}
		if err := other.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		records, register = []uintptr{q.RecordAt(), other.RecordAt()}, other.Register()
		inject(t, f, "ioctl times=forever method=UVERBS_METHOD_QP_DESTROY: refuse EBUSY\nioctl times=forever method=UVERBS_METHOD_CQ_DESTROY: refuse EBUSY")
		for _, c := range []interface{ Close() error }{other, q} {
			if err := c.Close(); !errors.Is(err, syscall.EBUSY) {
				t.Fatalf("Close: %v", err)
			}
		}
		f.Model().ClearFaults()
	}()
	for range 5 {
		uverbs.Collect()
		time.Sleep(time.Millisecond)
	}
	q, err := d.NewCQ(256, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // more than registers; where they complete none has the index of that one
		qp, err := p.pd.NewQP(uverbs.RC, &uverbs.QPOptions{SendCQ: p.q, RecvCQ: q, SendDepth: 1, RecvDepth: 1})
		if err != nil {
			t.Fatal(err)
		}
		if r := qp.Register(); r != nil && r == register {
			t.Error("a queue pair has the register of one that the kernel did not destroy")
		}
		for _, at := range []uintptr{q.RecordAt(), qp.RecordAt()} {
			if at == records[0] || at == records[1] {
				t.Errorf("a queue has the doorbell record at %#x, of one that the kernel did not destroy", at)
			}
		}
	}
	copy(p.mem.Bytes(), "the device knows nothing of Close")
	for i := range depth {
		from.SendQueue().Send(uint64(i), p.mr.Span(0, 33))
		if err := from.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		if w := p.wait(t, 1)[0]; w.Err() != nil {
			t.Fatalf("a send to the queue pair: %+v", w)
		}
		if !bytes.Equal(p.mem.Bytes()[4096+64*i:][:33], p.mem.Bytes()[:33]) {
			t.Fatalf("message %d did not arrive", i)
		}
	}
	if err := d.Close(); !errors.Is(err, syscall.EBUSY) { // what stays goes with the file
		t.Errorf("Close of the device: %v", err)
	}
}

// A packet of RoCE v2 has a UDP port, and one of v1 has none.
func TestWiringUDPPort(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	q, err := d.NewCQ(256, nil)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := uverbs.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.Register(mem.Bytes(), uverbs.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	table, err := d.GIDTable()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uverbs.GIDType]bool{}
	for _, e := range table {
		seen[e.Type] = true
		source := uverbs.FromGID(e.Port, e.Index)
		qp, err := pd.NewQP(uverbs.UD, &uverbs.QPOptions{CQ: q, Source: source})
		if err != nil {
			t.Fatal(err)
		}
		ah, err := pd.NewAH(qp.Endpoint(), &uverbs.AHOptions{Source: source, ServiceLevel: 5})
		if err != nil {
			t.Fatal(err)
		}
		qp.SendQueue().SendTo(1, uverbs.Dest{AH: ah, QPN: qp.QPN()}, mr.Span(0, 8))
		if err := qp.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		const vector = 16 // where the address vector begins
		port := binary.BigEndian.Uint16(qp.SendRing()[vector+14:])
		if want := e.Type == uverbs.GIDTypeRoCEv2; want != (port >= 0xc000) || want != (port != 0) {
			t.Errorf("%v: UDP port %#x", e.Type, port)
		}
		if sl := qp.SendRing()[vector+12] >> 1 & 7; sl != 5 {
			t.Errorf("service level %d, want 5", sl)
		}
	}
	if !seen[uverbs.GIDTypeRoCEv1] || !seen[uverbs.GIDTypeRoCEv2] {
		t.Errorf("GID types %v", seen)
	}
}

// The kernel makes an SRQ of as many elements as there is memory for, and no more.
func TestWiringSharedDepth(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	for _, depth := range []int{1, 2, 3, 4, 7, 8, 15, 16, 17, 100} {
		s, err := pd.NewSRQ(&uverbs.SRQOptions{Depth: depth})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := s.KernelDepth(); err != nil || n != s.ReservedDepth() {
			t.Errorf("depth %d: the kernel's has %d, %v, and memory for %d", depth, n, err, s.ReservedDepth())
		}
	}
}

// The memory of the ring that a queue has after a resize stays, with nobody else to hold
// it.
func TestWiringResizeHoldsMemory(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	for round, depth := range []int{500, 900, 200, 2000} {
		if err := p.q.ResizeOwned(depth); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			uverbs.Collect()
			time.Sleep(time.Millisecond)
		}
		for i := range 20 {
			p.a.SendQueue().Write(uint64(i), p.peer.Regions[0].At(0), p.mr.Span(4096, 8))
			if err := p.a.SendQueue().Flush(); err != nil {
				t.Fatal(err)
			}
			if w := p.wait(t, 1)[0]; w.Err() != nil || w.ID != uint64(i) {
				t.Fatalf("round %d: %+v", round, w)
			}
		}
	}
}

// shared is two queues on a channel.
func shared(t *testing.T, d *uverbs.Device) (a, b *uverbs.CQ) {
	t.Helper()
	c, err := d.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	if a, err = d.NewCQ(64, &uverbs.CQOptions{Channel: c}); err != nil {
		t.Fatal(err)
	}
	if b, err = d.NewCQ(64, &uverbs.CQOptions{Channel: c}); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// A waiter that leaves a channel is forgotten, and those that stay are not.
func TestWiringWaiters(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	a, b := shared(t, d)
	woken := make(chan struct{}, 16)
	_, leaveA, err := a.Attach(func() { t.Error("a waiter that has left was woken") })
	if err != nil {
		t.Fatal(err)
	}
	_, leaveB, err := b.Attach(func() { woken <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	leaveA()
	if n := b.Waiters(); n != 1 {
		t.Errorf("%d waiters, want 1", n)
	}
	loop := loopOn(t, p, b)
	if err := b.Arm(false); err != nil {
		t.Fatal(err)
	}
	loop(1)
	select {
	case <-woken:
	case <-time.After(patience):
		t.Error("the waiter that stayed was not woken")
	}
	leaveB()
	if n := b.Waiters(); n != 0 {
		t.Errorf("%d waiters, want none", n)
	}
	if _, leave, err := a.Attach(func() {}); err != nil {
		t.Errorf("attached again: %v", err)
	} else {
		leave()
	}
}

// loopOn makes a queue pair that is connected to itself and completes on q. What it
// returns writes to itself, and returns once that is carried out; quietly, the completion
// is not a solicited one.
func loopOn(t *testing.T, p *pair, q *uverbs.CQ) func(id uint64) {
	t.Helper()
	qp, err := p.pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q})
	if err != nil {
		t.Fatal(err)
	}
	if err := qp.Connect(t.Context(), qp.Endpoint(), nil); err != nil {
		t.Fatal(err)
	}
	return func(id uint64) {
		t.Helper()
		qp.SendQueue().Write(id, p.mr.Remote().At(0), p.mr.Span(4096, 8))
		if err := qp.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

func poll1(t *testing.T, q *uverbs.CQ, id uint64) {
	t.Helper()
	var wcs [2]uverbs.WC
	for end := time.Now().Add(patience); ; time.Sleep(time.Microsecond) {
		n, err := q.Poll(wcs[:])
		if err != nil || n > 1 || n == 1 && (wcs[0].ID != id || wcs[0].Err() != nil) {
			t.Fatalf("Poll: %d, %v, %+v", n, err, wcs[0])
		}
		if n == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no completion")
		}
	}
}

func taken(t *testing.T, q *uverbs.CQ, want bool, when string) {
	t.Helper()
	if ok, err := q.TakeEvent(); ok != want || err != nil {
		t.Errorf("event %s: %v, %v, want %v", when, ok, err, want)
	}
}

// An event counts for the queue that it is of, whoever takes it: the device has answered
// the arm, and the next one may ask for less.
func TestWiringEventsAreCounted(t *testing.T) {
	for _, byOther := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, d := wired(t, model.DeviceConfig{})
			p := newPairOn(t, d, false)
			a, b := shared(t, d)
			write := loopOn(t, p, a)
			for i := range uint64(3) {
				// It finds a completion, which alone does not tell that the arm is answered.
				write(2 * i)
				synctest.Wait()
				time.Sleep(time.Millisecond)
				if err := a.Arm(false); err != nil {
					t.Fatal(err)
				}
				if byOther {
					taken(t, b, false, "of the other queue")
				}
				taken(t, a, true, "of an arm for any completion")
				poll1(t, a, 2*i)
				if err := a.Arm(true); err != nil {
					t.Fatal(err)
				}
				write(2*i + 1)
				time.Sleep(time.Millisecond)
				poll1(t, a, 2*i+1)
				taken(t, a, false, "of an unsolicited completion, with an arm for solicited ones")
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Under moderation completions come that the device has told nobody of. They are not
// taken for answers, or arms are numbered wrongly and whoever sleeps then sleeps on.
func TestWiringModeration(t *testing.T) {
	for ahead := range 9 {
		synctest.Test(t, func(t *testing.T) {
			_, d := wired(t, model.DeviceConfig{})
			p := newPairOn(t, d, false)
			q, err := d.NewCQ(64, &uverbs.CQOptions{Events: true})
			if err != nil {
				t.Fatal(err)
			}
			write := loopOn(t, p, q)
			if err := q.Moderate(100, time.Millisecond); err != nil {
				t.Fatal(err)
			}
			arm := func() {
				t.Helper()
				if err := q.Arm(false); err != nil {
					t.Fatal(err)
				}
			}
			id := uint64(0)
			one := func() {
				t.Helper()
				write(id)
				poll1(t, q, id)
				id++
			}
			for round := range 5 {
				arm()
				for range ahead {
					one()
					arm()
				}
				one()
				time.Sleep(2 * time.Millisecond)
				taken(t, q, true, "after the period")
				arm()
				one()
				time.Sleep(2 * time.Millisecond)
				if taken(t, q, true, "of an arm after an event"); t.Failed() {
					t.Fatalf("%d completions ahead, round %d", ahead, round)
				}
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A resize that the kernel refuses leaves what is in the ring, and the ring.
func TestWiringResizeRefused(t *testing.T) {
	f, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	for i := range 10 {
		p.a.SendQueue().Write(uint64(i), p.peer.Regions[0].At(0), p.mr.Span(4096, 8))
	}
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	inject(t, f, "ioctl method=IB_USER_VERBS_CMD_RESIZE_CQ: refuse ENOMEM")
	if err := p.q.ResizeOwned(1000); !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("resize: %v", err)
	}
	uverbs.Collect()
	for i, w := range p.wait(t, 10) {
		if w.Err() != nil || w.ID != uint64(i) {
			t.Fatalf("%d: %+v", i, w)
		}
	}
}

// Numbers of address handles come back.
func TestWiringVectors(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	for range 50 {
		ah, err := p.pd.NewAH(p.a.Endpoint(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := ah.Number(); n != 1 {
			t.Fatalf("the only address handle has number %d", n)
		}
		if err := ah.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Where the kernel has no UAR objects to give, a context of the older kind does.
func TestWiringOlderContext(t *testing.T) {
	f, err := sim.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	inject(t, f, "ioctl method=MLX5_IB_METHOD_UAR_OBJ_ALLOC: refuse ENOMEM")
	d, err := f.Open("sim0", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := newPairOn(t, d, false)
	for range 5 {
		p.write1(t)
		if w := p.wait(t, 1)[0]; w.Err() != nil {
			t.Fatalf("%+v", w)
		}
	}
	if n := f.Model().Device("sim0").Objects()["UAR"]; n != 0 {
		t.Errorf("%d UAR objects of an older context", n)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A device whose completions carry no user index is refused.
func TestWiringCQEVersion(t *testing.T) {
	f, err := sim.New(&sim.Options{Devices: []model.DeviceConfig{{Name: "sim0", CQEVersion0: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := f.Open("sim0", nil); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("Open: %v, %v", d, err)
	}
}

// Closing gives every page of registers back, not the file alone.
func TestWiringCloseDestroysPages(t *testing.T) {
	f, d := wired(t, model.DeviceConfig{})
	newPairOn(t, d, false)
	pages := f.Model().Device("sim0").Objects()["UAR"]
	inject(t, f, "ioctl times=forever method=MLX5_IB_METHOD_UAR_OBJ_DESTROY: refuse EBUSY")
	err := d.Close()
	if err == nil || strings.Count(err.Error(), "destroy UAR") != pages || pages < 2 {
		t.Errorf("Close with %d pages: %v", pages, err)
	}
}

// Without memory, and where pages of registers cannot be mapped, nothing is left of what
// was begun.
func TestWiringScarce(t *testing.T) {
	f, d := wired(t, model.DeviceConfig{})
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	q, err := d.NewCQ(64, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.WithoutMaps(func() {
		qp, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q})
		if err != nil {
			t.Fatal(err)
		}
		if n := f.Model().Device("sim0").Objects()["UAR"]; n != 1 || qp.Register() != nil {
			t.Errorf("%d UARs, register %v", n, qp.Register())
		}
		if err := qp.Close(); err != nil {
			t.Fatal(err)
		}
	})
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = nil
	for end := time.Now().Add(patience); !d.RecordsIdle(); uverbs.Collect() {
		if time.Now().After(end) {
			t.Fatal("records of queues that are closed are taken")
		}
	}
	d.WithoutMemory(func() {
		if q, err := d.NewCQ(64, nil); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("NewCQ: %v, %v", q, err)
		}
	})
	for range 5 {
		uverbs.Collect()
	}
	if !d.RecordsIdle() {
		t.Error("a queue that was not made has its record")
	}
}

// The number of a UAR that does not fit into the request is told beside it.
func TestWiringLargeUAR(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	const number = 0x12345
	if told, err := d.LargeUAR(number); err == nil || len(told) != 1 || told[0] != number {
		t.Errorf("told %#x, %v", told, err)
	}
}

// A poster that is writing a request has the end of the ring to itself: Shutdown posts
// nothing there until it is done.
func TestWiringShutdownAwaitsStaging(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	sq := p.a.SendQueue()
	sq.Write(1, p.peer.Regions[0].At(0), p.mr.Span(4096, 8), uverbs.Unsignaled)
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
	entered, goOn := p.a.Slow(false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		sq.Write(2, p.peer.Regions[0].At(0), p.mr.Span(4096, 8))
	}()
	<-entered
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.a.Drain(short, func(w uverbs.WC) { t.Errorf("%+v", w) }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain beside a poster that is writing: %v", err)
	}
	close(goOn)
	<-done
	// From now on nothing is staged.
	room := sq.Room()
	sq.Write(3, p.peer.Regions[0].At(0), p.mr.Span(4096, 8))
	if n := sq.Room(); n != room {
		t.Errorf("room for %d, and %d after a request that is refused", room, n)
	}
	long, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.a.Drain(long, func(w uverbs.WC) { t.Errorf("%+v", w) }); err != nil {
		t.Fatal(err)
	}
	if err := sq.Flush(); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("Flush: %v", err)
	}
}

// Close waits for a doorbell that is being rung: none comes for a queue pair that is not
// there any more.
func TestWiringCloseAwaitsDoorbell(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	entered, goOn := p.a.Slow(true)
	flushed, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		p.a.SendQueue().Write(2, p.peer.Regions[0].At(0), p.mr.Span(4096, 8))
		flushed <- p.a.SendQueue().Flush()
	}()
	<-entered
	go func() { closed <- p.a.Close() }()
	select {
	case err := <-closed:
		t.Errorf("Close did not wait: %v", err)
		closed <- err
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	if err := errors.Join(<-flushed, <-closed); err != nil {
		t.Fatal(err)
	}
}

// Shutdown posts nothing to a queue pair that was reset: its device counts from 0.
func TestWiringShutdownAfterReset(t *testing.T) {
	f, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	inject(t, f, "request times=forever op=write: delay 10s")
	p.a.SendQueue().Write(1, p.peer.Regions[0].At(0), p.mr.Span(4096, 8), uverbs.Unsignaled)
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := p.a.Modify(uverbs.StateReset); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.a.Shutdown(short); !errors.Is(err, context.DeadlineExceeded) { // nobody polls
		t.Fatalf("Shutdown: %v", err)
	}
	if w := p.wait(t, 1)[0]; w.ID != 1 || w.Status != uverbs.StatusFlushed {
		t.Errorf("%+v", w)
	}
	f.Model().ClearFaults()
	long, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.a.Drain(long, func(w uverbs.WC) { t.Errorf("%+v", w) }); err != nil {
		t.Fatal(err)
	}
}

// A queue pair is made with the UAR of its register, not with the page's first.
func TestWiringUAROfRegister(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	opts := &uverbs.QPOptions{CQ: p.q}
	if _, err := p.pd.NewQP(uverbs.RC, opts); err != nil { // the first of a new page
		t.Fatal(err)
	}
	d.NextRegister(1) // which no page has
	if qp, err := p.pd.NewQP(uverbs.RC, opts); err == nil {
		t.Errorf("QP %#x was made with another UAR than its register's", qp.QPN())
	}
}

// Where the old ring does not end as it should completions may be lost: the queue is.
func TestWiringResizeLost(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	if err := p.q.ResizeLost(1000); !errors.Is(err, mlx5.ErrResize) {
		t.Fatalf("resize: %v", err)
	}
	var wcs [1]uverbs.WC
	if n, err := p.q.Poll(wcs[:]); n != 0 || !errors.Is(err, uverbs.ErrOverrun) {
		t.Errorf("Poll: %d, %v", n, err)
	}
}

// What Shutdown posts behind a bind waits for it, as all requests do.
func TestWiringNopAwaitsWindow(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	qp, mw := p.a, newWindow(t, p)
	mr, err := p.pd.Register(p.mem.Bytes(), allAccess|uverbs.MWBind)
	if err != nil {
		t.Fatal(err)
	}
	qp.SendQueue().BindMW(1, mw, mr.Span(0, 64), uverbs.RemoteWrite, uverbs.Unsignaled)
	if err := qp.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	long, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := qp.Drain(long, func(w uverbs.WC) { t.Errorf("%+v", w) }); err != nil {
		t.Fatal(err)
	}
	ring := qp.SendRing()
	bind := int(ring[7]&0x3f)*16 + 63&^63 // how long it is, in blocks
	control := ring[bind:][:16]
	const nop, signalled, smallFence = 0, 2 << 2, 1 << 5
	if binary.BigEndian.Uint32(control[4:]) != qp.QPN()<<8|1 || control[3] != nop || control[11] != signalled|smallFence {
		t.Errorf("behind the bind is % x", control)
	}
}

// Events of a queue may be taken by others while its poller resizes it.
func TestWiringEventsBesideResize(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	a, b := shared(t, d)
	write := loopOn(t, p, a)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if ok, err := b.TakeEvent(); ok || err != nil {
					t.Errorf("event of a queue without any: %v, %v", ok, err)
					return
				}
				runtime.Gosched()
			}
		}
	}()
	for i := range uint64(100) {
		if err := a.Arm(false); err != nil {
			t.Fatal(err)
		}
		write(i)
		poll1(t, a, i)
		if err := a.ResizeOwned(100 + 100*int(i%2)); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-done
}

// Nothing of a device's registers is mapped any more when it is closed: that would keep
// its file.
func TestWiringCloseUnmapsRegisters(t *testing.T) {
	for _, static := range []bool{false, true} {
		_, d := wired(t, model.DeviceConfig{StaticUARs: static})
		p := newPairOn(t, d, false)
		q, err := d.NewCQ(1, &uverbs.CQOptions{Events: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Arm(false); err != nil {
			t.Fatal(err)
		}
		p.write1(t)
		p.wait(t, 1)
		pages := d.RegisterPages()
		rung := 0
		for _, page := range pages {
			if !bytes.Equal(page, make([]byte, len(page))) {
				rung++
			}
		}
		if rung == 0 || !static && rung != 2 {
			t.Errorf("%d of %d pages of registers were written to", rung, len(pages))
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		for i, page := range pages {
			if !bytes.Equal(page, make([]byte, len(page))) {
				t.Errorf("page %d is mapped", i)
			}
		}
		runtime.KeepAlive(d)
	}
}

// Receives that were staged before a reset are void when the queue pair is used again.
func TestWiringResetVoidsReceives(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := newPairOn(t, d, false)
	rq := p.b.RecvQueue()
	recv := func(id uint64, want error) {
		t.Helper()
		rq.Recv(id, p.mr.Span(4096, 64))
		if err := rq.Flush(); !errors.Is(err, want) {
			t.Fatalf("receive %d: %v, want %v", id, err, want)
		}
	}
	recv(1, nil)
	rq.Recv(2, p.mr.Span(4096, 64)) // staged
	for _, qp := range []*uverbs.QP{p.a, p.b} {
		if err := qp.Modify(uverbs.StateReset); err != nil {
			t.Fatal(err)
		}
	}
	if w := p.wait(t, 1)[0]; w.ID != 1 || w.Status != uverbs.StatusFlushed {
		t.Fatalf("%+v", w)
	}
	if err := errors.Join(p.a.Restart(), p.b.Restart()); err != nil {
		t.Fatal(err)
	}
	p.connect(t)
	if err := rq.Flush(); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("what was staged before the reset: %v", err)
	}
	recv(3, nil)
	p.a.SendQueue().Send(4, p.mr.Span(0, 8))
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	if w := find(t, p.wait(t, 2), uverbs.RecvSide); w.ID != 3 || w.Err() != nil {
		t.Errorf("%+v", w)
	}
}

// Nor does anybody get the index of a queue pair that could not be finished, and that the
// kernel does not destroy.
func TestWiringNotFinished(t *testing.T) {
	f, d := wired(t, model.DeviceConfig{StaticUARs: true})
	p := newPairOn(t, d, false)
	opts := &uverbs.QPOptions{CQ: p.q, SendDepth: 1, RecvDepth: 1}
	inject(t, f, "ioctl times=forever method=UVERBS_METHOD_QP_DESTROY: refuse EBUSY")
	d.WithoutMaps(func() {
		for range 40 { // more than are on the pages that are mapped
			if _, err := p.pd.NewQP(uverbs.RC, opts); err != nil {
				return
			}
		}
		t.Error("no queue pair is on a page that is not mapped")
	})
	f.Model().ClearFaults()
	for range 3 {
		if _, err := p.pd.NewQP(uverbs.RC, opts); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); !errors.Is(err, syscall.EBUSY) { // what stays goes with the file
		t.Errorf("Close of the device: %v", err)
	}
}
