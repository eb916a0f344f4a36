//go:build linux

package waiting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// The test's binary is also the process that runs loops.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "loops" {
		if err := ServeLoops(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// short is a configuration on the model that takes little time.
func short(t *testing.T) Config {
	t.Helper()
	f, err := sim.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, v := range f.Model().Violations() {
			t.Errorf("a correct program does not do this: %s", v)
		}
		for _, d := range f.Model().Devices() {
			for kind, n := range d.Objects() {
				if n != 0 {
					t.Errorf("%d of %s are left on %s", n, kind, d.Name())
				}
			}
		}
	})
	c := Default()
	c.Open = func(name string) (*uverbs.Device, error) { return f.Open(name, nil) }
	c.Devices = [2]string{"sim0", "sim1"}
	c.Rounds, c.Slice, c.Batches, c.Outstanding, c.Paces = 2, 2*time.Millisecond, []int{1, 32}, 40, []time.Duration{10 * time.Microsecond, time.Millisecond}
	return c
}

// Every variant is measured in every round, and nothing is left behind.
func TestRun(t *testing.T) {
	c := short(t)
	told := 0
	r, err := Run(t.Context(), c, func(done, of int) {
		if done != told || of != c.Rounds*len(c.Ways)*4 {
			t.Errorf("told %d of %d after %d", done, of, told)
		}
		told++
	})
	if err != nil {
		t.Fatal(err)
	}
	busy := runtime.GOMAXPROCS(0) > 1
	if busy != (len(r.Notes) == 0) || r.Interrupted || r.Device != "sim1" {
		t.Errorf("notes %q, interrupted %v, device %s", r.Notes, r.Interrupted, r.Device)
	}
	seen := map[string]int{}
	for _, row := range r.Rows {
		seen[row.Workload+" "+row.Way]++
		if row.Messages == 0 || row.Rate.N != 2 || row.Rate.Median <= 0 || row.P50.Median <= 0 || row.P99.Median < row.P50.Low || row.P999.Median < row.P99.Low || row.CPU.Median < 0 {
			t.Errorf("%+v", row)
		}
	}
	for _, way := range c.Ways {
		for _, workload := range []string{paced, flood} {
			want := 2
			if way == "busy" && !busy {
				want = 0 // refused, where it would leave no processor for the rest
			}
			if n := seen[workload+" "+way]; n != want {
				t.Errorf("%d rows of %s %s, want %d", n, workload, way, want)
			}
		}
	}
	if len(r.Comparisons) == 0 {
		t.Error("nothing is compared")
	}
}

// A way that does not suit the device is left out, and the reason is said.
func TestRunUnsuitable(t *testing.T) {
	c := short(t)
	c.Ways = []string{"event-thread", "event"}
	r, err := Run(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 4 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "event-thread is left out: ") || !strings.Contains(r.Notes[0], "descriptor") {
		t.Errorf("%d rows, notes %q", len(r.Rows), r.Notes)
	}
	c.Ways = c.Ways[:1]
	if r, err := Run(t.Context(), c, nil); r != nil || err == nil || !strings.Contains(err.Error(), "event-thread is left out: ") {
		t.Errorf("where no way suits: %v, %v", r, err)
	}
}

// What was measured until the context ended is there.
func TestRunInterrupted(t *testing.T) {
	enough := errors.New("enough")
	c := short(t)
	c.Rounds = 1000
	ctx, cancel := context.WithCancelCause(t.Context())
	perRound := len(c.Ways) * 4
	r, err := Run(ctx, c, func(done, of int) {
		if done == perRound*3/2 {
			cancel(enough)
		}
	})
	if !errors.Is(err, enough) || r == nil || !r.Interrupted || len(r.Rows) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := r.Rows[0].Rate.N; n != 1 && n != 2 {
		t.Errorf("%d rounds", n)
	}
}

// A device that fails ends the measurement with an error.
func TestRunFails(t *testing.T) {
	f, err := sim.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := short(t)
	c.Open = func(name string) (*uverbs.Device, error) { return f.Open(name, nil) }
	if _, err = Run(t.Context(), c, func(done, _ int) {
		if done == 1 {
			f.Model().Device("sim1").Fail()
		}
	}); err == nil {
		t.Error("a device was gone, and nothing failed")
	}
}

// The server in its own process speaks lines; here it is one goroutine's of this process.
func TestServe(t *testing.T) {
	c := short(t)
	inr, in := io.Pipe()
	outr, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := Serve(c.Open, inr, out)
		out.Close()
		served <- err
	}()
	s := &remoteServer{in: in, stop: newStopper(t.Context()), answers: make(chan string, 1)}
	go s.listen(outr, func() error { return nil })
	for _, line := range []string{"mark", "flood busy 1 1 1", "open sim1", "dance", "begin busy"} {
		if _, err := s.ask("%s", line); err == nil {
			t.Errorf("%q before open is obeyed", line)
		}
	}
	m := &measurement{config: &c, stop: s.stop, server: s}
	dev, err := c.Open(c.Devices[0])
	if err != nil {
		t.Fatal(err)
	}
	e, err := openEnd(dev, c.Outstanding, false)
	if err != nil {
		t.Fatal(err)
	}
	m.client = newClient(e, s.stop)
	if err := s.connect(&c, e); err != nil {
		t.Fatal(err)
	}
	h, err := findWay("event")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []*variant{{workload: paced, how: h, batch: 32, pace: time.Millisecond}, {workload: flood, how: h, batch: 8}} {
		if err := m.once(v); err != nil || len(v.rate) != 1 || v.messages == 0 {
			t.Errorf("%v: %d messages, %v", v, v.messages, err)
		}
	}
	if v := (&variant{workload: flood, how: how{name: "event-thread"}, batch: 8}); m.once(v) != nil || !strings.Contains(v.left, "descriptor") {
		t.Errorf("a way that needs descriptors: left out because %q", v.left)
	}
	if _, err := s.ask("begin slowly 1"); err == nil || !strings.Contains(err.Error(), "slowly") {
		t.Errorf("an unknown way: %v", err)
	}
	if err := errors.Join(m.close(), <-served); err != nil {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"no way to wait is chosen":   func(c *Config) { c.Ways = nil },
		`no way to wait is "lazily"`: func(c *Config) { c.Ways = []string{"lazily"} },
		"busy is given twice":        func(c *Config) { c.Ways = []string{"busy", "busy"} },
		"no batch is chosen":         func(c *Config) { c.Batches = nil },
		"batch 0: allowed are 1":     func(c *Config) { c.Batches = []int{0} },
		"batch 129":                  func(c *Config) { c.Batches = []int{129} },
		"batch 8 is given twice":     func(c *Config) { c.Batches = []int{8, 8} },
		"0 writes under way":         func(c *Config) { c.Outstanding = 0 },
		"no pace is chosen":          func(c *Config) { c.Paces = nil },
		"a message each 0s":          func(c *Config) { c.Paces = []time.Duration{0} },
		"a message each 2s":          func(c *Config) { c.Paces = []time.Duration{2 * time.Second} },
		"pace 1ms is given twice":    func(c *Config) { c.Paces = []time.Duration{time.Millisecond, time.Millisecond} },
		"slices of 1ns":              func(c *Config) { c.Slice = 1 },
		"0 rounds":                   func(c *Config) { c.Rounds = 0 },
	} {
		c := Default()
		change(&c)
		var bad *usage.Error
		if err := c.Validate(); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if c := Default(); c.Validate() != nil {
		t.Error(c.Validate())
	}
}
