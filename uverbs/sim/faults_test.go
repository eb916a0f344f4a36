package sim_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// Errors of the device come as those of a kernel do, whatever the system.
func TestRefusedCalls(t *testing.T) {
	f := newFabric(t, nil)
	d := open(t, f, "sim0")
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method string
		errno  request.Errno
		want   []error
		call   func() error
	}{
		{"IB_USER_VERBS_CMD_ALLOC_PD", request.ENOMEM, []error{syscall.ENOMEM}, func() error { _, err := d.NewPD(); return err }},
		{"IB_USER_VERBS_CMD_REG_MR", request.EFAULT, []error{syscall.EFAULT}, func() error { _, err := pd.Register(make([]byte, 64), uverbs.LocalWrite); return err }},
		{"UVERBS_METHOD_QUERY_PORT", request.EIO, []error{syscall.EIO, uverbs.ErrDeviceGone}, func() error { _, err := d.PortAttr(1); return err }},
		{"UVERBS_METHOD_QUERY_GID_TABLE", request.EOPNOTSUPP, []error{syscall.EOPNOTSUPP, uverbs.ErrNotSupported}, func() error { _, err := d.GIDTable(); return err }},
		{"UVERBS_METHOD_QUERY_GID_ENTRY", request.EPROTONOSUPPORT, []error{syscall.EPROTONOSUPPORT, uverbs.ErrNotSupported}, func() error { _, err := d.GID(1, 0); return err }},
		{"IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL", 110, []error{syscall.ETIMEDOUT}, func() error { _, err := d.NewChannel(); return err }},
		{"UVERBS_METHOD_PD_DESTROY", request.EBUSY, []error{syscall.EBUSY, uverbs.ErrInUse}, func() error { return must(d.NewPD()).Close() }},
	} {
		if err := f.Model().Inject(model.Fault{At: model.AtIoctl, Method: c.method, Do: model.Refuse{Errno: c.errno}}); err != nil {
			t.Fatal(err)
		}
		err := c.call()
		var e *uverbs.Error
		if !errors.As(err, &e) || e.Device != "sim0" {
			t.Errorf("%s: %v is no *uverbs.Error of sim0", c.method, err)
		}
		for _, want := range c.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", c.method, err, want)
			}
		}
		f.Model().ClearFaults()
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What the driver found wrong is in the text.
func TestReasons(t *testing.T) {
	f := newFabric(t, nil)
	d := open(t, f, "sim0")
	if _, err := d.GID(1, 300); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "index beyond the table") {
		t.Errorf("%v", err)
	}
}

func TestSlowCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, nil)
		d := open(t, f, "sim0")
		if err := f.Model().Script("ioctl 2 method=IB_USER_VERBS_CMD_ALLOC_PD: slow 4s"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []time.Duration{0, 4 * time.Second, 0} {
			start := time.Now()
			if _, err := d.NewPD(); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != want {
				t.Errorf("it took %v, want %v", took, want)
			}
		}
	})
}

// A device whose context fails half way is not open, and nothing of it stays.
func TestOpenFailsAtEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, nil)
		failed := 0
		for n := 1; ; n++ {
			if n > 100 {
				t.Fatal("it never opens")
			}
			if err := f.Model().Inject(model.Fault{At: model.AtIoctl, Nth: n, Do: model.Refuse{Errno: request.ENOMEM}}); err != nil {
				t.Fatal(err)
			}
			d, err := f.Open("sim0", nil)
			f.Model().ClearFaults()
			if err == nil {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				break
			}
			if !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("call %d: %v", n, err)
			}
			failed++
		}
		if failed < 3 { // context, query, events
			t.Errorf("%d calls could fail", failed)
		}
	})
}

// However a program closes what it has, all of it is gone in the end: the device
// has room for one of each, every time.
func TestCloseInEveryOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, &sim.Options{Devices: []model.DeviceConfig{{MaxPD: 1, MaxMR: 1}}})
		for order := range permutations(4) {
			d, err := f.Open("sim0", nil)
			if err != nil {
				t.Fatal(err)
			}
			mem, err := uverbs.Alloc(4096, nil)
			if err != nil {
				t.Fatal(err)
			}
			pd, err := d.NewPD()
			if err != nil {
				t.Fatalf("order %v: %v", order, err)
			}
			if _, err := d.NewPD(); !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("a second PD: %v", err)
			}
			mr, err := pd.Register(mem.Bytes(), uverbs.LocalWrite|uverbs.RemoteRead)
			if err != nil {
				t.Fatalf("order %v: %v", order, err)
			}
			ch, err := d.NewChannel()
			if err != nil {
				t.Fatal(err)
			}
			closers := []func() error{mr.Close, pd.Close, ch.Close, d.Close}
			for _, i := range order {
				if err := closers[i](); err != nil && !errors.Is(err, uverbs.ErrInUse) && !errors.Is(err, os.ErrClosed) {
					t.Errorf("order %v, at %d: %v", order, i, err)
				}
			}
			for i, c := range closers {
				if err := c(); !errors.Is(err, os.ErrClosed) {
					t.Errorf("order %v: %d closed again: %v", order, i, err)
				}
			}
			if err := mem.Close(); err != nil {
				t.Errorf("order %v: %v", order, err)
			}
			noObjects(t, f)
		}
	})
}

// permutations lists the orders of the numbers below n.
func permutations(n int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		var rest func(k int) bool
		rest = func(k int) bool {
			if k == n {
				return yield(order)
			}
			for i := k; i < n; i++ {
				order[k], order[i] = order[i], order[k]
				if !rest(k + 1) {
					return false
				}
				order[k], order[i] = order[i], order[k]
			}
			return true
		}
		rest(0)
	}
}
