package top

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/top/trace"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// device finds a device of a look by its name.
func (l *Look) device(name string) *Device {
	if i := slices.IndexFunc(l.Devices, func(d *Device) bool { return d.Name == name }); i >= 0 {
		return l.Devices[i]
	}
	return nil
}

// A thread leads to its process; one that is gone to that of its context.
func TestOwners(t *testing.T) {
	l := look(t, newWorld().collector())
	owner := func(o Owner) string {
		return fmt.Sprintf("%s/%d/%d/%s", o.Process, deref(o.PID), deref(o.Thread), o.Kernel)
	}
	clean := `ev\x1b[31mil\n\xff\u009b\\`
	rxe, mlx := l.device("rxe0"), l.device("mlx5_0")
	for got, want := range map[string]string{
		owner(rxe.CQs[0].Owner):   "/0/0/ib_core",
		owner(rxe.CQs[1].Owner):   "ib_send_bw/104/104/",
		owner(rxe.CQs[2].Owner):   clean + "/107/113/",
		owner(rxe.CQs[3].Owner):   "/0/4000/",
		owner(rxe.QPs[2].Owner):   clean + "/107/0/", // 18: its thread has ended
		owner(rxe.CMIDs[0].Owner): "ib_send_bw/104/0/",
		owner(mlx.QPs[0].Owner):   "storage/120/0/",
		owner(mlx.CQs[0].Owner):   "storage/120/0/",
	} {
		if got != want {
			t.Errorf("owner %s, want %s", got, want)
		}
	}
	for _, p := range l.Processes {
		if p.Name == "storage" && (p.CQs != 1 || p.QPs != 1 || p.PDs != 1 || p.Contexts != 1 || !slices.Equal(p.Devices, []string{"mlx5_0"})) {
			t.Errorf("storage has %+v", p)
		}
	}
}

// /proc may be anything: empty, of others, without the process's own entry.
func TestProcessOfThread(t *testing.T) {
	w := newWorld()
	w.thread(200, 100, "gone")
	delete(w.proc, "100/comm")
	for path, text := range map[string]string{
		"1/status": "", "2/status": "Name:\tx\n", "3/status": "Tgid:\tmany\n", "4/status": "Tgid:\t-1\n", "5/status": "Tgid:\t99999999999\n",
		"6/status": "Tgid:\t0\n", "7/status": strings.Repeat("x", 1<<20) + "\nTgid:\t7\n",
	} {
		w.proc[path] = newWorld().proc["104/comm"]
		file := *w.proc[path]
		file.Data = []byte(text)
		w.proc[path] = &file
	}
	h := Host{Proc: w.proc, Sys: w.sys}
	for tid := range uint32(9) {
		if p := h.process(tid); p != (process{}) {
			t.Errorf("thread %d is of %+v", tid, p)
		}
	}
	if p := h.process(200); p != (process{100, "worker"}) {
		t.Errorf("a process without a name of its own: %+v", p)
	}
}

// A /proc of another PID namespace has other processes under the same numbers, and one that
// is not mounted has none.
func TestUselessProc(t *testing.T) {
	const foreign, unmounted = "/proc is not of this PID namespace (run ", "/proc is not mounted (mount -t proc proc /proc)"
	self := func(stat string) func(proc fstest.MapFS) {
		return func(proc fstest.MapFS) { proc["self/stat"] = &fstest.MapFile{Data: []byte(stat)} }
	}
	for name, c := range map[string]struct {
		make func(proc fstest.MapFS)
		note string
	}{
		"ours":             {self("42 (verbs) R 1"), ""},
		"another's":        {self("43 (verbs) R 1"), foreign},
		"nothing in it":    {self(""), foreign},
		"where we are not": {func(fstest.MapFS) {}, foreign},
		"an empty folder":  {func(proc fstest.MapFS) { clear(proc) }, unmounted},
	} {
		w := newWorld()
		c.make(w.proc)
		collector := w.collector()
		collector.host.PID = 42
		l := look(t, collector)
		q := l.device("rxe0").CQs[1]
		notes := strings.Join(l.Notes, "\n")
		if (q.PID == nil) != (c.note != "") || deref(q.Thread) != 104 || !strings.HasPrefix(notes, c.note) || (notes == "") != (c.note == "") {
			t.Errorf("%s: %+v, notes %q", name, q.Owner, l.Notes)
		}
	}
	h := Host{Proc: os.DirFS(filepath.Join(t.TempDir(), "none")), PID: 42}
	if why := h.useless(); why != unmounted {
		t.Errorf("no folder: %q", why)
	}
}

// The kernel's own errors stand at the device, in words, and the rest is there.
func TestRefusals(t *testing.T) {
	w := newWorld()
	w.netlink.devices[0].refuses = map[string]error{"contexts": syscall.EINVAL, "srqs": syscall.EINVAL, "qps": errors.New("nldev: \x1b[2J"), "cqs": syscall.EPERM}
	l := look(t, w.collector())
	got := strings.Join(l.device("rxe0").Missing, "\n")
	for _, want := range []string{
		"this kernel does not list contexts: Linux does since 5.14", "this kernel does not list shared receive queues: Linux does since 5.15", `queue pairs: nldev: \x1b[2J`,
		"completion queues: operation not permitted",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if len(l.device("rxe0").MRs) != 2 || len(l.Devices) != 2 || len(l.Notes) != 0 {
		t.Errorf("the rest is not there: %+v", l)
	}
	w.netlink.err = syscall.ENOBUFS
	if l, err := w.collector().Look(""); !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("%+v, %v", l, err)
	}
}

// A device that goes away while it is asked is left out; one that comes back
// under its name is another.
func TestDevicesComeAndGo(t *testing.T) {
	w := newWorld()
	c := w.collector()
	look(t, c)
	rxe := w.netlink.devices[0]
	w.netlink.gone = map[uint32]bool{0: true}
	w.pass(time.Second)
	l := look(t, c)
	if l.device("rxe0") != nil || len(l.Devices) != 1 || !slices.Contains(l.Notes, "rxe0 went away during this look") {
		t.Errorf("%+v", l)
	}
	again := *rxe
	again.link.Index = 9
	w.netlink.gone, w.netlink.devices[9] = nil, &again
	w.time = w.time.Add(time.Second)
	l = look(t, c)
	for _, p := range l.device("rxe0").Ports {
		for _, x := range p.Counters {
			if x.Rate != nil {
				t.Errorf("a new device's %s has a rate, %v", x.Name, *x.Rate)
			}
		}
	}
	for _, name := range []string{"mlx5_0", "rxe0"} {
		if l, err := c.Look(name); err != nil || len(l.Devices) != 1 || l.Devices[0].Name != name {
			t.Errorf("only %s: %+v, %v", name, l, err)
		}
	}
	if l, err := c.Look("nosuch\x1b"); err != nil || len(l.Devices) != 0 || !slices.Contains(l.Notes, `there is no device "nosuch\\x1b": there are mlx5_0, rxe0`) {
		t.Errorf("%+v, %v", l.Notes, err)
	}
}

// level is what a look says of one.
func level(l *Look, name string) Level {
	i := slices.IndexFunc(l.Levels, func(v Level) bool { return v.Name == name })
	return l.Levels[i]
}

// Probes that see nothing where there is something to see are not live, whatever
// they say.
func TestCanary(t *testing.T) {
	w := newWorld().traced()
	w.tracer.cqs = nil
	l := look(t, w.collector())
	if v := level(l, trace.LevelPull); v.Live || !strings.Contains(v.Why, "5 completion queues and the probe saw none") {
		t.Errorf("%+v", v)
	}
	if !level(l, "netlink").Live || level(l, trace.LevelEvents).Live {
		t.Errorf("%+v", l.Levels)
	}
	// Where no probe looks at queues, those that do other things are as live as
	// they were.
	w.tracer.levels[0].Live, w.tracer.levels[0].Why = false, "this kernel has no function"
	w.tracer.calls = []trace.Syscall{{PID: 104, Name: "CQ_CREATE", Count: 1}}
	if l := look(t, w.collector()); !level(l, trace.LevelSyscalls).Live || level(l, trace.LevelPull).Why != "this kernel has no function" || len(l.Calls) != 1 {
		t.Errorf("%+v, %d calls", l.Levels, len(l.Calls))
	}
	w.tracer.levels[0].Live = true
	// On a machine without queues there is nothing to see.
	for _, d := range w.netlink.devices {
		d.cqs = nil
	}
	if v := level(look(t, w.collector()), trace.LevelPull); !v.Live {
		t.Errorf("%+v", v)
	}
}

// A tracer that fails costs what it would have said, and no more.
func TestTracerFails(t *testing.T) {
	for _, mute := range []bool{false, true} {
		w := newWorld().traced()
		w.tracer.err, w.tracer.mute = errors.New("read the map: \x1b"), mute
		l := look(t, w.collector())
		if v := level(l, trace.LevelRing); v.Live || v.Why != `read the map: \x1b` {
			t.Errorf("%+v", v)
		}
		if q := l.device("rxe0").CQs; len(q) != 4 || q[1].Occupied != nil {
			t.Errorf("queues %+v", q)
		}
	}
}

// One look without the tracer does not make the high-water mark forgotten.
func TestHighWaterStays(t *testing.T) {
	w := newWorld().traced()
	c := w.collector()
	high := func() uint32 { return deref(look(t, c).device("rxe0").CQs[2].HighWater) }
	if n := high(); n != 80 {
		t.Fatalf("%d", n)
	}
	w.pass(time.Second)
	w.tracer.err = errors.New("read the map")
	if n := high(); n != 0 {
		t.Errorf("%d from a tracer that fails", n)
	}
	w.tracer.err = nil
	if n := high(); n != 80 {
		t.Errorf("%d", n)
	}
}

// A process that calls one method on devices of two drivers has one sum.
func TestCallsOfTwoDrivers(t *testing.T) {
	w := newWorld().traced()
	again := w.tracer.calls[1]
	again.Count, again.Failed, again.Total, again.Max = 8, 2, 900*time.Microsecond, 300*time.Microsecond
	w.tracer.calls = append(w.tracer.calls, again)
	l := w.twoLooks(t)
	if len(l.Calls) != 2 {
		t.Fatalf("%d calls", len(l.Calls))
	}
	if c := l.Calls[1]; c.Count != 2+8+2*50 || c.Failed != 3 || c.MaxUsec != 300 || c.AvgUsec != 1000.0/110 || deref(c.Rate) != 100 {
		t.Errorf("%+v, rate %v", c, deref(c.Rate))
	}
	var b strings.Builder
	if err := WriteMetrics(&b, l, Health{}); err != nil || !strings.Contains(b.String(), `method="CQ_CREATE"} 110`) {
		t.Errorf("%v, %s", err, b.String())
	}
}

// The kernel may list an object twice, and anything else.
func TestTwice(t *testing.T) {
	w := newWorld()
	d := w.netlink.devices[0]
	d.cqs = append(d.cqs, d.cqs...)
	d.ports = append(d.ports, d.ports...)
	// Queue pairs 0 and 1 are there for each port.
	d.qps = append(d.qps, nldev.QP{Owner: nldev.Owner{Kernel: "ib_core"}, Num: 1, Port: 2, Type: nldev.QPGSI})
	again := *w.netlink.devices[3]
	again.link.Index = 5
	w.netlink.devices[5] = &again
	l := look(t, w.collector())
	if n := len(l.device("rxe0").CQs); n != 4 || len(l.device("rxe0").Ports) != 1 || len(l.device("rxe0").QPs) != 5 || len(l.Devices) != 2 {
		t.Errorf("%d queues, %d ports, %d queue pairs, %d devices", n, len(l.device("rxe0").Ports), len(l.device("rxe0").QPs), len(l.Devices))
	}
	if err := WriteMetrics(io.Discard, l, Health{}); err != nil {
		t.Error(err)
	}
}

// Ten thousand queue pairs and completion queues of a thousand threads: as many
// questions as for one, one look at each thread, as many lines as the terminal
// has, and no more metrics than the limit.
func TestThousands(t *testing.T) {
	const many, threads = 10000, 1000
	w := newWorld()
	d := w.netlink.devices[0]
	delete(w.netlink.devices, 3)
	for tid := range uint32(threads) {
		w.thread(5000+tid, 5000+tid/10*10, fmt.Sprint("worker", tid/10))
	}
	for i := range uint32(many) {
		o := nldev.Owner{TID: 5000 + i%threads}
		d.qps = append(d.qps, nldev.QP{Owner: o, Num: 1000 + i, Port: 1, Type: nldev.QPRC, State: nldev.QPState(i % 256), PD: i, Remote: i, SendPSN: i})
		d.cqs = append(d.cqs, nldev.CQ{Owner: o, ID: 1000 + i, Context: i, Depth: 1<<32 - 1, Users: 1<<64 - 1})
		d.mrs = append(d.mrs, nldev.MR{Owner: o, ID: 1000 + i, Length: 1<<64 - 1, PD: i})
	}
	proc := &countingFS{FS: w.proc}
	c := w.collector()
	c.host.Proc = proc
	look(t, c)
	asked, opened := w.netlink.asked, proc.opened
	if asked > 12 || opened > 2*(threads+3) {
		t.Errorf("%d questions and %d files of /proc for one look", asked, opened)
	}
	w.time = w.time.Add(time.Second)
	for i := range d.qps {
		d.qps[i].SendPSN += uint32(i)
	}
	l := look(t, c)
	if w.netlink.asked != 2*asked || proc.opened != 2*opened {
		t.Errorf("the second look asked %d questions and opened %d files", w.netlink.asked-asked, proc.opened-opened)
	}
	lines := Lines(l, Page{Width: 120, Height: 50})
	if len(lines) != 50 || !strings.Contains(strings.Join(lines, "\n"), "... and 99") {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if all := Lines(l, Page{}); len(all) < 3*many {
		t.Errorf("on paper there are %d lines", len(all))
	}
	var b strings.Builder
	if err := WriteMetrics(&b, l, Health{Up: true}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\ngoverbs_top_cq_depth{"); n != maxSeries {
		t.Errorf("%d queues have metrics", n)
	}
	if !strings.Contains(b.String(), fmt.Sprintf("\ngoverbs_top_series_left_out %d\n", many+4-maxSeries+leftOutQPs(l))) {
		t.Errorf("how much was left out is not told: %s", b.String()[strings.Index(b.String(), "series_left_out"):])
	}
	for _, p := range l.Processes {
		if p.MRs > 1 && p.Name != "ib_send_bw" && p.Bytes != 1<<64-1 {
			t.Errorf("%s: the sum of lengths wrapped around to %d", p.Name, p.Bytes)
		}
	}
}

// leftOutQPs counts the kinds of queue pairs that are over the limit.
func leftOutQPs(l *Look) int {
	kinds := make(map[string]bool)
	for _, q := range l.Devices[0].QPs {
		kinds[q.name()+q.pid()+q.Type+q.State] = true
	}
	return max(len(kinds)-maxSeries, 0)
}

// A Redialer takes a new socket after a failure.
func TestRedialer(t *testing.T) {
	w := newWorld()
	dials, closed := 0, 0
	var dialErr error
	r := &Redialer{Dial: func() (Conn, error) {
		dials++
		return closing{&w.netlink, &closed}, dialErr
	}}
	for _, step := range []struct {
		list, dial    error
		dials, closed int
	}{{nil, nil, 1, 0}, {nil, nil, 1, 0}, {syscall.EBADF, nil, 1, 1}, {nil, syscall.EMFILE, 2, 1}, {nil, nil, 3, 1}, {nil, nil, 3, 1}} {
		w.netlink.err, dialErr = step.list, step.dial
		_, err := r.Links()
		if want := errors.Join(step.list, step.dial); (err != nil) != (want != nil) || err != nil && !errors.Is(want, err) {
			t.Errorf("%v, want %v", err, want)
		}
		if dials != step.dials || closed != step.closed {
			t.Errorf("%+v: %d dials, %d closed", step, dials, closed)
		}
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil || closed != 2 {
		t.Errorf("%v, %d closed", err, closed)
	}
}

type closing struct {
	*fakeNetlink
	closed *int
}

func (c closing) Close() error { *c.closed++; return nil }
