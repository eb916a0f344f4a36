package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/goverbs/goverbs/tools/openmetrics"
	"github.com/goverbs/goverbs/tools/verbs/internal/top"
	"github.com/goverbs/goverbs/tools/verbs/internal/top/trace"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// topPatience is how long what must happen may take on a busy machine.
const topPatience = 60 * time.Second

// topFake is a kernel with one device and one queue; its counter moves.
type topFake struct {
	top.Netlink
	mu    sync.Mutex
	err   error // of every list of devices but the first
	lists int
	dials int // less closes
}

func (f *topFake) Links() ([]nldev.Link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lists++; f.lists > 2 && f.err != nil {
		return nil, f.err
	}
	return []nldev.Link{{Name: "rxe0", NodeType: nldev.NodeCA, Protocol: "roce", Ports: 1}}, nil
}

func (f *topFake) Ports(uint32) ([]nldev.Port, error) {
	return []nldev.Port{{Device: "rxe0", Index: 1, State: nldev.PortActive}}, nil
}

func (f *topFake) Counters(uint32, uint32) (nldev.Counters, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return nldev.Counters{"sent_pkts": uint64(f.lists)}, nil
}

func (f *topFake) Contexts(uint32) ([]nldev.Context, error) { return nil, nil }
func (f *topFake) PDs(uint32) ([]nldev.PD, error)           { return nil, nil }
func (f *topFake) QPs(uint32) ([]nldev.QP, error)           { return nil, nil }
func (f *topFake) MRs(uint32) ([]nldev.MR, error)           { return nil, nil }
func (f *topFake) SRQs(uint32) ([]nldev.SRQ, error)         { return nil, nil }
func (f *topFake) CMIDs(uint32) ([]nldev.CMID, error)       { return nil, nil }
func (f *topFake) CQs(uint32) ([]nldev.CQ, error) {
	return []nldev.CQ{{Owner: nldev.Owner{TID: 7}, ID: 1, Depth: 15}}, nil
}
func (f *topFake) Close() error { f.dials--; return nil }

// topFakeTracer sees the queue half full.
type topFakeTracer struct{ closed *int }

func (f topFakeTracer) Snapshot(dump func() error) (map[trace.CQID]trace.CQ, error) {
	return map[trace.CQID]trace.CQ{{ResID: 1}: {Entries: 15, Ring: &trace.Ring{Occupied: 7, Usable: 15}}}, dump()
}
func (f topFakeTracer) Syscalls() ([]trace.Syscall, error) { return nil, nil }
func (f topFakeTracer) Levels() []trace.Level {
	return []trace.Level{{Name: trace.LevelPull, Live: true}, {Name: trace.LevelRing, Live: true}, {Name: trace.LevelEvents, Why: "not asked for"}, {Name: trace.LevelEveryCQE, Why: "rdma_rxe has no BTF"}}
}
func (f topFakeTracer) Close() error { *f.closed++; return nil }

// topFakeScreen remembers what it was shown.
type topFakeScreen struct {
	frames          chan string
	changed, leave  chan struct{}
	width, height   int
	closed, refuses bool
	shown           func() // nil, or called after each look
}

func (s *topFakeScreen) size() (int, int)         { return s.width, s.height }
func (s *topFakeScreen) resized() <-chan struct{} { return s.changed }
func (s *topFakeScreen) quit() <-chan struct{}    { return s.leave }
func (s *topFakeScreen) close()                   { s.closed = true }
func (s *topFakeScreen) show(lines []string) error {
	if s.refuses {
		return syscall.EIO
	}
	if len(lines) > s.height {
		return fmt.Errorf("%d lines", len(lines))
	}
	if s.shown != nil {
		s.shown()
	}
	select {
	case s.frames <- strings.Join(lines, "\n"):
	case <-s.leave: // nobody looks any more
	}
	return nil
}

func newTopFakeScreen() *topFakeScreen {
	return &topFakeScreen{frames: make(chan string, 100), changed: make(chan struct{}, 1), leave: make(chan struct{}), width: 100, height: 30}
}

// topFakePlace is a machine for the command.
type topFakePlace struct {
	topPlace
	netlink *topFake
	closed  int // tracers
	asked   trace.Options
}

func newTopFakePlace() *topFakePlace {
	p := &topFakePlace{netlink: &topFake{}}
	p.topPlace = topPlace{
		dial: func() (top.Conn, error) { p.netlink.dials++; return p.netlink, nil },
		host: top.Host{Proc: fstest.MapFS{
			"7/status": {Data: []byte("Name:\tstorage\nTgid:\t7\n")}, "7/comm": {Data: []byte("storage\n")},
		}, Sys: fstest.MapFS{}},
		trace: func(o trace.Options) (topTracer, error) {
			p.asked = o
			return topFakeTracer{&p.closed}, nil
		},
		screen: func(io.Writer) (topScreen, error) { return nil, nil },
	}
	return p
}

// do runs the command.
func (p *topFakePlace) do(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = p.run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestTopOnce(t *testing.T) {
	p := newTopFakePlace()
	code, out, errs := p.do(t.Context(), "-once", "-i", "0.1", "-cqe", "-d", "rxe0")
	if code != 0 || errs != "" || p.closed != 1 || p.netlink.dials != 0 || p.asked != (trace.Options{EveryCQE: true}) {
		t.Errorf("status %d, %q, closed %d, %d sockets left, asked %+v", code, errs, p.closed, p.netlink.dials, p.asked)
	}
	for _, want := range []string{
		"rates over ", "1 device, 0 contexts, 0 PDs, 1 CQ,", "live: netlink, pull, ring\n", "not live: events: -events asks for it", "not live: every-cqe: rdma_rxe has no BTF\n",
		"\nrxe0       1  ACTIVE  ", "storage    7     15    7  47     7",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") || strings.Contains(out, "first look") {
		t.Errorf("%s", out)
	}
}

func TestTopJSON(t *testing.T) {
	code, out, errs := newTopFakePlace().do(t.Context(), "-json", "-n", "3", "-i", "100ms", "-trace=off")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if code != 0 || errs != "" || len(lines) != 3 {
		t.Fatalf("status %d, %q, %d lines", code, errs, len(lines))
	}
	for _, line := range lines {
		var l top.Look
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if c := l.Devices[0].Ports[0].Counters[0]; l.Seconds < 0.1 || c.Rate == nil || *c.Rate <= 0 || l.Devices[0].CQs[0].Process != "storage" {
			t.Errorf("%s", line)
		}
		for _, v := range l.Levels[1:] {
			if v.Live || v.Why != "turned off by -trace=off" {
				t.Errorf("%+v", v)
			}
		}
	}
}

// Where the tracer cannot be had the reason is told, and all else is there.
func TestTopUnprivileged(t *testing.T) {
	p := newTopFakePlace()
	p.trace = func(trace.Options) (topTracer, error) {
		return nil, fmt.Errorf("eBPF needs CAP_BPF\nrun as root: %w", syscall.EPERM)
	}
	code, out, errs := p.do(t.Context(), "-once", "-i", "0.1")
	if code != 0 || errs != "" || !strings.Contains(out, "not live: pull, ring, errors, events, syscalls, every-cqe: eBPF needs CAP_BPF; run as root: operation not permitted\n") || !strings.Contains(out, "storage") {
		t.Errorf("status %d, %q\n%s", code, errs, out)
	}
}

func TestTopRefusals(t *testing.T) {
	for args, want := range map[string]string{
		"-x": "there is no flag -x", "rxe0": `unexpected argument "rxe0"`, "-i 0": `"0" is not a time from 100ms to 1h0m0s`, "-i -1": "is not a time", "-i NaN": "is not a time",
		"-i 1e300": "is not a time", "-i soon": `"soon" is not a time`, "-n -1": "-n -1: the number of looks", "-once -n 2": "-once is one look", "-once -n 0": "-once is one look, and -n 0 goes on", "-trace=on": "-trace=on: it is auto or off",
		"-trace=off -cqe": "-trace=off turns off", "-listen :1 -once": "do not go with it", "-listen :1 -json": "do not go with it", "-listen 9400": "an address is host:port",
		"-listen localhost:": "an address is host:port", "-listen [::1": "or [::1]:9400", "-listen :65536": "a port is a number up to 65535", "-listen :-1": "a port is a number",
		"-listen=": "-listen has nothing in it", "-d=": "-d has nothing in it", "-d sim0": "in software", "-d nosuch0": `-d "nosuch0": there is no such device; there are: rxe0`,
	} {
		p := newTopFakePlace()
		code, out, errs := p.do(t.Context(), strings.Fields(args)...)
		if code != 2 || out != "" || !strings.HasPrefix(errs, "verbs top: ") || !strings.Contains(errs, want) || p.closed != 0 {
			t.Errorf("%s: status %d, %q, %q", args, code, out, errs)
		}
	}
	p := newTopFakePlace()
	p.dial = func() (top.Conn, error) { return nil, fmt.Errorf("nldev: %w", nldev.ErrNoRDMA) }
	if code, out, errs := p.do(t.Context()); code != 1 || out != "" || !strings.Contains(errs, "ib_core is not loaded; verbs doctor says what to do\n") {
		t.Errorf("no RDMA: status %d, %q, %q", code, out, errs)
	}
	if code, out, errs := p.do(t.Context(), "-d", "sim0"); code != 2 || out != "" || !strings.Contains(errs, "in software") {
		t.Errorf("a device of the model, no RDMA: status %d, %q, %q", code, out, errs)
	}
	p = newTopFakePlace()
	p.netlink.err = syscall.ENOBUFS
	if code, out, errs := p.do(t.Context(), "-n", "5", "-i", "0.1"); code != 1 || out != "" || !strings.Contains(errs, "no buffer space") {
		t.Errorf("netlink fails: status %d, %q, %q", code, out, errs)
	}
	var errs bytes.Buffer
	for _, args := range [][]string{{"-once", "-i", "0.1"}, {"-once", "-json", "-i", "0.1"}} {
		if code := newTopFakePlace().run(t.Context(), args, full{}, &errs); code != 1 || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%q: status %d, %q", args, code, errs.String())
		}
	}
	if code, out, errs := newTopFakePlace().do(t.Context(), "-h"); code != 0 || errs != "" || !strings.HasPrefix(out, "usage: verbs top") || !strings.Contains(out, "-listen") {
		t.Errorf("-h: status %d, %q, %q", code, out, errs)
	}
}

// Ctrl-C ends it: well, if there was something to see.
func TestTopInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	p := newTopFakePlace()
	if code, out, errs := p.do(ctx, "-once"); code != 1 || out != "" || !strings.Contains(errs, "ended before the first look was complete: enough") || p.closed != 1 {
		t.Errorf("status %d, %q, %q", code, out, errs)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() { code <- newTopFakePlace().run(ctx, []string{"-json", "-i", "0.1"}, w, io.Discard) }()
	var l top.Look
	d := json.NewDecoder(r)
	for range 2 {
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
	}
	cancel(errors.New("enough"))
	go io.Copy(io.Discard, r)
	if c := waitFor(t, code); c != 0 {
		t.Errorf("status %d", c)
	}
}

func waitFor[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(topPatience):
		t.Fatal("nothing came")
	}
	return v
}

// On a terminal the view renews itself, at a resize at once, until q.
func TestTopScreen(t *testing.T) {
	p, s := newTopFakePlace(), newTopFakeScreen()
	p.screen = func(io.Writer) (topScreen, error) { return s, nil }
	code := make(chan int, 1)
	go func() { c, _, _ := p.do(t.Context(), "-i", "0.1"); code <- c }()
	if f := waitFor(t, s.frames); !strings.Contains(f, "attaching probes") {
		t.Errorf("before all:\n%s", f)
	}
	if f := waitFor(t, s.frames); !strings.Contains(f, "first look, no rates yet") {
		t.Errorf("first:\n%s", f)
	}
	if f := waitFor(t, s.frames); !strings.Contains(f, "rates over ") || !strings.Contains(f, "storage") {
		t.Errorf("second:\n%s", f)
	}
	close(s.leave)
	if c := waitFor(t, code); c != 0 || !s.closed || p.closed != 1 {
		t.Errorf("status %d, screen closed %v, tracers closed %d", c, s.closed, p.closed)
	}

	// An hour between looks: what comes is of the resize.
	p, s = newTopFakePlace(), newTopFakeScreen()
	p.screen = func(io.Writer) (topScreen, error) { return s, nil }
	ctx, cancel := context.WithCancel(t.Context())
	go func() { c, _, _ := p.do(ctx, "-i", "1h", "-trace=off"); code <- c }()
	waitFor(t, s.frames)
	s.changed <- struct{}{}
	waitFor(t, s.frames)
	cancel()
	if c := waitFor(t, code); c != 0 || !s.closed {
		t.Errorf("status %d, closed %v", c, s.closed)
	}

	// Netlink fails: the last look stays, with a sentence.
	p, s = newTopFakePlace(), newTopFakeScreen()
	p.netlink.err = errors.New("no buffer \x1b space")
	p.screen = func(io.Writer) (topScreen, error) { return s, nil }
	go func() { c, _, _ := p.do(t.Context(), "-i", "0.1", "-n", "2", "-trace=off"); code <- c }()
	waitFor(t, s.frames)
	if f := waitFor(t, s.frames); !strings.HasPrefix(f, "no look since: no buffer ? space") || !strings.Contains(f, "storage") {
		t.Errorf("after a failure:\n%s", f)
	}
	if c := waitFor(t, code); c != 0 {
		t.Errorf("status %d", c)
	}

	// A terminal that is gone.
	s = newTopFakeScreen()
	s.refuses = true
	p.netlink.err = nil
	p.screen = func(io.Writer) (topScreen, error) { return s, nil }
	if code, _, errs := p.do(t.Context()); code != 1 || !strings.Contains(errs, "input/output error") || !s.closed {
		t.Errorf("status %d, %q", code, errs)
	}
}

// topScrape fetches the metrics.
func topScrape(t *testing.T, addr string) string {
	t.Helper()
	var answer []byte
	// The server does not wait for clients that take long to ask, which this
	// one may on a busy machine.
	for end := time.Now().Add(topPatience); ; {
		var err error
		if answer, err = topGet(addr); err == nil && len(answer) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no answer: %v", err)
		}
	}
	head, body, ok := strings.Cut(string(answer), "\r\n\r\n")
	if !ok || !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") {
		t.Fatalf("%q", answer)
	}
	if _, err := openmetrics.Parse(body); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return body
}

// topGet asks once.
func topGet(addr string) ([]byte, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(topPatience))
	if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return nil, err
	}
	return io.ReadAll(c)
}

func TestTopListen(t *testing.T) {
	p := newTopFakePlace()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() { code <- p.run(ctx, []string{"-listen", "127.0.0.1:0", "-i", "0.1"}, io.Discard, w) }()
	buf := make([]byte, 4096)
	n, err := r.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r)
	m := regexp.MustCompile(`^verbs top: serving http://(127\.0\.0\.1:\d+)/metrics, a look every 100ms; Ctrl-C ends it\n`).FindSubmatch(buf[:n])
	if m == nil {
		t.Fatalf("%q", buf[:n])
	}
	addr := string(m[1])
	for _, want := range []string{"\ngoverbs_top_up 1\n", `goverbs_top_cq_occupied{device="rxe0",cq="1",process="storage",pid="7"} 7`, `goverbs_top_level_live{level="events"} 0`} {
		if text := topScrape(t, addr); !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	// The series stay the same from look to look.
	names := func(s string) string { return regexp.MustCompile(`(?m) \S+$`).ReplaceAllString(s, "") }
	first := topScrape(t, addr)
	for end := time.Now().Add(topPatience); ; time.Sleep(10 * time.Millisecond) {
		again := topScrape(t, addr)
		if names(first) != names(again) {
			t.Fatalf("series changed from\n%s\nto\n%s", first, again)
		}
		if first != again {
			break // another look
		}
		if time.Now().After(end) {
			t.Fatal("no look comes")
		}
	}
	p.netlink.mu.Lock()
	p.netlink.err = syscall.ENOBUFS
	p.netlink.mu.Unlock()
	for end := time.Now().Add(topPatience); !strings.Contains(topScrape(t, addr), "goverbs_top_up 0\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("looks fail, and it is up")
		}
	}
	cancel()
	if c := waitFor(t, code); c != 0 || p.closed != 1 {
		t.Errorf("status %d, tracers closed %d", c, p.closed)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p = newTopFakePlace()
	if code, _, errs := p.do(t.Context(), "-listen", l.Addr().String()); code != 1 || !strings.Contains(errs, "-listen 127.0.0.1:") || !strings.Contains(errs, "another program has that port") || p.closed != 0 {
		t.Errorf("status %d, %q", code, errs)
	}
	for err, want := range map[error]string{syscall.EACCES: "ports below 1024", syscall.EADDRNOTAVAIL: "no interface here has that address", syscall.EINVAL: "needs its interface"} {
		if hint := topListenHint(&net.OpError{Op: "listen", Err: err}); !strings.Contains(hint, want) {
			t.Errorf("%v: %q", err, hint)
		}
	}
}

// Between looks there is no socket, which would hold the kernel's module: a driver
// could not be restarted under an exporter.
func TestTopHoldsNothing(t *testing.T) {
	p, s := newTopFakePlace(), newTopFakeScreen()
	p.screen = func(io.Writer) (topScreen, error) { return s, nil }
	held := make(chan int, 1)
	s.shown = func() { held <- p.netlink.dials }
	code := make(chan int, 1)
	go func() { c, _, _ := p.do(t.Context(), "-i", "0.1", "-n", "1", "-trace=off"); code <- c }()
	for range 2 {
		if n := waitFor(t, held); n != 0 {
			t.Errorf("%d sockets after a look", n)
		}
	}
	if c := waitFor(t, code); c != 0 {
		t.Errorf("status %d", c)
	}
}

// Looks that take long are not made one upon the other. Most of the rest may be over when
// this test comes to look at it.
func TestTopRestsAsLong(t *testing.T) {
	r := topRun{o: topOptions{interval: 100 * time.Millisecond}}
	if rest := time.Until(r.next(time.Now().Add(-10 * time.Second))); rest < time.Second || rest > topPatience {
		t.Errorf("after a look of 10 s it rests %v", rest)
	}
}
