package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/top"
	"github.com/goverbs/goverbs/uverbs"
)

// guestPatience is how long what must come may take, under emulation on a busy
// machine.
const guestPatience = 2 * time.Minute

// topProgram skips where a program is not there.
func topProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("declared skip: %s is not here; run in the guest: rxevm test, or rxevm run -with rdma-core", name)
	}
	return path
}

// topLooks is a run of verbs top -json whose looks are read one by one.
type topLooks struct {
	d    *json.Decoder
	end  func()
	code chan int
	errs bytes.Buffer
}

// watchTop starts verbs top in this process and waits for its first look, so that
// all probes are there.
func watchTop(t *testing.T, args ...string) *topLooks {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	l := &topLooks{d: json.NewDecoder(r), code: make(chan int, 1)}
	go func() {
		code := cmdTop(ctx, append([]string{"-json"}, args...), w, &l.errs)
		w.Close()
		l.code <- code
	}()
	ended := false
	l.end = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		go io.Copy(io.Discard, r)
		if c := waitFor(t, l.code); c != 0 {
			t.Errorf("verbs top ends with %d: %s", c, l.errs.String())
		}
	}
	t.Cleanup(l.end)
	l.next(t)
	return l
}

func (l *topLooks) next(t *testing.T) *top.Look {
	t.Helper()
	var look top.Look
	if err := l.d.Decode(&look); err != nil {
		t.Fatalf("no look: %v: %s", err, l.errs.String())
	}
	return &look
}

// until reads looks until one has what is wanted. wanted returns "" or what it
// misses.
func (l *topLooks) until(t *testing.T, wanted func(*top.Look) string) *top.Look {
	t.Helper()
	for end := time.Now().Add(guestPatience); ; {
		look := l.next(t)
		missing := wanted(look)
		if missing == "" {
			return look
		}
		if time.Now().After(end) {
			b, _ := json.MarshalIndent(look, "", " ")
			t.Fatalf("%s in %s", missing, b)
		}
	}
}

// topStart starts a program that goes on until the end of the test, or until it is
// told to.
func topStart(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, name, args...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 20 * time.Second
	out := new(bytes.Buffer)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		c.Wait()
		if t.Failed() {
			t.Logf("%s %v prints %s", name, args, out.String())
		}
	})
	return c
}

// topPair starts both sides of a measurement and returns their process numbers.
func topPair(t *testing.T, name string, args ...string) (pids [2]uint32) {
	t.Helper()
	port := freePort(t)
	args = append(args, "-p", strconv.Itoa(port))
	server := topStart(t, name, args...)
	waitForServer(t, port)
	client := topStart(t, name, append(args, "10.0.0.1")...)
	return [2]uint32{uint32(server.Process.Pid), uint32(client.Process.Pid)}
}

// has topLooks for all that a process of a measurement should have.
func topHas(l *top.Look, name string, pid uint32, traced bool) string {
	is := func(o top.Owner) bool { return o.PID != nil && *o.PID == pid && o.Process == name }
	rate := func(r *float64) bool { return r != nil && *r > 0 }
	if !slices.ContainsFunc(l.Processes, func(p *top.Process) bool {
		return p.PID != nil && *p.PID == pid && p.Name == name && p.Contexts > 0 && p.PDs > 0 && p.CQs > 0 && p.QPs > 0 && p.MRs > 0 && p.Bytes > 0
	}) {
		return fmt.Sprintf("no process %s %d with its objects", name, pid)
	}
	d := l.Devices[0]
	if !slices.ContainsFunc(d.QPs, func(q *top.QP) bool { return is(q.Owner) && q.Type == "RC" && (rate(q.SendRate) || rate(q.RecvRate)) }) {
		return fmt.Sprintf("no queue pair of %s %d that sends or receives", name, pid)
	}
	if !slices.ContainsFunc(d.CQs, func(q *top.CQ) bool {
		return is(q.Owner) && q.Depth > 0 && (!traced || rate(q.CQERate) && !*q.AtLeast && q.Occupied != nil && *q.HighWater > 0 && *q.Exact && *q.Occupied <= *q.Slots)
	}) {
		return fmt.Sprintf("no completion queue of %s %d that fills", name, pid)
	}
	return ""
}

// While a program in C and one of ours measure, verbs top shows both by name, with
// their queues and rates, and with probes what goes through the queues.
func TestGuestTopPrograms(t *testing.T) {
	guestOnly(t)
	perftest, verbs := topProgram(t, "ib_send_bw"), topProgram(t, "verbs")
	l := watchTop(t, "-i", "0.5", "-cqe", "-syscalls", "-events")
	// Where little happens in a second, an acknowledgement may take seconds, too.
	theirs := topPair(t, perftest, "-d", "rxe0", "-x", "1", "-D", "600", "-s", "1024", "-u", "20")
	ours := topPair(t, verbs, "perf", "send_bw", "-d", "rxe0", "-D", "600", "-s", "1024", "-u", "20", "-e")
	look := l.until(t, func(l *top.Look) string {
		for _, v := range l.Levels {
			if !v.Live {
				return fmt.Sprintf("level %s is not live: %s", v.Name, v.Why)
			}
		}
		for i := range 2 {
			if missing := topHas(l, "ib_send_bw", theirs[i], true) + topHas(l, "verbs", ours[i], true); missing != "" {
				return missing
			}
		}
		d := l.Devices[0]
		if !slices.ContainsFunc(d.Ports[0].Counters, func(c *top.Counter) bool { return c.Name == "sent_pkts" && c.Rate != nil && *c.Rate > 0 }) {
			return "no packets"
		}
		if !slices.ContainsFunc(d.CQs, func(q *top.CQ) bool {
			return q.PID != nil && *q.PID == ours[0] && q.EventRate != nil && *q.EventRate > 0 && q.Wake != nil && q.Wake.AvgUsec > 0 && q.Wake.MaxUsec >= q.Wake.P50Usec
		}) {
			return "no events of verbs perf -e, and no times to wake"
		}
		if !slices.ContainsFunc(l.Calls, func(c *top.Call) bool { return c.PID == theirs[1] && c.Via == "write" && c.Rate != nil && *c.Rate > 0 }) {
			return "no doorbells of ib_send_bw"
		}
		return ""
	})
	var text bytes.Buffer
	if err := top.WriteText(&text, look, top.Page{Height: 100, Width: 130}); err != nil {
		t.Fatal(err)
	}
	t.Logf("looks take %.0f ms:\n%s", look.Took*1000, text.String())
	// One goes away, and all that it had.
	if err := syscall.Kill(int(theirs[1]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.until(t, func(l *top.Look) string {
		if slices.ContainsFunc(l.Processes, func(p *top.Process) bool { return p.PID != nil && *p.PID == theirs[1] }) {
			return "a process that is gone is there"
		}
		return ""
	})
}

// A consumer that is stuck: its queue is full to the last completion, and then
// errors are counted.
func TestGuestTopStuckConsumer(t *testing.T) {
	dev := guestOnly(t)
	l := watchTop(t, "-i", "0.2")
	d, err := uverbs.Open(dev.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pd, err := d.NewPD()
	must(err)
	mem, err := uverbs.Alloc(4096, nil)
	must(err)
	defer mem.Close()
	mr, err := pd.Register(mem.Bytes(), uverbs.LocalWrite|uverbs.RemoteWrite)
	must(err)
	const depth = 63
	stuck, err := d.NewCQ(depth, nil)
	must(err)
	other, err := d.NewCQ(7, nil)
	must(err)
	writer, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{SendCQ: stuck, RecvCQ: other, SendDepth: 200, RecvDepth: 1, AllowOverrun: true})
	must(err)
	peer, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: other, SendDepth: 1, RecvDepth: 1})
	must(err)
	ctx, cancel := context.WithTimeout(t.Context(), guestPatience)
	defer cancel()
	slow := &uverbs.ConnectOptions{AckTimeout: 4 * time.Second}
	must(writer.Connect(ctx, peer.Endpoint(), slow))
	must(peer.Connect(ctx, writer.Endpoint(), slow))
	write := func(n uint32) {
		t.Helper()
		q := writer.SendQueue()
		for i := range n {
			q.Write(uint64(i), mr.Remote().At(8), mr.Span(0, 8))
		}
		must(q.Flush())
	}
	queue := func(l *top.Look) *top.CQ {
		i := slices.IndexFunc(l.Devices[0].CQs, func(q *top.CQ) bool {
			return q.PID != nil && int(*q.PID) == os.Getpid() && q.Depth == uint32(stuck.Depth())
		})
		if i < 0 || l.Devices[0].CQs[i].Occupied == nil {
			return nil
		}
		return l.Devices[0].CQs[i]
	}
	var slots uint32
	l.until(t, func(l *top.Look) string {
		q := queue(l)
		if q == nil || *q.Occupied != 0 {
			return "no empty queue of ours"
		}
		slots = *q.Slots
		return ""
	})
	write(slots)
	full := l.until(t, func(l *top.Look) string {
		if q := queue(l); q == nil || *q.Occupied != *q.Slots || *q.HighWater != *q.Slots || *q.Errors != 0 {
			return "the queue is not full"
		}
		return ""
	})
	var text bytes.Buffer
	must(top.WriteText(&text, full, top.Page{}))
	if !strings.Contains(text.String(), fmt.Sprintf("%d  100", slots)) {
		t.Errorf("the text has no 100%%:\n%s", text.String())
	}
	write(20)
	after := l.until(t, func(l *top.Look) string {
		if q := queue(l); q == nil || *q.Errors == 0 || q.ErrorRate == nil || *q.ErrorRate <= 0 {
			return "no errors of the queue move"
		}
		return ""
	})
	t.Logf("full with %d, then %d errors", slots, *queue(after).Errors)
}

// An ordinary user gets what netlink says, and a sentence about the rest.
func TestGuestTopUnprivileged(t *testing.T) {
	dev := guestOnly(t)
	verbs := topProgram(t, "verbs")
	d, err := uverbs.Open(dev.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := uverbs.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	if _, err := pd.Register(mem.Bytes(), uverbs.LocalWrite); err != nil {
		t.Fatal(err)
	}
	q, err := d.NewCQ(100, nil)
	if err != nil {
		t.Fatal(err)
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	nobody := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), guestPatience)
		defer cancel()
		c := exec.CommandContext(ctx, verbs, append([]string{"top", "-once", "-i", "0.2"}, args...)...)
		c.Dir = "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		var errs bytes.Buffer
		c.Stderr = &errs
		out, err := c.Output()
		if errors.Is(err, syscall.EPERM) {
			t.Skip("declared skip: only root may become nobody; run in the guest: rxevm test")
		}
		if err != nil || errs.Len() > 0 {
			t.Fatalf("%v: %s", err, errs.String())
		}
		return string(out)
	}
	var l top.Look
	if err := json.Unmarshal([]byte(nobody("-json")), &l); err != nil {
		t.Fatal(err)
	}
	for _, v := range l.Levels {
		if v.Live != (v.Name == "netlink") || v.Why == "" {
			t.Errorf("%+v", v)
		}
	}
	mine := func(o top.Owner) bool {
		return o.PID != nil && int(*o.PID) == os.Getpid() && o.Process == strings.TrimSpace(string(comm))
	}
	dv := l.Devices[0]
	if !slices.ContainsFunc(dv.CQs, func(x *top.CQ) bool {
		return mine(x.Owner) && x.Depth == uint32(q.Depth()) && x.Occupied == nil && x.Pending == nil
	}) {
		t.Errorf("our queue is not there as netlink says it: %+v", dv.CQs)
	}
	if !slices.ContainsFunc(dv.MRs, func(x *top.MR) bool { return mine(x.Owner) && x.Length == 4096 && x.LKey == nil }) {
		t.Errorf("our region is not there, or its keys are")
	}
	if !slices.ContainsFunc(dv.Ports[0].Counters, func(c *top.Counter) bool { return c.Name == "sent_pkts" && c.Rate != nil }) {
		t.Errorf("no rates of counters")
	}
	text := nobody()
	for _, want := range []string{"live: netlink\n", "not live: pull, ring, errors, events, syscalls, every-cqe: ", `- in OCC, %, HIGH, ARMED, CQE/s: the level "ring" is not live, see above`, strings.TrimSpace(string(comm))} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	t.Logf("%s", text[:min(len(text), 600)])
}
