package perf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

// Every test over every transport, in every way to wait: the counts are right on both
// sides, and all figures are there and follow from each other.
func TestMatrix(t *testing.T) {
	for _, name := range TestNames() {
		for _, transport := range []string{"RC", "UC", "UD"} {
			for _, wait := range []string{Busy, Event, Adaptive} {
				c := config(t, name, func(c *Config) { c.Transport, c.Wait = transport, wait })
				if again := c; again.Complete() != nil {
					continue // there is no such test: see TestBadConfig
				}
				t.Run(name+"/"+transport+"/"+wait, func(t *testing.T) {
					client, server := measured(t, c)
					for _, r := range []*Report{client, server} {
						checkReport(t, r, &c)
					}
					if !c.lossy() && (client.Iterations != 60 || server.Iterations != 60) {
						t.Errorf("%d and %d messages of 60", client.Iterations, server.Iterations)
					}
					if server.Lost != 0 && server.Lost+server.Iterations != client.Iterations {
						t.Errorf("%d lost and %d received of %d", server.Lost, server.Iterations, client.Iterations)
					}
				})
			}
		}
	}
}

// checkReport looks at what has to be true of every whole report.
func checkReport(t *testing.T, r *Report, c *Config) {
	t.Helper()
	if r.Test != c.Test.String() || r.Transport != c.Transport || r.Wait != c.Wait || r.QPs != c.QPs || r.Bytes != c.Size && !c.All && c.Size != 0 || r.Partial {
		t.Errorf("%+v is of another test", r)
	}
	if r.Device == r.PeerDevice || r.Role != "both" || r.MTU != 4096 || r.Seconds <= 0 {
		t.Errorf("%+v", r)
	}
	if r.Iterations > 0 {
		if rate := float64(r.Iterations) / r.Seconds; !c.Bidirectional && math.Abs(r.MessagesPerSec-rate) > rate/1e6 {
			t.Errorf("%d messages in %v s are %v a second", r.Iterations, r.Seconds, r.MessagesPerSec)
		}
		if mb := r.MessagesPerSec * float64(r.Bytes) / 1e6; math.Abs(r.BandwidthMBps-mb) > mb/1e6 {
			t.Errorf("%v messages of %d bytes a second are %v MB/s", r.MessagesPerSec, r.Bytes, r.BandwidthMBps)
		}
	}
	if !c.Test.Latency {
		if r.Latency != nil || r.Histogram != nil {
			t.Errorf("a latency of a bandwidth: %+v", r.Latency)
		}
		return
	}
	l := r.Latency
	if l == nil {
		t.Fatalf("no latency: %+v", r)
	}
	if l.Min > l.Typical || l.Typical > l.P99 || l.P99 > l.P999 || l.P999 > l.Max || l.Min > l.Avg || l.Avg > l.Max || l.Stdev < 0 || l.N < 59 || l.N > 60 {
		t.Errorf("latencies %+v", l)
	}
	var n int64
	for _, b := range r.Histogram {
		n += b.Count
	}
	if n != l.N {
		t.Errorf("a histogram of %d latencies, where there are %d", n, l.N)
	}
}

// Queue pairs, lists, completions now and then, both directions, all sizes, inline, depths
// of one, and combinations of these.
func TestShapes(t *testing.T) {
	for name, test := range map[string]struct {
		test   string
		change func(*Config)
		want   int64
	}{
		"queue pairs":          {"send_bw", func(c *Config) { c.QPs = 5 }, 300},
		"lists":                {"send_bw", func(c *Config) { c.PostList, c.Iters = 16, 64 }, 64},
		"a last list":          {"send_bw", func(c *Config) { c.PostList, c.Iters, c.Warmup, c.SignalEvery = 16, 61, 17, 4 }, 61},
		"lists of many":        {"write_bw", func(c *Config) { c.PostList, c.Iters, c.QPs, c.SendDepth = 16, 64, 3, 32 }, 192},
		"lists and more":       {"write_bw", func(c *Config) { c.PostList, c.SignalEvery, c.Iters = 16, 4, 64 }, 64},
		"all signalled":        {"send_bw", func(c *Config) { c.SignalEvery = 1 }, 60},
		"seven do not divide":  {"read_bw", func(c *Config) { c.SignalEvery, c.SendDepth = 7, 7 }, 60},
		"a depth of one":       {"send_bw", func(c *Config) { c.SendDepth, c.RecvDepth, c.Iters, c.Warmup = 1, 1, 8, 0 }, 8},
		"a depth of three":     {"send_bw", func(c *Config) { c.SendDepth, c.RecvDepth, c.RecvList = 3, 3, 2 }, 60},
		"few receives":         {"send_lat", func(c *Config) { c.RecvDepth = 1 }, 60},
		"both directions":      {"send_bw", func(c *Config) { c.Bidirectional, c.QPs = true, 2 }, 120},
		"both write":           {"write_bw", func(c *Config) { c.Bidirectional = true }, 60},
		"both read":            {"read_bw", func(c *Config) { c.Bidirectional, c.Wait = true, Event }, 60},
		"both add":             {"atomic_bw", func(c *Config) { c.Bidirectional = true }, 60},
		"swap":                 {"atomic_lat", func(c *Config) { c.Atomic = CompareSwap }, 60},
		"swap many":            {"atomic_bw", func(c *Config) { c.Atomic, c.ReadDepth = CompareSwap, 2 }, 60},
		"inline":               {"send_bw", func(c *Config) { c.Inline = 64 }, 60},
		"inline writes":        {"write_bw", func(c *Config) { c.Inline, c.SignalEvery = 64, 1 }, 60},
		"inline datagrams":     {"send_bw", func(c *Config) { c.Inline, c.Transport = 64, "UD" }, 60},
		"a byte":               {"write_lat", func(c *Config) { c.Size = 1 }, 60},
		"not in the request":   {"write_lat", func(c *Config) { c.Size = 4097 }, 60},
		"more than 256":        {"write_lat", func(c *Config) { c.Iters, c.Warmup = 600, 256 }, 600},
		"large":                {"send_lat", func(c *Config) { c.Size, c.Iters, c.Warmup = 1<<20, 5, 0 }, 5},
		"small packets":        {"write_lat", func(c *Config) { c.Size, c.MTU = 1025, 4096 }, 60},
		"no warm-up":           {"read_lat", func(c *Config) { c.Warmup = 0 }, 60},
		"all sizes":            {"write_lat", func(c *Config) { c.All, c.Size, c.Iters, c.Warmup = true, 0, 5, 0 }, 5},
		"all datagrams":        {"send_lat", func(c *Config) { c.All, c.Size, c.Transport, c.Iters, c.Warmup = true, 0, "UD", 5, 0 }, 5},
		"the largest datagram": {"send_lat", func(c *Config) { c.Size, c.Transport = 4096, "UD" }, 60},
		"options of packets":   {"send_bw", func(c *Config) { c.HopLimit, c.TrafficClass, c.ServiceLevel, c.Timeout, c.GIDIndex = 3, 4, 5, 0, 2 }, 60},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, test.test, test.change)
			client, server := measured(t, c)
			if client.Iterations != test.want || !c.lossy() && server.Iterations != test.want {
				t.Errorf("%d and %d messages of %d", client.Iterations, server.Iterations, test.want)
			}
			if c.Bidirectional {
				for _, r := range []*Report{client, server} {
					if own := float64(r.Iterations) / r.Seconds; r.MessagesPerSec <= own {
						t.Errorf("both directions make %v messages a second, one makes %v", r.MessagesPerSec, own)
					}
				}
			}
			if c.Inline > 0 && client.Inline != c.Inline {
				t.Errorf("%d bytes inline of %d", client.Inline, c.Inline)
			}
		})
	}
}

// Atomics are carried out: the other side's word is the number of messages.
func TestAtomicsCount(t *testing.T) {
	c := config(t, "atomic_bw", func(c *Config) { c.QPs = 2 })
	a, b := openPair(t, fabric(t), c, c)
	if pc, ps := playBoth(t.Context(), t.Context(), a, b, nil); pc.err != nil || ps.err != nil {
		t.Fatal(pc.err, ps.err)
	}
	for i := range 2 {
		if got := b.mem.Uint64(b.in(i)).Load(); got != 70 {
			t.Errorf("queue pair %d has added %d times, of 10 to warm up and 60", i, got)
		}
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
}

// By time: both sides agree on how many messages that was.
func TestDuration(t *testing.T) {
	for _, name := range []string{"send_bw", "write_bw", "read_lat", "send_lat", "write_lat", "send_bw -b", "send_bw UD", "send_lat -e", "send_bw -e"} {
		t.Run(name, func(t *testing.T) {
			test, way, _ := strings.Cut(name, " ")
			c := config(t, test, func(c *Config) { c.Iters, c.Duration = 0, 50*time.Millisecond })
			switch way {
			case "-b":
				c.Bidirectional = true
			case "UD":
				c.Transport = way
			case "-e":
				c.Wait = Event
			}
			client, server := measured(t, c)
			if client.Iterations == 0 || client.Seconds < 0.025 {
				t.Errorf("%d messages in %v s of 50 ms, by a clock that may be a little wrong", client.Iterations, client.Seconds)
			}
			if got := server.Iterations + server.Lost; got != client.Iterations && !c.Bidirectional && !c.Test.alternates() {
				t.Errorf("%d messages, of which the server knows %d", client.Iterations, got)
			}
		})
	}
}

// A machine may stand still for the whole time: one message is measured even so.
func TestDurationOver(t *testing.T) {
	g := &game{stream: &stream{}, times: newTimes(2), first: true, limit: unknown}
	g.start()
	g.over.Store(true)
	at, ok := g.more()
	if !ok {
		t.Fatal("it ends before its first message")
	}
	g.posted++
	g.note(at)
	if _, ok := g.more(); ok || g.limit != 1 || g.times.tally().n != 1 {
		t.Errorf("after one message it goes on: %v, to %d, with %d times", ok, g.limit, g.times.tally().n)
	}
	for _, name := range []string{"send_lat", "write_lat", "read_lat", "send_bw", "read_bw"} {
		c := config(t, name, func(c *Config) { c.Iters, c.Duration = 0, 1 })
		if client, _ := measured(t, c); client.Iterations == 0 || c.Test.Latency && client.Latency == nil {
			t.Errorf("%s: %+v", name, client)
		}
	}
}

// The side that answers may hear that there is no more while its own last write is under
// way: it does not wait for another message then.
func TestLastAnswer(t *testing.T) {
	c := config(t, "write_lat", func(c *Config) { c.Iters, c.Duration = 0, time.Hour })
	a, b := openPair(t, fabric(t), c, c)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	here, there := net.Pipe()
	type begun struct {
		p   *phase
		err error
	}
	client := make(chan begun)
	begin := func(s *Side, conn net.Conn) (*phase, error) {
		if err := s.Meet(ctx, conn); err != nil {
			return nil, err
		}
		s.size(64)
		return s.newPhase(ctx)
	}
	go func() {
		p, err := begin(a, here)
		client <- begun{p, err}
	}()
	p, err := begin(b, there)
	if first := <-client; err != nil || first.err != nil {
		t.Fatal(err, first.err)
	}
	w, release, err := b.newWait(p)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	g := b.newGame(w, b.link, 0, c.Duration, newTimes(100))
	if err := g.post(); err != nil {
		t.Fatal(err)
	}
	g.received = g.posted
	p.endSoft(errPeerSent)
	for !p.softly.Load() {
		runtime.Gosched()
	}
	if err := g.ended(); err != nil || g.sent != 1 {
		t.Fatal(g.sent, err)
	}
	word, shift := lastByte(b.mem, b.in(0)+63)
	if err := g.writes(word, shift, &b.mem.Bytes()[b.out(0)+63]); err != nil || g.posted != 1 {
		t.Fatalf("%d messages: %v", g.posted, err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
}

// Who receives has no rate that is too large because messages were there before it looked.
func TestTook(t *testing.T) {
	for _, test := range []struct{ first, last, received, ahead, want int64 }{
		{0, 500, 0, 0, 500},           // who sends
		{100, 500, 80, 40, 800},       // half of them were there
		{400, 500, 101, 1, 101},       // one was
		{499, 500, 20, 20, 500},       // all were
		{0, 0, 0, 0, 1000},            // ended before its time
		{100, 0, 50, 10, 900 * 5 / 4}, // the same, of who receives
	} {
		s := &stream{first: test.first, last: test.last, received: test.received, ahead: test.ahead, stretch: stretch{ticks: 1000, duration: 1000}}
		if got := s.took(); got != test.want {
			t.Errorf("%+v: %d ns", test, got)
		}
	}
}

// Where there are as many receives as messages none is lost, whatever the warm-up has left.
func TestNothingLost(t *testing.T) {
	for _, transport := range []string{"UC", "UD"} {
		c := config(t, "send_bw", func(c *Config) {
			c.Transport, c.Iters, c.Warmup, c.SendDepth, c.RecvDepth, c.RecvList = transport, 300, 63, 300, 300, 64
		})
		client, server := measured(t, c)
		if client.Iterations != 300 || server.Iterations != 300 || server.Lost != 0 {
			t.Errorf("%s: %d messages sent, %d received, %d lost", transport, client.Iterations, server.Iterations, server.Lost)
		}
	}
}

// Sides that want different things say so on both sides, and what.
func TestDisagreement(t *testing.T) {
	for name, test := range map[string]struct {
		change       func(*Config)
		mine, theirs string
	}{
		"size":       {func(c *Config) { c.Size = 128 }, "-s 64 here and 128 there", "-s 128 here and 64 there"},
		"all":        {func(c *Config) { c.All, c.Size = true, 0 }, "-s 64 here and all (-a) from 2 to 8388608 there", "-s all (-a) from 2 to 8388608 here and 64 there"},
		"iterations": {func(c *Config) { c.Iters = 61 }, "-n 60 here and 61 there", "-n 61 here and 60 there"},
		"duration":   {func(c *Config) { c.Iters, c.Duration = 0, 2*time.Second }, "-D 0s here and 2s there", "-n 0 here and 60 there, -D 2s here and 0s there"},
		"warm-up":    {func(c *Config) { c.Warmup = 3 }, "-warmup 10 here and 3 there", "-warmup 3 here and 10 there"},
		"queues":     {func(c *Config) { c.QPs = 2 }, "-q 1 here and 2 there", "-q 2 here and 1 there"},
		"transport":  {func(c *Config) { c.Transport = "UC" }, "-c RC here and UC there", "-c UC here and RC there"},
		"directions": {func(c *Config) { c.Bidirectional = true }, "-b false here and true there", "-b true here and false there"},
		"test":       {func(c *Config) { c.Test.Verb = Write }, "the other side measures write_bw, and this one send_bw", "the other side measures send_bw, and this one write_bw"},
	} {
		t.Run(name, func(t *testing.T) {
			mine := config(t, "send_bw", nil)
			theirs := config(t, "send_bw", test.change)
			a, b := openPair(t, fabric(t), mine, theirs)
			pc, ps := playBoth(t.Context(), t.Context(), a, b, nil)
			for _, side := range []struct {
				err  error
				want string
			}{{pc.err, test.mine}, {ps.err, test.theirs}} {
				if bad := (*usage.Error)(nil); !errors.As(side.err, &bad) || !strings.Contains(side.err.Error(), side.want) {
					t.Errorf("%v, want %q", side.err, side.want)
				}
			}
			a.Close()
			b.Close()
		})
	}
}

// What a side chooses for itself need not be the same.
func TestOwnChoices(t *testing.T) {
	a, b := openPair(t, fabric(t), config(t, "send_bw", func(c *Config) { c.PostList, c.SendDepth, c.MTU, c.Iters = 4, 8, 1024, 64 }),
		config(t, "send_bw", func(c *Config) { c.RecvDepth, c.Wait, c.MTU, c.Iters = 9, Event, 2048, 64 }))
	pc, ps := playBoth(t.Context(), t.Context(), a, b, nil)
	if pc.err != nil || ps.err != nil {
		t.Fatal(pc.err, ps.err)
	}
	if c, s := pc.reports[0], ps.reports[0]; c.MTU != 1024 || s.MTU != 1024 || c.Wait != Busy || s.Wait != Event || c.Iterations != 64 || s.Iterations != 64 {
		t.Errorf("%+v\n%+v", c, s)
	}
	a.Close()
	b.Close()
}

// An interrupt on either side ends both, and each has a report of what there was, marked
// as partial.
func TestInterrupt(t *testing.T) {
	for i, name := range []string{"send_bw", "write_bw", "send_lat", "write_lat", "read_lat", "send_bw -e", "send_lat -e", "send_bw UD", "send_lat UC", "send_bw -D"} {
		for j, who := range []string{"client", "server", "both"} {
			if i > 1 && j != i%3 {
				continue
			}
			t.Run(name+"/"+who, func(t *testing.T) {
				test, way, _ := strings.Cut(name, " ")
				c := config(t, test, func(c *Config) { c.Iters = 1 << 30 })
				switch way {
				case "-e":
					c.Wait = Event
				case "-D":
					c.Iters, c.Duration = 0, 300*24*time.Hour
				case "":
				default:
					c.Transport = way
				}
				a, b := openPair(t, fabric(t), c, c)
				why := errors.New("Ctrl-C")
				clientCtx, stopClient := context.WithCancelCause(t.Context())
				serverCtx, stopServer := context.WithCancelCause(t.Context())
				defer stopClient(nil)
				defer stopServer(nil)
				var count atomic.Int64
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					for end := time.Now().Add(5 * time.Minute); count.Load() < 30 && time.Now().Before(end); {
						time.Sleep(time.Millisecond)
					}
					if who != "server" {
						stopClient(why)
					}
					if who != "client" {
						stopServer(why)
					}
				}()
				pc, ps := playBoth(clientCtx, serverCtx, a, b, &count)
				<-stopped
				for _, s := range []struct {
					name string
					played
				}{{"client", pc}, {"server", ps}} {
					mine := who == s.name || who == "both"
					if mine && !errors.Is(s.err, why) && !Stopped(s.err) || !mine && !Stopped(s.err) {
						t.Errorf("the %s: %v", s.name, s.err)
					}
					// The server may be interrupted when it has not begun yet.
					if len(s.reports) != 1 && !(s.name == "server" && mine && len(s.reports) == 0) {
						t.Errorf("the %s has reports %+v, %v", s.name, s.reports, s.err)
					}
					for _, r := range s.reports {
						if !r.Partial {
							t.Errorf("the %s has a whole report %+v", s.name, r)
						}
					}
				}
				if len(pc.reports) == 1 && pc.reports[0].Iterations < 10 {
					t.Errorf("%d messages of at least 10", pc.reports[0].Iterations)
				}
				a.Close()
				b.Close()
			})
		}
	}
}

// The text is a table that scripts which read perftest's can read, and JSON a line that
// has all keys.
func TestWrite(t *testing.T) {
	c := config(t, "send_bw", nil)
	a, b := openPair(t, fabric(t), c, c)
	pc, ps := playBoth(t.Context(), t.Context(), a, b, nil)
	if pc.err != nil || ps.err != nil {
		t.Fatal(pc.err, ps.err)
	}
	var out bytes.Buffer
	var text Text
	conf := a.Config()
	if err := errors.Join(text.WriteHead(&out, a), text.WriteResult(&out, &conf, pc.reports[0]), text.WriteTail(&out)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	at := slices.Index(lines, " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]")
	if at < 0 || at+2 != len(lines)-1 {
		t.Fatalf("no table:\n%s", out.String())
	}
	f := strings.Fields(lines[at+1])
	if len(f) != 5 || f[0] != "64" || f[1] != "60" || f[4] == "0.000000" {
		t.Errorf("row %q", f)
	}
	for _, want := range []string{"                    Send BW Test\n", " TX depth        : 128\n", " CQ Moderation   : 100\n", " Mtu             : 4096[B]\n", " Connection type : RC\t\tUsing SRQ      : OFF\n", " local address: LID 0000 QPN 0x", " remote address: LID 0000 QPN 0x"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := pc.reports[0].WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields("test role transport device peer_device bytes iterations qps post_list signal_every send_depth recv_depth inline mtu wait seconds partial bandwidth_mb_s messages_per_s latency_usec histogram cpu") {
		if _, ok := got[key]; !ok {
			t.Errorf("no key %q in %s", key, out.String())
		}
	}
	a.Close()
	b.Close()
}

// A peer that knows the greeting and then lies does no harm: what it says is refused.
func TestLiar(t *testing.T) {
	f := fabric(t)
	c := config(t, "send_bw", nil)
	honest, other := openPair(t, f, c, c)
	good := other.offer
	for name, test := range map[string]struct {
		lie  func(o *offer)
		want string
	}{
		"too few queues":    {func(o *offer) { o.Endpoints = nil }, "0 queue pairs of 1"},
		"a large number":    {func(o *offer) { o.Endpoints = []endpoint{{1 << 24, 0}} }, "24 bits"},
		"no MTU":            {func(o *offer) { o.MTU = 1 << 30 }, "a path MTU of 1073741824"},
		"negative reads":    {func(o *offer) { o.ReadDepth = -1 }, "-1 reads at a time"},
		"no GID":            {func(o *offer) { o.GID = "\x1b]0;x" }, `GID "?]0;x"`},
		"no memory":         {func(o *offer) { o.Region.Length = 1 }, "1 bytes of memory"},
		"memory at the end": {func(o *offer) { o.Region.Addr = math.MaxUint64 }, "bytes of memory"},
		"a huge stride":     {func(o *offer) { o.Stride = math.MaxUint64 }, "bytes of memory"},
		"a name":            {func(o *offer) { o.Test = "\x1b[2J" }, "the other side measures ?[2J"},
	} {
		o := good
		test.lie(&o)
		err := honest.offer.disagree(&o)
		if err == nil {
			err = o.check(&honest.offer)
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	// One that speaks out of turn, and one that hangs up.
	for name, say := range map[string]string{"a result": `{"result":{"sent":-5}}`, "nothing": "", "rubbish": "]["} {
		here, there := net.Pipe()
		go func() {
			l := newLink(there)
			if say != "" {
				there.Write(framed(say))
			}
			l.Close()
		}()
		s, _ := openPair(t, f, c, c)
		p := s.play(t.Context(), here, nil)
		if p.err == nil || len(p.reports) != 0 {
			t.Errorf("%s: %v, %d reports", name, p.err, len(p.reports))
		}
		s.Close()
	}
	honest.Close()
	other.Close()
}

func ExampleParseTest() {
	test, err := ParseTest("ib_read_lat")
	fmt.Println(test, test.Latency, err)
	// Output: read_lat true <nil>
}
