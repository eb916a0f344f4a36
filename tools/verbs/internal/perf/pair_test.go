package perf

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// fabric is a model of two devices, at whose end nothing is left, and no rule was broken.
func fabric(t testing.TB) *sim.Fabric {
	t.Helper()
	f, err := sim.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, v := range f.Model().Violations() {
			t.Errorf("violation: %v", v)
		}
		for _, d := range f.Model().Devices() {
			if left := objects(d); left != 0 {
				t.Errorf("%d objects are left", left)
			}
		}
	})
	return f
}

func objects(d *model.Device) (n int) {
	for _, k := range d.Objects() {
		n += k
	}
	return n
}

// openPair opens a client on sim0 and a server on sim1.
func openPair(t testing.TB, f *sim.Fabric, clients, servers Config) (client, server *Side) {
	t.Helper()
	open := func(name string, c Config) *Side {
		c.Together = true
		dev, err := f.Open(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(dev, c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	clients.Server = "sim1"
	return open("sim0", clients), open("sim1", servers)
}

// A played is what a side came to.
type played struct {
	reports []*Report
	err     error
}

// play runs a side to its end.
func (s *Side) play(ctx context.Context, conn net.Conn, count *atomic.Int64) (p played) {
	if p.err = s.Meet(ctx, conn); p.err == nil {
		for _, size := range s.Sizes() {
			var r *Report
			if r, p.err = s.Measure(ctx, size, count); r != nil {
				p.reports = append(p.reports, r)
			}
			if p.err != nil {
				break
			}
		}
	}
	if p.err != nil {
		s.link.Close()
	}
	return p
}

// playBoth runs two sides against each other, with a context each.
func playBoth(clientCtx, serverCtx context.Context, client, server *Side, count *atomic.Int64) (c, s played) {
	here, there := net.Pipe()
	done := make(chan played)
	go func() { done <- server.play(serverCtx, there, nil) }()
	c = client.play(clientCtx, here, count)
	return c, <-done
}

// config is a test's configuration that takes little time.
func config(t testing.TB, name string, change func(*Config)) Config {
	t.Helper()
	test, err := ParseTest(name)
	if err != nil {
		t.Fatal(err)
	}
	c := Default(test)
	c.Iters, c.Warmup = 60, 10
	if test.Verb != Atomic {
		c.Size = 64
	}
	if change != nil {
		change(&c)
	}
	return c
}

// measured runs a configuration on the model.
func measured(t testing.TB, c Config) (client, server *Report) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a, b := openPair(t, fabric(t), c, c)
	pc, ps := playBoth(ctx, ctx, a, b, nil)
	if err := errors.Join(pc.err, ps.err); err != nil {
		t.Fatal(err)
	}
	if len(pc.reports) != len(a.Sizes()) || len(ps.reports) != len(a.Sizes()) {
		t.Fatalf("%d and %d reports of %d sizes", len(pc.reports), len(ps.reports), len(a.Sizes()))
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	return pc.reports[len(pc.reports)-1], ps.reports[len(ps.reports)-1]
}
