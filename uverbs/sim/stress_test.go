package sim_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// Devices under traffic are looked at, changed, opened once more and closed, all at
// once. Who waits or posts then learns that it is over, and nobody hangs.
func TestAllAtOnce(t *testing.T) {
	for _, fatal := range []bool{false, true} {
		f := newFabric(t, &sim.Options{Devices: []model.DeviceConfig{{Ports: make([]model.PortConfig, 2)}, {Ports: make([]model.PortConfig, 2)}}})
		var workers, others sync.WaitGroup
		var rounds atomic.Int64
		var devices []*uverbs.Device
		var memories []*uverbs.Memory
		for range 3 {
			a, b := newSide(t, must(f.Open("sim0", nil)), 1, uverbs.RC, true), newSide(t, must(f.Open("sim1", nil)), 1, uverbs.RC, true)
			join(t, a, b, &uverbs.ConnectOptions{RNRRetries: uverbs.RetryForever})
			devices = append(devices, a.dev, b.dev)
			memories = append(memories, a.mem, b.mem)
			for _, s := range []*side{a, b} {
				workers.Go(func() {
					err := s.volley(s == a, &rounds)
					if !errors.Is(err, os.ErrClosed) && !errors.Is(err, uverbs.ErrDeviceGone) && !errors.Is(err, errFlushed) {
						t.Errorf("a worker ended with %v", err)
					}
				})
			}
		}
		stop := make(chan struct{})
		repeat := func(what func(i int) error) {
			others.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					if err := what(i); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, uverbs.ErrDeviceGone) {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		repeat(func(i int) error { return f.Model().Device("sim0").SetPort(2, i%2 == 0) })
		repeat(func(i int) error {
			return f.Model().Device("sim1").SetGID(1, 9, model.GID{Addr: [16]byte{0x20, 1, 15: byte(i) | 1}, Type: model.GIDRoCE2})
		})
		repeat(func(int) error { _, err := f.Devices(); return err })
		repeat(func(int) error {
			d, err := f.Open("sim1", nil)
			if err != nil {
				return err
			}
			_, errPD := d.NewPD()
			return errors.Join(errPD, d.Close())
		})
		for end := time.Now().Add(time.Minute); rounds.Load() < 300; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d rounds in a minute", rounds.Load())
			}
		}
		if fatal {
			f.Model().Device("sim0").Fail()
		}
		for _, d := range devices {
			others.Go(func() {
				if err := d.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		workers.Wait()
		close(stop)
		others.Wait()
		for _, m := range memories {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

var errFlushed = errors.New("the peer is gone")

// volley plays until something ends it.
func (s *side) volley(first bool, rounds *atomic.Int64) error {
	w, err := poll.NewWaiter(poll.Event{}, s.q)
	if err != nil {
		return err
	}
	defer w.Close()
	receive := func() error {
		s.qp.RecvQueue().Recv(1, s.mr.Span(0, 64))
		return s.qp.RecvQueue().Flush()
	}
	send := func() error {
		s.qp.SendQueue().Send(2, s.mr.Span(64, 64))
		return s.qp.SendQueue().Flush()
	}
	if err := receive(); err != nil {
		return err
	}
	if first {
		if err := send(); err != nil {
			return err
		}
	}
	for {
		n, err := w.Wait(context.Background(), s.wcs[:])
		if err != nil {
			return err
		}
		for _, c := range s.wcs[:n] {
			switch {
			case c.Err() != nil:
				return errFlushed
			case c.Side == uverbs.RecvSide:
				rounds.Add(1)
				if err := errors.Join(receive(), send()); err != nil {
					return err
				}
			}
		}
	}
}
