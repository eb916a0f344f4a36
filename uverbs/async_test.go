package uverbs

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

func event(t *testing.T, d *Device) Event {
	t.Helper()
	select {
	case e := <-d.Events():
		return e
	case <-time.After(patience):
		t.Fatal("no event")
		return Event{}
	}
}

func TestPortEvents(t *testing.T) {
	r := newRig(t, false)
	r.k.SetPort("rxe0", false)
	if e := event(t, r.dev); e.Type != EventPortError || e.Port != 1 {
		t.Errorf("%v, want a port error on port 1", e)
	}
	r.k.SetPort("rxe0", true)
	if e := event(t, r.dev); e.Type != EventPortActive || e.String() != "port active on port 1" {
		t.Errorf("%v, want port active on port 1", e)
	}
}

// Nobody reads the events: the goroutine does not block, and counts.
func TestEventsDropped(t *testing.T) {
	r := newRig(t, false)
	for i := range eventBacklog + 10 {
		r.k.SetPort("rxe0", i%2 != 0)
	}
	for end := time.Now().Add(patience); r.dev.DroppedEvents() < 10; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d dropped, want 10", r.dev.DroppedEvents())
		}
	}
}

// A device that goes away wakes whoever sleeps, delivers what there is, and lets
// every object be closed.
func TestDeviceGone(t *testing.T) {
	r := newRig(t, true)
	w, err := poll.NewWaiter(poll.Event{}, r.sendQ, r.recvQ)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.a.SendQueue().Write(5, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
	if err := r.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(5*time.Millisecond, func() { r.k.RemoveDevice("rxe0") })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wcs [4]WC
	n, err := w.Wait(ctx, wcs[:])
	if n != 1 || err != nil || wcs[0].ID != 5 {
		t.Fatalf("Wait: %d, %v, %+v", n, err, wcs[0])
	}
	for range 2 {
		if n, err := w.Wait(ctx, wcs[:]); n != 0 || !errors.Is(err, ErrDeviceGone) {
			t.Fatalf("Wait: %d, %v, want ErrDeviceGone", n, err)
		}
	}
	if e := event(t, r.dev); e.Type != EventDeviceFatal {
		t.Errorf("event %v", e)
	}
	if _, err := r.dev.NewPD(); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("new PD: %v", err)
	}
	for _, c := range []interface{ Close() error }{r.a, r.b, r.sendQ, r.recvQ, r.mr, r.pd} {
		if err := c.Close(); err != nil {
			t.Errorf("close %T: %v", c, err)
		}
	}
}

// Any record is an event, and none of them breaks anything.
func FuzzEventRecord(f *testing.F) {
	r := &rig{k: fakekernel.New(fakekernel.Device{})}
	if err := r.open(false); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { r.close(f); r.clean(f) })
	a := &asyncEvents{dev: r.dev, ch: make(chan Event, 1)}
	record := func(element uint64, typ, reserved uint32) []byte {
		d := abi.UverbsAsyncEventDesc{Element: element, EventType: typ, Reserved: reserved}
		return append([]byte(nil), d.Bytes()...)
	}
	for typ := range uint32(22) {
		f.Add(record(1, typ, 0))
		f.Add(record(r.a.id, typ, 0))
		f.Add(record(r.sendQ.id, typ, ^uint32(0)))
	}
	f.Add(record(^uint64(0), ^uint32(0), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != abi.SizeofUverbsAsyncEventDesc {
			return
		}
		e := a.decode(b)
		a.handle(e)
		<-a.ch
		if e.String() == "" || e.Port < 0 || e.Port > 255 {
			t.Errorf("%+v", e)
		}
		if e.QP != nil && e.QP.id != native.Uint64(b) || e.CQ != nil && e.CQ.id != native.Uint64(b) {
			t.Errorf("%v names another object than record %x", e, b)
		}
	})
}

// eventsUntilDeadline has no events, and ends at a deadline as soon as it is set.
type eventsUntilDeadline struct {
	kernel.EventFile
	set, read chan struct{}
}

func (e *eventsUntilDeadline) ReadWait([]byte) (int, error) {
	<-e.set
	defer close(e.read)
	return 0, os.ErrDeadlineExceeded
}

func (e *eventsUntilDeadline) SetReadDeadline(time.Time) error {
	close(e.set)
	<-e.read
	return nil
}

func (e *eventsUntilDeadline) Close() error { return nil }

// errorLog keeps what it is told.
type errorLog struct{ said []string }

func (l *errorLog) Error(msg string, _ ...any) { l.said = append(l.said, msg) }

// An ordinary close is no error of the event file, whichever the goroutine sees
// first, the deadline or the close.
func TestCloseOfEventsIsNoError(t *testing.T) {
	var log errorLog
	file := &eventsUntilDeadline{set: make(chan struct{}), read: make(chan struct{})}
	a := &asyncEvents{dev: &Device{opts: Options{Logger: &log}}, file: file, ch: make(chan Event, 1)}
	a.done.Go(a.run)
	a.close()
	if len(log.said) != 0 {
		t.Errorf("logged %q", log.said)
	}
}
