package uverbs

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// letGone waits until the library has let go of a device that is gone.
func letGone(t *testing.T, d *Device) {
	t.Helper()
	within(t, "letting go of the device", func() { <-d.left })
}

// isOver says whether a removal is over. Nobody is left who would let go of more.
func isOver(t *testing.T, removed <-chan struct{}) {
	t.Helper()
	select {
	case <-removed:
	default:
		t.Error("the removal waits for somebody")
	}
}

// lastEvents reads the events of a device up to the end, which is one EventDeviceGone.
func lastEvents(t *testing.T, d *Device) {
	t.Helper()
	var all []Event
	within(t, "the end of the events", func() {
		for e := range d.Events() {
			all = append(all, e)
		}
	})
	if len(all) == 2 && all[0].Type == EventDeviceFatal {
		all = all[1:]
	}
	if len(all) != 1 || all[0].Type != EventDeviceGone {
		t.Errorf("events %v, want one %v", all, EventDeviceGone)
	}
}

// A removal that waits for its users is over by itself. What is posted ends once, what
// the device did first, and whoever waits for something hears that the device is gone.
func TestUnplug(t *testing.T) {
	r := newRig(t, true)
	srq, err := r.pd.NewSRQ(&SRQOptions{Depth: 8})
	if err != nil {
		t.Fatal(err)
	}
	q, err := r.dev.NewCQ(64, nil)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SRQ: srq})
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := r.pd.NewQP(RC, &QPOptions{CQ: q})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(5) {
		srq.RecvQueue().Recv(100+i, r.mr.Span(0, 8))
	}
	sq := r.a.SendQueue()
	for sq.Room() > 0 {
		sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8)) // these the device does
	}
	for i := range uint64(4) {
		r.a.RecvQueue().Recv(200+i, r.mr.Span(0, 8))
	}
	if err := errors.Join(srq.RecvQueue().Flush(), sq.Flush(), r.a.RecvQueue().Flush()); err != nil {
		t.Fatal(err)
	}
	sends := r.a.Limits().SendDepth
	var waiting sync.WaitGroup
	hears := func(what string, f func() error) {
		waiting.Go(func() {
			if err := f(); !errors.Is(err, ErrDeviceGone) || errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	hears("WaitRoom", func() error { return sq.WaitRoom(t.Context(), 1) })
	hears("Resize", func() error { return q.Resize(t.Context(), 100) })
	hears("Handshake", func() error {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		_, err := fresh.Handshake(t.Context(), ours)
		return err
	})
	w, err := poll.NewWaiter(poll.Event{}, r.recvQ)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ends := make(map[uint64]int)
	hears("Wait", func() error {
		for {
			var wcs [3]WC
			n, err := w.Wait(t.Context(), wcs[:])
			for _, w := range wcs[:n] {
				if ends[w.ID]++; w.Status != StatusFlushed || w.Flags != cq.FlagSynthetic {
					t.Errorf("%+v", w)
				}
			}
			if err != nil {
				return err
			}
		}
	})
	for !r.sawWaiters() {
		time.Sleep(time.Millisecond)
	}
	removed := r.k.Unplug("rxe0")
	select {
	case <-removed:
		t.Fatal("the removal did not wait")
	default:
	}
	for range 3 { // once is enough, and often does no harm
		r.k.Tell("rxe0")
	}
	lastEvents(t, r.dev)
	letGone(t, r.dev)
	isOver(t, removed)
	within(t, "the waiters", waiting.Wait)
	if !maps.Equal(ends, map[uint64]int{200: 1, 201: 1, 202: 1, 203: 1}) {
		t.Errorf("receives ended, by number: %v", ends)
	}
	// What the device did is told, by who polls now for the first time.
	done := 0
	for {
		var wcs [3]WC
		n, err := r.sendQ.Poll(wcs[:])
		for _, w := range wcs[:n] {
			if done++; w.Status != StatusSuccess {
				t.Errorf("%+v", w)
			}
		}
		if err != nil {
			if !errors.Is(err, ErrDeviceGone) {
				t.Error(err)
			}
			break
		}
	}
	if done != sends {
		t.Errorf("%d sends ended, want %d", done, sends)
	}
	got := make(map[uint64]bool)
	for {
		var wcs [2]WC
		n, err := q.Poll(wcs[:])
		for _, w := range wcs[:n] {
			if got[w.ID] || w.QPN != cq.NoQPN || w.Side != RecvSide || w.Flags != cq.FlagSynthetic {
				t.Errorf("%+v", w)
			}
			got[w.ID] = true
		}
		if err != nil {
			break
		}
	}
	if len(got) != 5 {
		t.Errorf("receives %v of the SRQ ended, want 5", got)
	}
	sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
	srq.RecvQueue().Recv(1, r.mr.Span(0, 8))
	_, errPD := r.dev.NewPD()
	_, errPort := r.dev.PortAttr(1)
	for what, err := range map[string]error{
		"Flush": sq.Flush(), "Flush of the SRQ": srq.RecvQueue().Flush(), "NewPD": errPD, "PortAttr": errPort, "Modify": r.b.Modify(StateErr), "Arm": r.sendQ.Arm(false),
	} {
		if !errors.Is(err, ErrDeviceGone) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, c := range []interface{ Close() error }{shared, fresh, srq, r.a, r.b, q, w, r.sendQ, r.recvQ, r.mr, r.pd, r.dev, r.mem} {
		if err := c.Close(); err != nil {
			t.Errorf("close %T: %v", c, err)
		}
	}
}

// sawWaiters says whether the waiters of TestUnplug wait.
func (r *rig) sawWaiters() bool {
	m := &r.sendQ.mailbox
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiters) > 0
}

// The last event has its place however many wait to be read.
func TestLastEventIsNotDropped(t *testing.T) {
	r := newRig(t, false)
	for i := range eventBacklog + 10 {
		r.k.SetPort("rxe0", i%2 != 0)
	}
	removed := r.k.Unplug("rxe0")
	r.k.Tell("rxe0")
	letGone(t, r.dev)
	isOver(t, removed)
	var last Event
	for e := range r.dev.Events() {
		last = e
	}
	if last.Type != EventDeviceGone || last.String() != "device gone" {
		t.Errorf("the last event is %v", last)
	}
}

// Of three overruns that a device tells of, the queue dies once, and says so to who sleeps
// on it.
func TestQueueDiesOnce(t *testing.T) {
	r := newRig(t, true)
	woken := false
	_, detach, err := r.sendQ.Attach(func() { woken = true })
	if err != nil {
		t.Fatal(err)
	}
	defer detach()
	a := &asyncEvents{dev: r.dev, ch: make(chan Event, 8)}
	for range 3 {
		a.handle(Event{Type: EventCQError, CQ: r.sendQ})
	}
	if !woken {
		t.Error("nobody is woken")
	}
	_, first := r.sendQ.Poll(make([]WC, 1))
	_, again := r.sendQ.Poll(make([]WC, 1))
	if !errors.Is(first, ErrOverrun) || first != again {
		t.Errorf("%v, then %v", first, again)
	}
	if err := r.a.SendQueue().WaitRoom(context.Background(), r.a.Limits().SendDepth); err != nil {
		t.Errorf("there is room: %v", err)
	}
}

// Who sleeps on a queue wakes when it dies.
func TestQueueDiesAwake(t *testing.T) {
	r := newRig(t, true)
	w, err := poll.NewWaiter(poll.Event{}, r.sendQ)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	time.AfterFunc(50*time.Millisecond, func() { // it sleeps by then, as a rule
		(&asyncEvents{dev: r.dev, ch: make(chan Event, 1)}).handle(Event{Type: EventCQError, CQ: r.sendQ})
	})
	if n, err := w.Wait(ctx, make([]WC, 1)); n != 0 || !errors.Is(err, ErrOverrun) || ctx.Err() != nil {
		t.Errorf("%d, %v, want %v", n, err, ErrOverrun)
	}
}

// A receive of an SRQ that has ended in one ring does not end again in another one that is
// read before.
func TestUnplugSharedReceives(t *testing.T) {
	r := newRig(t, false)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	srq, err := r.pd.NewSRQ(&SRQOptions{Depth: 8})
	must(err)
	var qps [2]*QP
	for i, q := range []*CQ{r.sendQ, r.recvQ} {
		qps[i], err = r.pd.NewQP(RC, &QPOptions{CQ: q, SRQ: srq})
		must(err)
	}
	sendQ, err := r.dev.NewCQ(64, nil)
	must(err)
	sender, err := r.pd.NewQP(RC, &QPOptions{CQ: sendQ})
	must(err)
	must(errors.Join(sender.Connect(t.Context(), qps[1].Endpoint(), nil), qps[1].Connect(t.Context(), sender.Endpoint(), nil)))
	for i := range uint64(3) {
		srq.RecvQueue().Recv(i, r.mr.Span(0, 8))
	}
	must(srq.RecvQueue().Flush())
	sender.SendQueue().Send(9, r.mr.Span(0, 8))
	must(sender.SendQueue().Flush())
	removed := r.k.Unplug("rxe0")
	r.k.Tell("rxe0")
	lastEvents(t, r.dev)
	letGone(t, r.dev)
	isOver(t, removed)
	got := make(map[uint64]Status)
	for range 2 { // the first queue has its turn before the second is read, and after
		for _, q := range []*CQ{r.sendQ, r.recvQ} {
			var wcs [8]WC
			n, _ := q.Poll(wcs[:])
			for _, w := range wcs[:n] {
				if _, twice := got[w.ID]; twice {
					t.Errorf("it ended before: %+v", w)
				}
				got[w.ID] = w.Status
			}
		}
	}
	if !maps.Equal(got, map[uint64]Status{0: StatusSuccess, 1: StatusFlushed, 2: StatusFlushed}) {
		t.Errorf("receives ended %v", got)
	}
}

// The watch of the machine ends with its goroutine and its descriptors; without such a
// device there is nothing to watch.
func TestWatchNothing(t *testing.T) {
	_, stop, err := kernel.Host().Watch("no such device", func() { t.Error("it is said to be gone") })
	if err != nil {
		t.Fatal(err)
	}
	stop()
	stop()
}
