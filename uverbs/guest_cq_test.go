package uverbs_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// What the kernel says of a connected queue pair is what was asked for.
func TestGuestQuery(t *testing.T) {
	p := newPair(t, false)
	i, err := p.a.Query()
	if err != nil {
		t.Fatal(err)
	}
	port, err := p.dev.PortAttr(1)
	if err != nil {
		t.Fatal(err)
	}
	if i.State != uverbs.StateRTS || i.PathMTU != port.ActiveMTU || i.DestQPN != p.b.QPN() || i.DestGID != p.b.Source().GID ||
		i.ReadDepth != 16 || i.Retries != 6 || i.RNRRetries != 6 || i.Port != 1 || i.Limits.SendDepth < 32 || i.Limits.SendSGE < 4 || i.Limits.Inline < 64 {
		t.Errorf("%+v", i)
	}
}

// Counters move with traffic.
func TestGuestCounters(t *testing.T) {
	p := newPair(t, false)
	onSoftRoCE(t, p.dev, "the counters are those that soft-RoCE has")
	before, err := p.dev.Counters(1)
	if err != nil {
		t.Fatal(err)
	}
	p.a.SendQueue().Write(1, p.peer.Regions[0].At(4096), p.mr.Span(0, 10240))
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	p.wait(t, 1)
	time.Sleep(100 * time.Millisecond) // longer than the kernel's cache lives
	after, err := p.dev.Counters(1)
	if err != nil {
		t.Fatal(err)
	}
	// 10 packets of 1024 bytes and their acknowledgement.
	if n := after.Hardware["sent_pkts"] - before.Hardware["sent_pkts"]; n < 11 {
		t.Errorf("sent_pkts moved by %d, want at least 11: %v", n, after.Hardware)
	}
}

// A live CQ keeps what is in it through a resize; soft-RoCE cannot moderate, and where
// a device can, events come all the same.
func TestGuestResize(t *testing.T) {
	p := newPair(t, true)
	next := uint64(0)
	for _, depth := range []int{1000, 200, 300, 310} { // the last needs no other ring on a ConnectX
		for i := range uint64(20) {
			p.a.SendQueue().Write(next+i, p.peer.Regions[0].At(0), p.mr.Span(4096, 8))
		}
		if err := p.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		// Some, or all, are in the queue when it is resized.
		time.Sleep(time.Duration(depth%3) * 10 * time.Millisecond)
		if err := p.q.ResizeOwned(depth); err != nil {
			t.Fatal(err)
		}
		if n := p.q.Depth(); n < depth {
			t.Errorf("depth %d after a resize to %d", n, depth)
		}
		for _, w := range p.wait(t, 20) {
			if w.ID != next || w.Err() != nil {
				t.Fatalf("completion %+v, want %d", w, next)
			}
			next++
		}
	}
	// Events go on as before.
	w, err := poll.NewWaiter(poll.Event{}, p.q)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	one := func() {
		t.Helper()
		posted := make(chan struct{})
		time.AfterFunc(10*time.Millisecond, func() {
			defer close(posted)
			p.write1(t)
		})
		var wcs [1]uverbs.WC
		if n, err := w.Wait(ctx, wcs[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		<-posted
	}
	one()
	switch err := p.q.Moderate(16, time.Millisecond); {
	case factsOf(t, p.dev).moderates:
		if err != nil {
			t.Fatal(err)
		}
		one()
	case !errors.Is(err, uverbs.ErrNotSupported):
		t.Errorf("moderate: %v", err)
	}
	if s := p.q.Stats(); s != (uverbs.CQStats{}) {
		t.Errorf("dropped %+v", s)
	}
}

func (p *pair) write1(t *testing.T) {
	p.a.SendQueue().Write(77, p.peer.Regions[0].At(0), p.mr.Span(4096, 8))
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Error(err)
	}
}

// Shutdown ends on every kernel, though soft-RoCE does not flush receives that
// were posted late: S sends and R receives come to S and R ends.
func TestGuestDrain(t *testing.T) {
	p := newPair(t, false)
	for round := range 3 {
		const sends, recvs = 20, 15
		for i := range uint64(recvs) {
			p.a.RecvQueue().Recv(i, p.mr.Span(0, 64))
		}
		if err := p.a.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(sends) {
			p.a.SendQueue().Write(i, p.peer.Regions[0].At(0), p.mr.Span(4096, 5000))
		}
		p.a.SendQueue().Write(99, p.peer.Regions[0].At(0), p.mr.Span(4096, 5000), uverbs.Unsignaled)
		if err := p.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		ends := map[uverbs.Side]map[uint64]int{uverbs.SendSide: {}, uverbs.RecvSide: {}}
		if err := p.a.Drain(ctx, func(w uverbs.WC) {
			ends[w.Side][w.ID]++
			if w.Side == uverbs.SendSide && w.Err() != nil || w.Side == uverbs.RecvSide && w.Status != uverbs.StatusFlushed {
				t.Errorf("completion %+v", w)
			}
		}); err != nil {
			t.Fatal(err)
		}
		for side, want := range map[uverbs.Side]int{uverbs.SendSide: sends, uverbs.RecvSide: recvs} {
			if len(ends[side]) != want {
				t.Errorf("%d ends on the %v side, want %d", len(ends[side]), side, want)
			}
			for id, n := range ends[side] {
				if n != 1 {
					t.Errorf("request %d on the %v side ended %d times", id, side, n)
				}
			}
		}
		if err := p.b.Drain(ctx, func(uverbs.WC) {}); err != nil {
			t.Fatal(err)
		}
		cancel()
		for _, qp := range []*uverbs.QP{p.a, p.b} {
			if err := qp.Restart(); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		p.connect(t)
	}
	if err := p.a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.a.Drain(t.Context(), func(uverbs.WC) {}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("drain after Close: %v", err)
	}
}

// What is staged when a queue pair is drained is void, and the next Flush says so, whether
// more was staged since or not; the one after that works.
func TestGuestStagedBeforeDrain(t *testing.T) {
	p := newPair(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	write := func(id uint64) { p.a.SendQueue().Write(id, p.peer.Regions[0].At(0), p.mr.Span(4096, 8)) }
	for round, more := range []bool{false, true} {
		write(1)
		none := func(w uverbs.WC) { t.Errorf("drained %+v", w) }
		if err := errors.Join(p.a.Drain(ctx, none), p.b.Drain(ctx, none), p.a.Restart(), p.b.Restart()); err != nil {
			t.Fatal(err)
		}
		p.connect(t)
		if more {
			write(2)
		}
		if err := p.a.SendQueue().Flush(); !errors.Is(err, uverbs.ErrState) {
			t.Errorf("round %d: flush of what was void: %v", round, err)
		}
		write(3)
		if err := p.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		if w := p.wait(t, 1)[0]; w.ID != 3 || w.Err() != nil {
			t.Errorf("round %d: %+v", round, w)
		}
	}
}
