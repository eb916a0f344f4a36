package present

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// open opens a device of a model.
func open(t *testing.T) (*model.Device, *uverbs.Device) {
	t.Helper()
	f, err := sim.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Open("sim0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return f.Model().Devices()[0], d
}

// Who waits for something else hears that the device has gone.
func TestWhileGone(t *testing.T) {
	hardware, d := open(t)
	err := While(t.Context(), d, func(ctx context.Context) error {
		hardware.Fail()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, uverbs.ErrDeviceGone) || !strings.HasPrefix(err.Error(), "sim0: ") {
		t.Error(err)
	}
}

// On a device that is there, the wait is what it is without.
func TestWhile(t *testing.T) {
	_, d := open(t)
	why := errors.New("enough")
	for _, want := range []error{nil, why} {
		if err := While(t.Context(), d, func(context.Context) error { return want }); err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := While(ctx, d, func(ctx context.Context) error { return context.Cause(ctx) }); err != why {
		t.Errorf("%v, want %v", err, why)
	}
	if err := Explain(d, why); err != why {
		t.Errorf("%v, want %v", err, why)
	}
}

// What fails because the device has gone says so.
func TestExplain(t *testing.T) {
	hardware, d := open(t)
	q, err := d.NewCQ(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	hardware.Fail()
	for err == nil { // until the library has ended all that was posted
		runtime.Gosched()
		_, err = q.Poll(make([]uverbs.WC, 1))
	}
	flushed := errors.New("flushed")
	if got := Explain(d, flushed); !errors.Is(got, flushed) || got.Error() != "device gone: flushed" {
		t.Error(got)
	}
	if got := Explain(d, uverbs.ErrDeviceGone); got != uverbs.ErrDeviceGone {
		t.Error(got)
	}
	if got := Explain(d, nil); got != nil {
		t.Error(got)
	}
}
