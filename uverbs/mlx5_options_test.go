package uverbs_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// pairOn connects two queue pairs that complete on a queue made with those options.
func pairOn(t testing.TB, d *uverbs.Device, depth int, opts *uverbs.CQOptions) *pair {
	t.Helper()
	p := newPairOn(t, d, false)
	if err := errors.Join(p.a.Close(), p.b.Close(), p.q.Close()); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.q, err = d.NewCQ(depth, opts); err != nil {
		t.Fatal(err)
	}
	p.queuePairs(t, false)
	return p
}

func (p *pair) queuePairs(t testing.TB, overrun bool) {
	t.Helper()
	o := &uverbs.QPOptions{CQ: p.q, SendDepth: 16, RecvDepth: 16, AllowOverrun: overrun}
	var err error
	if p.a, err = p.pd.NewQP(uverbs.RC, o); err == nil {
		p.b, err = p.pd.NewQP(uverbs.RC, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.connect(t)
}

// send sends n messages of lengths of their own from a to b, with IDs from id on.
func (p *pair) send(t testing.TB, id uint64, n int) {
	t.Helper()
	for i := range uint64(n) {
		p.b.RecvQueue().Recv(id+i, p.mr.Span(4096, 256))
	}
	if err := p.b.RecvQueue().Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(n) {
		p.a.SendQueue().Send(id+i, p.mr.Span(0, int((id+i)%250)))
	}
	if err := p.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
}

// take polls exactly n completions.
func (p *pair) take(t testing.TB, n int) []uverbs.WC {
	t.Helper()
	wcs := make([]uverbs.WC, n)
	got := 0
	for end := time.Now().Add(patience); got < n; {
		k, err := p.q.Poll(wcs[got:])
		if err != nil {
			t.Fatal(err)
		}
		if got += k; time.Now().After(end) {
			t.Fatalf("%d of %d completions: %+v", got, n, wcs[:got])
		}
	}
	return wcs
}

// compressed says whether a ring has a title of compressed completions.
func compressed(ring []byte) bool {
	for last := 63; last < len(ring); last += 64 {
		if ring[last]&0x0c == 0x0c && ring[last]>>4 == 2 {
			return true
		}
	}
	return false
}

// Queues with all options, and what goes together of them, bring all completions once
// and in order, over many laps, at whatever place a batch ends; with events too.
func TestModelCQOptions(t *testing.T) {
	for name, opts := range map[string]uverbs.CQOptions{
		"64 bytes":                           {EntrySize: 64},
		"128 bytes":                          {EntrySize: 128},
		"stamps":                             {Timestamps: true},
		"128 bytes, stamps":                  {EntrySize: 128, Timestamps: true},
		"overrun ignored":                    {IgnoreOverrun: true},
		"128 bytes, stamps, overrun ignored": {EntrySize: 128, Timestamps: true, IgnoreOverrun: true},
		"compression":                        {Compression: uverbs.Compress()},
		"compression, 64 bytes, shared":      {Compression: uverbs.Compress(), EntrySize: 64, Shared: true},
		"compression, overrun ignored":       {Compression: uverbs.Compress(), IgnoreOverrun: true},
		"no compression":                     {Compression: new(uverbs.Compression)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, d := wired(t, model.DeviceConfig{})
				opts := opts
				opts.Events = true
				p := pairOn(t, d, 64, &opts)
				rng := rand.New(rand.NewPCG(1, uint64(len(name))))
				w, err := poll.NewWaiter(poll.Event{}, p.q)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				var next [2]uint64 // by side
				last := uint64(0)
				wcs := make([]uverbs.WC, 40)
				id := uint64(0)
				for range 200 {
					n := 1 + rng.IntN(16)
					p.send(t, id, n)
					id += uint64(n)
					for next[0] < id || next[1] < id {
						batch := wcs[:1+rng.IntN(len(wcs))]
						n, err := w.Wait(context.Background(), batch)
						if err != nil {
							t.Fatal(err)
						}
						for _, c := range batch[:n] {
							if c.Err() != nil || c.ID != next[c.Side] || c.Side == uverbs.RecvSide && c.Bytes != uint32(c.ID%250) {
								t.Fatalf("%+v, want ID %d", c, next[c.Side])
							}
							next[c.Side]++
							if (c.Timestamp != 0) != opts.Timestamps || c.Timestamp < last {
								t.Fatalf("stamp %#x after %#x", c.Timestamp, last)
							}
							last = c.Timestamp
						}
					}
				}
				if s := p.q.Stats(); s != (uverbs.CQStats{}) {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// What the device has not, or what does not go together, is refused with words.
func TestModelCQOptionsRefused(t *testing.T) {
	compress := uverbs.Compress()
	for name, c := range map[string]struct {
		config model.DeviceConfig
		opts   uverbs.CQOptions
		err    error
		want   string
	}{
		"size":                     {model.DeviceConfig{}, uverbs.CQOptions{EntrySize: 96}, uverbs.ErrInvalid, "96 bytes: 64 or 128"},
		"negative size":            {model.DeviceConfig{}, uverbs.CQOptions{EntrySize: -64}, uverbs.ErrInvalid, "-64"},
		"no compression":           {model.DeviceConfig{NoCompression: true}, uverbs.CQOptions{Compression: compress}, uverbs.ErrNotSupported, "with Compression: not supported (the driver, mlx5, says that the device has formats 0x0"},
		"compression, 128 bytes":   {model.DeviceConfig{}, uverbs.CQOptions{Compression: compress, EntrySize: 128}, uverbs.ErrNotSupported, "64 bytes"},
		"compression, stamps":      {model.DeviceConfig{}, uverbs.CQOptions{Compression: compress, Timestamps: true}, uverbs.ErrNotSupported, "one time stamp"},
		"a node that there is not": {model.DeviceConfig{}, uverbs.CQOptions{Node: uverbs.OnNode(1023)}, nil, "on node 1023"},
	} {
		t.Run(name, func(t *testing.T) {
			f, d := wired(t, c.config)
			_, err := d.NewCQ(16, &c.opts)
			if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
			if n := f.Model().Device("sim0").Objects()["CQ"]; n != 0 {
				t.Errorf("%d queues are left", n)
			}
			if _, err := d.NewCQ(16, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// A queue without overruns is resized under traffic as any.
func TestModelIgnoreOverrunResize(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := pairOn(t, d, 64, &uverbs.CQOptions{IgnoreOverrun: true, EntrySize: 128, Timestamps: true})
	id := uint64(0)
	for round := range 30 {
		p.send(t, id, 16)
		got := p.take(t, 5)
		if err := p.q.ResizeOwned([]int{200, 64, 1000, 127}[round%4]); err != nil {
			t.Fatal(err)
		}
		var next [2]uint64
		for _, w := range append(got, p.take(t, 32-len(got))...) {
			if w.Err() != nil || w.ID != id+next[w.Side] || w.Timestamp == 0 {
				t.Fatalf("round %d: %+v", round, w)
			}
			next[w.Side]++
		}
		id += 16
	}
}

// A queue with compressed completions keeps its ring, and goes on.
func TestModelCompressedResize(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	p := pairOn(t, d, 64, &uverbs.CQOptions{Compression: uverbs.Compress()})
	p.send(t, 0, 8)
	p.take(t, 3)
	if err := p.q.ResizeOwned(256); !errors.Is(err, uverbs.ErrNotSupported) || !strings.Contains(err.Error(), "compressed") {
		t.Errorf("%v", err)
	}
	p.take(t, 13)
	p.send(t, 8, 8)
	p.take(t, 16)
	if p.q.Depth() != 127 {
		t.Errorf("depth %d", p.q.Depth())
	}
}

// The device's clock makes of a stamp when that was.
func TestModelClock(t *testing.T) {
	for _, khz := range []uint64{1_000_000, 156_250} {
		synctest.Test(t, func(t *testing.T) {
			_, d := wired(t, model.DeviceConfig{ClockKHz: khz})
			c, err := d.Clock()
			if err != nil {
				t.Fatal(err)
			}
			p := pairOn(t, d, 64, &uverbs.CQOptions{Timestamps: true})
			near := func(stamp uint64, want time.Time) {
				t.Helper()
				got, err := c.Time(stamp)
				if off := got.Sub(want); err != nil || off < -100*time.Microsecond || off > 100*time.Microsecond {
					t.Errorf("stamp %#x is of %v, %v; it was %v", stamp, got, err, want)
				}
			}
			var last uint64
			for _, pause := range []time.Duration{0, time.Second, time.Minute, time.Hour, 100 * 24 * time.Hour} {
				time.Sleep(pause)
				p.send(t, 0, 1)
				was := time.Now()
				time.Sleep(10 * time.Second)
				for _, w := range p.take(t, 2) {
					near(w.Timestamp, was)
					last = w.Timestamp
				}
				now, err := c.Ticks()
				if err != nil {
					t.Fatal(err)
				}
				near(now, time.Now())
				if passed := now - last; passed != 10_000*khz {
					t.Errorf("%d ticks of %d kHz in 10 s", passed, khz)
				}
			}
			if _, err := c.Time(0); !errors.Is(err, uverbs.ErrInvalid) {
				t.Errorf("no stamp: %v", err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Time(last); !errors.Is(err, os.ErrClosed) {
				t.Errorf("a closed clock: %v", err)
			}
			if _, err := c.Ticks(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("a closed clock: %v", err)
			}
			if err := c.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("closed twice: %v", err)
			}
			// Another one, which the device closes.
			if c, err = d.Clock(); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Time(last); !errors.Is(err, os.ErrClosed) {
				t.Errorf("the clock of a closed device: %v", err)
			}
			if _, err := d.Clock(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("a clock of a closed device: %v", err)
			}
		})
	}
}

// A queue that was closed holds nothing: its ring is not looked at.
func TestModelUsageClosed(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{})
	q, err := d.NewCQ(500, &uverbs.CQOptions{Stats: &uverbs.StatsOptions{}})
	if err != nil {
		t.Fatal(err)
	}
	var wcs [4]uverbs.WC
	for range 3 {
		q.Poll(wcs[:])
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if u := q.Usage(); u != (uverbs.CQUsage{Depth: 511}) {
		t.Errorf("%+v", u)
	}
}

// The pages of a clock go back to the kernel with the device, before Close.
func TestModelClockGone(t *testing.T) {
	f, d := wired(t, model.DeviceConfig{})
	c, err := d.Clock()
	if err != nil {
		t.Fatal(err)
	}
	f.Model().Device("sim0").Fail()
	for range d.Events() { // the last one is EventDeviceGone
	}
	limit := time.Now().Add(patience)
	for err = nil; err == nil && time.Now().Before(limit); time.Sleep(time.Millisecond) {
		_, err = c.Time(5)
	}
	if !errors.Is(err, uverbs.ErrDeviceGone) || errors.Is(err, os.ErrClosed) {
		t.Errorf("Time: %v, want %v", err, uverbs.ErrDeviceGone)
	}
	if _, err := c.Ticks(); !errors.Is(err, uverbs.ErrDeviceGone) {
		t.Errorf("Ticks: %v, want %v", err, uverbs.ErrDeviceGone)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Time(5); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed clock: %v", err)
	}
}

// A kernel that does not say what ticks are is told of, as is one that refuses the page.
func TestModelClockMissing(t *testing.T) {
	_, d := wired(t, model.DeviceConfig{NoClockPage: true})
	if _, err := d.Clock(); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("%v", err)
	}
	p := pairOn(t, d, 64, &uverbs.CQOptions{Timestamps: true})
	p.send(t, 0, 1)
	for _, w := range p.take(t, 2) {
		if w.Timestamp == 0 {
			t.Errorf("%+v has no stamp, although the device has a clock", w)
		}
	}
}
