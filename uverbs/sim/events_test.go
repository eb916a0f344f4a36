package sim_test

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// next waits for an event.
func next(t *testing.T, d *uverbs.Device) uverbs.Event {
	t.Helper()
	select {
	case e, ok := <-d.Events():
		if !ok {
			t.Fatal("the events ended")
		}
		return e
	case <-time.After(time.Minute):
		t.Fatal("no event")
	}
	panic("unreachable")
}

// All tests of this file run under a false clock. That a bubble ends says that no
// goroutine was left.

func TestPortAndGIDEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, &sim.Options{Devices: []model.DeviceConfig{{Ports: make([]model.PortConfig, 2)}, {}}})
		d, again, other := open(t, f, "sim0"), open(t, f, "sim0"), open(t, f, "sim1")
		dev := f.Model().Device("sim0")
		state := func(port int) uverbs.PortState {
			p, err := d.PortAttr(port)
			if err != nil {
				t.Error(err)
			}
			return p.State
		}
		for _, up := range []bool{false, true} {
			want, wantState := uverbs.EventPortError, uverbs.PortDown
			if up {
				want, wantState = uverbs.EventPortActive, uverbs.PortActive
			}
			if err := dev.SetPort(2, up); err != nil {
				t.Fatal(err)
			}
			for _, d := range []*uverbs.Device{d, again} {
				if e := next(t, d); e != (uverbs.Event{Type: want, Port: 2}) {
					t.Errorf("%v, want %v on port 2", e, want)
				}
			}
			if s := state(2); s != wantState || state(1) != uverbs.PortActive {
				t.Errorf("port 2 is %v, want %v", s, wantState)
			}
		}
		fresh := gid(t, "2001:db8::1", model.GIDRoCE2)
		if err := dev.SetGID(1, 5, fresh); err != nil {
			t.Fatal(err)
		}
		if e := next(t, d); e != (uverbs.Event{Type: uverbs.EventGIDChange, Port: 1}) {
			t.Errorf("%v", e)
		}
		if e, err := d.GID(1, 5); err != nil || e.GID != uverbs.GID(fresh.Addr) {
			t.Errorf("%v, %v", e, err)
		}
		if err := dev.SetGID(1, 5, model.GID{}); err != nil {
			t.Fatal(err)
		}
		next(t, d)
		if _, err := d.GID(1, 5); !errors.Is(err, syscall.ENODATA) {
			t.Errorf("after it was taken away: %v", err)
		}
		synctest.Wait()
		select {
		case e := <-other.Events():
			t.Errorf("%v on another device", e)
		default:
		}
	})
}

// Events come late, twice or not at all, as a script says.
func TestLateAndLostEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, nil)
		d := open(t, f, "sim0")
		if err := f.Model().Script("async 1: delay 3s\nasync 2: duplicate\nasync 3: lose"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for _, up := range []bool{false, true, false, true} {
			if err := f.Model().Device("sim0").SetPort(1, up); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []uverbs.EventType{uverbs.EventPortActive, uverbs.EventPortActive, uverbs.EventPortActive, uverbs.EventPortError} {
			if e := next(t, d); e.Type != want {
				t.Errorf("event %d: %v, want %v", i, e, want)
			}
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("the last event came after %v", took)
		}
	})
}

// A closed device has an end of events, whatever was going on.
func TestCloseEndsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, nil)
		for _, waits := range []bool{true, false} {
			d, err := f.Open("sim0", nil)
			if err != nil {
				t.Fatal(err)
			}
			if waits {
				synctest.Wait() // its goroutine is parked
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if e, ok := <-d.Events(); ok {
				t.Errorf("%v after Close", e)
			}
			if err := f.Model().Device("sim0").SetPort(1, !waits); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestDeviceFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, nil)
		d, err := f.Open("sim0", nil)
		if err != nil {
			t.Fatal(err)
		}
		pd, err := d.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		mr, err := pd.Register(make([]byte, 4096), uverbs.LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		other := open(t, f, "sim1")
		f.Model().Device("sim0").Fail()
		if e := next(t, d); e.Type != uverbs.EventDeviceFatal {
			t.Errorf("%v", e)
		}
		if e := next(t, d); e.Type != uverbs.EventDeviceGone {
			t.Errorf("%v", e)
		}
		if e, ok := <-d.Events(); ok {
			t.Errorf("%v after the end of the device", e)
		}
		_, errPD := d.NewPD()
		_, errPort := d.PortAttr(1)
		_, errMR := pd.Register(make([]byte, 4096), uverbs.LocalWrite)
		_, errChannel := d.NewChannel()
		for what, err := range map[string]error{"NewPD": errPD, "PortAttr": errPort, "Register": errMR, "NewChannel": errChannel} {
			if !errors.Is(err, uverbs.ErrDeviceGone) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := f.Open("sim0", nil); !errors.Is(err, syscall.EIO) || !errors.Is(err, uverbs.ErrDeviceGone) {
			t.Errorf("Open: %v", err)
		}
		list, err := f.Devices()
		if err != nil || len(list) != 2 || !errors.Is(list[0].Err, syscall.EIO) || list[1].Err != nil {
			t.Errorf("%+v, %v", list, err)
		}
		for what, close := range map[string]func() error{"MR": mr.Close, "PD": pd.Close} {
			if err := close(); err != nil && !errors.Is(err, uverbs.ErrInUse) {
				t.Errorf("close %s: %v", what, err)
			}
		}
		if err := d.Close(); err != nil {
			t.Errorf("close the device: %v", err)
		}
		if _, err := other.PortAttr(1); err != nil {
			t.Errorf("the other device: %v", err)
		}
	})
}
