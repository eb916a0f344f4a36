package uverbs_test

// Faults of other projects, as in bugs_test.go, that only a ConnectX's queues can have.
// Package mlx5 has the rings themselves; here is what the library makes of them, on a
// device in software. What became of each:
//
//	10 (number of an arm)         TestBug10NumberOfTheArm of mlx5; TestWiringEventsAreCounted
//	23 (busy clock)               here
//	32 (ignored overruns)         here
//	33 (fresh rings), 38 (sizes)  here; TestBug38SizeOfEntries of mlx5
//	37 (signature byte)           queues do not ask for signatures: it cannot mislead a poller;
//	                              TestBug37SignatureOverLaps of mlx5 has who reads dumps
//	39 (compressed completions)   here; TestCompressedModel and TestCompressedArmInBlock of mlx5
//	47 (kind of port)             all ports of such a device are of one kind, so port 1 tells;
//	                              TestBug47KindOfPort of mlx5, TestDatagrams of sim with port 2
//	50 (order of atomic results)  the kernel offers atomics in the host's order alone, and
//	                              results come to the buffer: TestGuestAtomics
//	52 (formats of stamps)        here; TestStampFormats of mlx5/model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
)

// A clock that could not be read left the queue locked, and its completion lost.
// https://github.com/linux-rdma/rdma-core/pull/1470
// A page that is being written for ever, or is nonsense, keeps nobody: the queue is polled,
// its queue pairs come and go, and who asks for the time is told.
func TestBug23BusyClock(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	c, err := d.Clock()
	if err != nil {
		t.Fatal(err)
	}
	p := pairOn(t, d, 256, &uverbs.CQOptions{Timestamps: true})
	page := c.Page()
	sign := binary.NativeEndian.Uint32(page)
	for _, s := range []uint32{sign | 1, 1<<32 - 1} {
		binary.NativeEndian.PutUint32(page, s)
		p.send(t, 0, 4)
		got := p.take(t, 3)
		for _, w := range got {
			if _, err := c.Time(w.Timestamp); !errors.Is(err, uverbs.ErrBusy) {
				t.Errorf("the page is being written: %v", err)
			}
		}
		if _, err := c.Ticks(); err != nil {
			t.Errorf("the counter: %v", err)
		}
		if err := errors.Join(p.a.Close(), p.b.Close()); err != nil {
			t.Fatal(err)
		}
		p.queuePairs(t, false)
		p.send(t, 0, 4)
		got = append(got, p.take(t, 8)...)
		binary.NativeEndian.PutUint32(page, sign)
		for _, w := range got {
			if at, err := c.Time(w.Timestamp); err != nil || time.Since(at).Abs() > time.Hour {
				t.Errorf("%#x: %v, %v", w.Timestamp, at, err)
			}
		}
	}
	for i := range page[:56] { // what is there is used, whatever it is
		page[i] = 0xfe
	}
	if _, err := c.Time(1); err != nil {
		t.Error(err)
	}
}

// Programs count on queues that overwrite what nobody read, and broke where the bit for it
// was not set. https://github.com/openucx/ucx/pull/2942
// With it the kernel is told so, no consumer index is stored, and a ring that is full is no
// error. What the device overwrites is lost, and there is no harm beyond.
func TestBug32IgnoreOverrun(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		t.Run(fmt.Sprint(ignore), func(t *testing.T) {
			_, d := wired(t, model.DeviceConfig{})
			opts := &uverbs.CQOptions{IgnoreOverrun: ignore}
			p := pairOn(t, d, 64, opts)
			p.send(t, 0, 3)
			p.take(t, 6)
			if ci := binary.BigEndian.Uint32(p.q.Record()); (ci == 0) != ignore {
				t.Errorf("after 6 completions the consumer index in the record is %d", ci)
			}
			// The claims are what they are without: only who says so makes more.
			small, err := d.NewCQ(15, opts)
			if err != nil {
				t.Fatal(err)
			}
			o := &uverbs.QPOptions{CQ: small, SendDepth: 16, RecvDepth: 16}
			if _, err := p.pd.NewQP(uverbs.RC, o); !errors.Is(err, uverbs.ErrCQFull) {
				t.Errorf("too many completions for the queue: %v", err)
			}
			p.q = small
			p.queuePairs(t, true)
			p.send(t, 0, 16) // 32 completions for 16 entries
			var wcs [64]uverbs.WC
			n, err := small.Poll(wcs[:])
			if !ignore {
				for err == nil {
					n, err = small.Poll(wcs[:])
				}
				if !errors.Is(err, uverbs.ErrOverrun) {
					t.Errorf("an overrun: %v", err)
				}
				return
			}
			for i := range 8 {
				if err != nil {
					t.Errorf("poll %d: %v", i, err)
				}
				for _, w := range wcs[:n] {
					if w.ID > 15 {
						t.Errorf("a completion of nothing: %+v", w)
					}
				}
				n, err = small.Poll(wcs[:])
			}
			if err := errors.Join(p.a.Close(), p.b.Close(), small.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Entries of a ring that nobody wrote to looked like completions, and entries of 128 bytes
// were taken for 64. https://github.com/Mellanox/libvma/pull/320
// https://github.com/openucx/ucx/issues/1019
// The kernel gets every ring, the one after a change of depth too, with an opcode that no
// completion has in the last byte of each entry: the model says so if not. Nothing is
// polled of it.
func TestBug33FreshRing(t *testing.T) {
	for _, size := range []int{64, 128} {
		_, d := wired(t, model.DeviceConfig{})
		q, err := d.NewCQ(100, &uverbs.CQOptions{EntrySize: size})
		if err != nil {
			t.Fatal(err)
		}
		for _, entries := range []int{128, 512} {
			ring := q.Ring()[:entries*size]
			for last := size - 1; last < len(ring); last += size {
				if ring[last] != 0xf0 {
					t.Fatalf("the entry that ends at byte %d of a ring of entries of %d bytes ends with %#x", last, size, ring[last])
				}
			}
			var wcs [4]uverbs.WC
			if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
				t.Errorf("%d completions of a fresh ring, %v", n, err)
			}
			if err := q.ResizeOwned(500); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A failure right behind a block of compressed completions was read as part of it.
// https://github.com/openucx/ucx/pull/7992
// It comes after the block, and the flushes that it causes after that, wherever batches end;
// queue pairs that are closed in the middle of a block leave nothing.
func TestBug39FailureBehindABlock(t *testing.T) {
	for polled := range 12 {
		f, d := wired(t, model.DeviceConfig{})
		p := pairOn(t, d, 64, &uverbs.CQOptions{Compression: uverbs.Compress()})
		for i := range uint64(12) {
			p.b.RecvQueue().Recv(i, p.mr.Span(4096, 64)) // the last ones are too long for that
		}
		if err := p.b.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(10) {
			p.a.SendQueue().Send(i, p.mr.Span(0, 32+int(i/8)*64), uverbs.Unsignaled)
		}
		if err := p.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		if !compressed(p.q.Ring()) {
			t.Fatal("the device compressed nothing")
		}
		got := p.take(t, polled)
		if polled == 5 {
			if err := errors.Join(p.b.Close(), p.a.Close()); err != nil {
				t.Fatal(err)
			}
			var wcs [8]uverbs.WC
			for range 20 {
				if n, err := p.q.Poll(wcs[:]); n > 0 || err != nil {
					t.Fatalf("%+v, %v of closed queue pairs", wcs[:n], err)
				}
			}
			if err := p.q.Close(); err != nil {
				t.Error(err)
			}
			if n := f.Model().Device("sim0").Objects()["CQ"]; n != 0 {
				t.Errorf("%d queues are left", n)
			}
			continue
		}
		var received []uverbs.WC
		for _, w := range append(got, p.take(t, 12+2-polled)...) {
			if w.Side == uverbs.RecvSide {
				received = append(received, w)
			}
		}
		if len(received) != 12 {
			t.Fatalf("%d polled first: %+v", polled, received)
		}
		for i, w := range received {
			want := uverbs.StatusSuccess
			if i > 8 {
				want = uverbs.StatusFlushed
			}
			if w.ID != uint64(i) || i != 8 && w.Status != want || i == 8 && (w.Status == uverbs.StatusSuccess || w.Status == uverbs.StatusFlushed) {
				t.Errorf("%d polled first: receive %d is %+v", polled, i, w)
			}
		}
	}
}

// A queue asked for stamps of a kind that its queue pairs do not make, and got zeros. A
// device that stamps in another way only takes no queue pair on a queue that was promised
// ticks.
func TestBug52StampsMustMatch(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{Timestamps: model.RealTimeOnly})
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	stamped, err := d.NewCQ(64, &uverbs.CQOptions{Timestamps: true})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := d.NewCQ(64, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]*uverbs.QPOptions{"both": {CQ: stamped}, "sends": {SendCQ: stamped, RecvCQ: plain}, "receives": {SendCQ: plain, RecvCQ: stamped}} {
		o.SendDepth, o.RecvDepth = 4, 4
		if _, err := pd.NewQP(uverbs.RC, o); !errors.Is(err, uverbs.ErrNotSupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: plain, SendDepth: 4, RecvDepth: 4}); err != nil {
		t.Error(err)
	}
}
