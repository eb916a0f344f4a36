//go:build amd64 || arm64

package simproc

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/mlx5/model"
)

// newEventFile makes the event file of a device's asynchronous events, and what the
// program has of it.
func newEventFile(t *testing.T) (*model.Device, *eventFile, int) {
	t.Helper()
	m, err := model.New(model.DeviceConfig{Name: "sim0"})
	if err != nil {
		t.Fatal(err)
	}
	d := m.Devices()[0]
	e, r, err := newPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(r) })
	f, err := d.Open(&memory{pid: os.Getpid()}, &model.OpenOptions{Polled: true, NewFD: func(q *model.EventQueue) (int32, error) {
		e.queue = q
		return 5, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	openContext(t, f)
	return d, e, r
}

// next reads the type of the next event as a program does, -1 when there is none.
func next(t *testing.T, r int) int {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(r), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 0); err != nil || n == 0 {
		return -1
	}
	var b [64]byte // more than one, of which a read returns one
	n, err := unix.Read(r, b[:])
	if n == 0 && err == nil {
		return 0 // the end
	}
	if n != 16 || err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	return int(binary.NativeEndian.Uint32(b[8:]))
}

const (
	portActive  = 9
	portErr     = 10
	deviceFatal = 8
)

// Events that are taken back are there again afterwards, once and in order.
func TestRecall(t *testing.T) {
	d, e, r := newEventFile(t)
	for range 2 {
		for _, up := range []bool{false, true} {
			if err := d.SetPort(1, up); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := e.pump(); n != 4 {
		t.Fatalf("%d events in the pipe", n)
	}
	if got := next(t, r); got != portErr {
		t.Errorf("event %d", got)
	}
	e.recall()
	if got := next(t, r); got != -1 {
		t.Errorf("event %d of those taken back", got)
	}
	if n := e.resume(); n != 3 {
		t.Errorf("%d events are back", n)
	}
	for _, want := range []int{portActive, portErr, portActive, -1} {
		if got := next(t, r); got != want {
			t.Errorf("event %d, want %d", got, want)
		}
	}
	e.recall() // of nothing
	if n := e.resume(); n != 0 {
		t.Errorf("%d events from nowhere", n)
	}
}

// More events than the pipe has room for come when others were read.
func TestFullPipe(t *testing.T) {
	d, e, r := newEventFile(t)
	const n = 200
	for i := range n {
		if err := d.SetPort(1, i%2 == 1); err != nil {
			t.Fatal(err)
		}
	}
	if moved := e.pump(); moved == 0 || moved >= n || !e.dirty.Load() {
		t.Fatalf("%d events moved", moved)
	}
	for i := range n {
		got := next(t, r)
		if got == -1 {
			e.pump()
			got = next(t, r)
		}
		if want := []int{portErr, portActive}[i%2]; got != want {
			t.Fatalf("event %d is %d, want %d", i, got, want)
		}
	}
	if moved := e.pump(); moved != 0 || e.dirty.Load() {
		t.Errorf("%d more events", moved)
	}
}

// A device that fails says so, and then the file ends.
func TestEndOfEvents(t *testing.T) {
	d, e, r := newEventFile(t)
	d.Fail()
	e.pump()
	if got := next(t, r); got != deviceFatal {
		t.Errorf("event %d", got)
	}
	e.pump()
	if got := next(t, r); got != 0 {
		t.Errorf("event %d after the last", got)
	}
}

func TestAbandoned(t *testing.T) {
	e, r, err := newPipe()
	if err != nil {
		t.Fatal(err)
	}
	if e.abandoned() {
		t.Error("abandoned at once")
	}
	unix.Close(r)
	if !e.abandoned() {
		t.Error("not abandoned")
	}
	e.close()
	if !e.abandoned() {
		t.Error("not abandoned after close")
	}
}
