package perf

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

func TestTestNames(t *testing.T) {
	for _, name := range TestNames() {
		for _, prefix := range []string{"", "ib_"} {
			test, err := ParseTest(prefix + name)
			if err != nil || test.String() != name {
				t.Errorf("%s%s is %v, %v", prefix, name, test, err)
			}
		}
	}
	if _, err := ParseTest("ib_send_tput"); err == nil || !strings.Contains(err.Error(), "send_bw, send_lat, write_bw, write_lat, read_bw, read_lat, atomic_bw, atomic_lat") {
		t.Errorf("an unknown test: %v", err)
	}
}

// Defaults are perftest's.
func TestDefaults(t *testing.T) {
	type c = Config
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   func(*Config)
	}{
		{"send_bw", func(*c) {}, func(w *c) {
			w.Size, w.Iters, w.Warmup, w.SendDepth, w.SignalEvery, w.RecvDepth, w.RecvList = 65536, 1000, 100, 128, 1, 512, 64
		}},
		{"send_bw", func(c *c) { c.Size = 64 }, func(w *c) {
			w.Size, w.Iters, w.Warmup, w.SendDepth, w.SignalEvery, w.RecvDepth, w.RecvList = 64, 1000, 100, 128, 100, 512, 64
		}},
		{"send_bw", func(c *c) { c.Transport = "UD" }, func(w *c) {
			w.Transport, w.Iters, w.Warmup, w.SendDepth, w.SignalEvery, w.RecvDepth, w.RecvList = "UD", 1000, 100, 128, 100, 1000, 64
		}},
		{"write_bw", func(c *c) { c.PostList, c.Size = 32, 64 }, func(w *c) {
			w.PostList, w.Size, w.Iters, w.Warmup, w.SendDepth, w.SignalEvery = 32, 64, 5000, 100, 128, 32
		}},
		{"write_bw", func(c *c) { c.Duration, c.SendDepth = time.Second, 16 }, func(w *c) {
			w.Duration, w.Size, w.Warmup, w.SendDepth, w.SignalEvery, w.NoPeak = time.Second, 65536, 100, 16, 1, true
		}},
		{"send_lat", func(c *c) { c.Wait = Event }, func(w *c) {
			w.Wait, w.Size, w.Iters, w.Warmup, w.SendDepth, w.SignalEvery, w.RecvDepth, w.RecvList = Event, 2, 1000, 100, 1, 1, 512, 64
		}},
		{"write_bw", func(c *c) { c.Wait = Event }, func(w *c) {
			w.Wait, w.Size, w.Iters, w.Warmup, w.SendDepth, w.SignalEvery = Event, 65536, 5000, 100, 128, 100
		}},
		{"atomic_bw", func(c *c) { c.Iters = 30000 }, func(w *c) {
			w.Size, w.Iters, w.Warmup, w.SendDepth, w.SignalEvery, w.NoPeak = 8, 30000, 100, 128, 100, true
		}},
		{"read_lat", func(c *c) { c.Iters = 7 }, func(w *c) {
			w.Size, w.Iters, w.Warmup, w.SendDepth, w.SignalEvery = 2, 7, 7, 1, 1
		}},
	} {
		tst, _ := ParseTest(test.name)
		got, want := Default(tst), Default(tst)
		test.change(&got)
		test.want(&want)
		if err := got.Complete(); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(Config{})); d != "" {
			t.Errorf("%s: %s", test.name, d)
		}
		again := got
		if err := again.Complete(); err != nil || again != got {
			t.Errorf("%s: completed twice: %v %+v", test.name, err, again)
		}
	}
}

// What cannot be is refused with what was asked and what is allowed.
func TestBadConfig(t *testing.T) {
	type c = Config
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"send_bw", func(c *c) { c.Port = 0 }, "TCP port (-p) 0: allowed are 1 to 65535"},
		{"send_bw", func(c *c) { c.IBPort = 256 }, "port of the device (-i) 256"},
		{"send_bw", func(c *c) { c.Size = -1 }, "message size (-s) -1: allowed are 1 to 2147483647"},
		{"send_bw", func(c *c) { c.Iters = 4 }, "number of iterations (-n) 4: allowed are 5"},
		{"send_bw", func(c *c) { c.SendDepth = 32768 }, "send depth (-t) 32768: allowed are 1 to 32767"},
		{"send_bw", func(c *c) { c.Inline = -2 }, "inline size (-I) -2: allowed are 0 to 32767"},
		{"send_bw", func(c *c) { c.QPs = 0 }, "number of queue pairs (-q) 0: allowed are 1 to 4096"},
		{"send_bw", func(c *c) { c.QPs = 5000 }, "number of queue pairs (-q) 5000: allowed are 1 to 4096"},
		{"send_bw", func(c *c) { c.MTU = 1500 }, "path MTU (-m) 1500: allowed are 256"},
		{"send_bw", func(c *c) { c.GIDIndex = -2 }, "GID index (-x) -2"},
		{"send_bw", func(c *c) { c.Timeout = 32 }, "timeout (-u) 32: allowed are 0 to 31"},
		{"send_bw", func(c *c) { c.ServiceLevel = 16 }, "service level (-S) 16"},
		{"send_bw", func(c *c) { c.Iters, c.Duration = 10, time.Second }, "-n and -D"},
		{"send_bw", func(c *c) { c.Duration = -time.Second }, "duration (-D) -1s"},
		{"send_bw", func(c *c) { c.Transport = "DC" }, "connection type (-c) DC is not supported: choose RC, UC or UD"},
		{"send_bw", func(c *c) { c.Transport = "XX" }, `connection type (-c) "XX"`},
		{"write_bw", func(c *c) { c.Transport = "UD" }, "write_bw over UD: datagrams can be sent only"},
		{"read_lat", func(c *c) { c.Transport = "UC" }, "read_lat over UC: only RC reads"},
		{"write_lat", func(c *c) { c.Wait = Event }, "write_lat waits for what is written"},
		{"send_lat", func(c *c) { c.Wait = "x" }, `way to wait "x"`},
		{"send_lat", func(c *c) { c.Vector = 1 }, "a completion vector (-X) is of events"},
		{"send_lat", func(c *c) { c.QPs = 2 }, "-q: in a test of latency one message is under way"},
		{"send_lat", func(c *c) { c.Bidirectional = true }, "-b: in a test of latency"},
		{"send_bw", func(c *c) { c.Samples = true }, "are of latencies: choose send_lat"},
		{"send_bw", func(c *c) { c.PostList, c.SendDepth = 64, 32 }, "a list of 64 requests (-l) in a send queue of 32 (-t)"},
		{"send_bw", func(c *c) { c.PostList, c.SignalEvery = 8, 3 }, "a completion for 3 requests (-Q) in lists of 8 (-l)"},
		{"send_bw", func(c *c) { c.RecvDepth, c.RecvList = 8, 9 }, "a list of 9 receives (--recv_post_list)"},
		{"send_bw", func(c *c) { c.ReadDepth = 3 }, "-o: send_bw reads nothing"},
		{"read_bw", func(c *c) { c.Inline = 3 }, "-I: reads and atomics carry nothing"},
		{"atomic_bw", func(c *c) { c.Size = 16 }, "message size (-s) 16: atomics have 8 bytes"},
		{"atomic_bw", func(c *c) { c.All = true }, "all sizes (-a): atomics"},
		{"atomic_bw", func(c *c) { c.Atomic = "ADD" }, `atomic operation (-A) "ADD": choose FETCH_AND_ADD or CMP_AND_SWAP`},
		{"send_bw", func(c *c) { c.All, c.Size = true, 3 }, "-a and -s: choose one"},
	} {
		tst, _ := ParseTest(test.name)
		cfg := Default(tst)
		test.change(&cfg)
		err := cfg.Complete()
		if bad := (*usage.Error)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
