package top

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/top/trace"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// A fakeNetlink plays a kernel. A device that is in gone answers nothing, as one
// that was just removed.
type fakeNetlink struct {
	devices map[uint32]*fakeDevice
	gone    map[uint32]bool // still listed once
	err     error           // of lists of devices
	asked   int             // questions
}

type fakeDevice struct {
	link     nldev.Link
	ports    []nldev.Port
	counters nldev.Counters
	contexts []nldev.Context
	pds      []nldev.PD
	cqs      []nldev.CQ
	qps      []nldev.QP
	mrs      []nldev.MR
	srqs     []nldev.SRQ
	cmids    []nldev.CMID
	refuses  map[string]error
}

func (f *fakeNetlink) Links() ([]nldev.Link, error) {
	f.asked++
	if f.err != nil {
		return nil, f.err
	}
	var all []nldev.Link
	for _, i := range slices.Sorted(maps.Keys(f.devices)) {
		all = append(all, f.devices[i].link)
	}
	for i := range f.gone {
		delete(f.devices, i)
	}
	return all, nil
}

// answer is what a question about a device gets.
func answer[T any](f *fakeNetlink, index uint32, kind string, of func(*fakeDevice) []T) ([]T, error) {
	f.asked++
	d := f.devices[index]
	if d == nil {
		return nil, fmt.Errorf("nldev: list the %s of device %d: %w", kind, index, syscall.EINVAL)
	}
	if err := d.refuses[kind]; err != nil {
		return nil, err
	}
	return slices.Clone(of(d)), nil
}

func (f *fakeNetlink) Ports(i uint32) ([]nldev.Port, error) {
	return answer(f, i, "ports", func(d *fakeDevice) []nldev.Port { return d.ports })
}

func (f *fakeNetlink) Counters(i, port uint32) (nldev.Counters, error) {
	f.asked++
	d := f.devices[i]
	if d == nil || d.counters == nil {
		return nil, syscall.EOPNOTSUPP
	}
	return maps.Clone(d.counters), nil
}

func (f *fakeNetlink) Contexts(i uint32) ([]nldev.Context, error) {
	return answer(f, i, "contexts", func(d *fakeDevice) []nldev.Context { return d.contexts })
}

func (f *fakeNetlink) PDs(i uint32) ([]nldev.PD, error) {
	return answer(f, i, "pds", func(d *fakeDevice) []nldev.PD { return d.pds })
}

func (f *fakeNetlink) CQs(i uint32) ([]nldev.CQ, error) {
	return answer(f, i, "cqs", func(d *fakeDevice) []nldev.CQ { return d.cqs })
}

func (f *fakeNetlink) QPs(i uint32) ([]nldev.QP, error) {
	return answer(f, i, "qps", func(d *fakeDevice) []nldev.QP { return d.qps })
}

func (f *fakeNetlink) MRs(i uint32) ([]nldev.MR, error) {
	return answer(f, i, "mrs", func(d *fakeDevice) []nldev.MR { return d.mrs })
}

func (f *fakeNetlink) SRQs(i uint32) ([]nldev.SRQ, error) {
	return answer(f, i, "srqs", func(d *fakeDevice) []nldev.SRQ { return d.srqs })
}

func (f *fakeNetlink) CMIDs(i uint32) ([]nldev.CMID, error) {
	return answer(f, i, "cmids", func(d *fakeDevice) []nldev.CMID { return d.cmids })
}

// A fakeTracer plays the probes.
type fakeTracer struct {
	cqs    map[trace.CQID]trace.CQ
	calls  []trace.Syscall
	levels []trace.Level
	err    error
	mute   bool // the dump is not even made
}

func (f *fakeTracer) Snapshot(dump func() error) (map[trace.CQID]trace.CQ, error) {
	if f.mute {
		return nil, f.err
	}
	if err := dump(); err != nil {
		return nil, err
	}
	return maps.Clone(f.cqs), f.err
}

func (f *fakeTracer) Syscalls() ([]trace.Syscall, error) { return f.calls, nil }

func (f *fakeTracer) Levels() []trace.Level { return slices.Clone(f.levels) }

// A world is a machine with its clock.
type world struct {
	netlink fakeNetlink
	proc    fstest.MapFS
	sys     fstest.MapFS
	tracer  *fakeTracer
	time    time.Time
}

// evil is a name that a process chose.
const evil = "ev\x1b[31mil\n\xff\u009b\\"

// thread adds a thread of a process to /proc.
func (w *world) thread(tid, pid uint32, name string) {
	for path, text := range map[string]string{
		fmt.Sprintf("%d/status", tid): fmt.Sprintf("Name:\tworker\nUmask:\t0022\nTgid:\t%d\nPid:\t%d\n", pid, tid),
		fmt.Sprintf("%d/comm", pid):   name + "\n",
	} {
		w.proc[path] = &fstest.MapFile{Data: []byte(text)}
	}
}

// file adds a file to /sys.
func (w *world) file(path, text string) { w.sys[path] = &fstest.MapFile{Data: []byte(text)} }

// newWorld is a machine with a soft-RoCE device and an InfiniBand one. Its
// processes are perftest, one with a name that is not fit to print, one of which
// a thread has ended, and one that cannot be seen.
func newWorld() *world {
	w := &world{proc: fstest.MapFS{}, sys: fstest.MapFS{}, time: time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)}
	w.thread(104, 104, "ib_send_bw")
	w.thread(113, 107, evil)
	w.thread(120, 120, "storage")
	mine, evils, kernels, unseen := nldev.Owner{TID: 104}, nldev.Owner{TID: 113}, nldev.Owner{Kernel: "ib_core"}, nldev.Owner{TID: 4000}
	w.netlink.devices = map[uint32]*fakeDevice{
		0: {
			link:     nldev.Link{Index: 0, Name: "rxe0", Ports: 1, NodeType: nldev.NodeCA, Protocol: "roce"},
			ports:    []nldev.Port{{DeviceIndex: 0, Device: "rxe0", Index: 1, State: nldev.PortActive, PhysState: nldev.PhysLinkUp, Netdev: "eth0"}},
			counters: nldev.Counters{"sent_pkts": 1000, "rcvd_pkts": 2000, "duplicate_request": 5, "link_downed": 0},
			contexts: []nldev.Context{{Owner: mine, ID: 0}, {Owner: evils, ID: 1}, {Owner: unseen, ID: 2}},
			pds:      []nldev.PD{{Owner: kernels, ID: 0, Users: 1}, {Owner: mine, ID: 1, Context: 0, Users: 2}, {Owner: evils, ID: 2, Context: 1, Users: 1}},
			cqs: []nldev.CQ{
				{Owner: kernels, ID: 0, Depth: 1023, Users: 2}, {Owner: mine, ID: 1, Context: 0, Depth: 127, Users: 2}, {Owner: evils, ID: 2, Context: 1, Depth: 511, Users: 2},
				{Owner: unseen, ID: 3, Context: 2, Depth: 15},
			},
			qps: []nldev.QP{
				{Owner: kernels, Num: 1, Port: 1, Type: nldev.QPGSI, State: nldev.QPRTS},
				{Owner: mine, Num: 17, Port: 1, Type: nldev.QPRC, State: nldev.QPRTS, PD: 1, Remote: 18, SendPSN: 1<<24 - 100, RecvPSN: 500},
				{Owner: nldev.Owner{}, Num: 18, Type: nldev.QPRC, State: nldev.QPErr, PD: 2, Remote: 17},
				{Owner: evils, Num: 19, Port: 1, Type: nldev.QPUD, State: nldev.QPRTS, PD: 2, SendPSN: 7},
			},
			mrs:   []nldev.MR{{Owner: mine, ID: 1, Length: 1 << 20, PD: 1, LKey: 0x100, RKey: 0x101, HasKeys: true}, {Owner: evils, ID: 2, Length: 4096, PD: 2}},
			srqs:  []nldev.SRQ{{Owner: evils, ID: 1, PD: 2, QPs: [][2]uint32{{19, 19}, {30, 39}}}},
			cmids: []nldev.CMID{{ID: 1, QP: 17, Type: nldev.QPRC, PortSpace: nldev.PortSpaceTCP, State: nldev.CMConnect, Local: netip.MustParseAddrPort("10.0.0.1:7471"), Peer: netip.MustParseAddrPort("10.0.0.2:40000")}},
		},
		3: {
			link:     nldev.Link{Index: 3, Name: "mlx5_0", Ports: 1, NodeType: nldev.NodeCA, Protocol: "ib", Firmware: "22.41.1000"},
			ports:    []nldev.Port{{DeviceIndex: 3, Device: "mlx5_0", Index: 1, State: nldev.PortInit, PhysState: nldev.PhysLinkUp}},
			contexts: []nldev.Context{{Owner: nldev.Owner{TID: 120}, ID: 0}},
			pds:      []nldev.PD{{ID: 1, Context: 0, Users: 1}}, // the thread has ended
			cqs:      []nldev.CQ{{ID: 1, Context: 0, Depth: 4095, Users: 2, AdaptiveModeration: true}},
			qps:      []nldev.QP{{Num: 300, Port: 1, Type: nldev.QPDriver, Subtype: "DCI", State: nldev.QPRTS, PD: 1}},
		},
	}
	w.file("class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "1000\n")
	w.file("class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "0\n")
	w.file("class/infiniband/mlx5_0/ports/1/counters/VL15_dropped", "N/A (no PMA)\n")
	w.file("class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets", "18446744073709551615\n")
	w.file("class/infiniband/mlx5_0/ports/1/hw_counters/lifespan", "10\n")
	w.file("class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "3\n")
	return w
}

// pass lets time pass in which all moves.
func (w *world) pass(d time.Duration) {
	w.time = w.time.Add(d)
	rxe := w.netlink.devices[0]
	rxe.counters["sent_pkts"] += 2500
	rxe.counters["rcvd_pkts"] += 20000
	rxe.counters["duplicate_request"] += 4
	for i := range rxe.qps {
		if q := &rxe.qps[i]; q.Num == 17 {
			q.SendPSN = (q.SendPSN + 400) % (1 << 24)
			q.RecvPSN += 40
		}
	}
	w.file("class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "2001000\n")
	w.file("class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "1\n") // it was reset
	if w.tracer == nil {
		return
	}
	for id, q := range w.tracer.cqs {
		if q.User != nil {
			u := *q.User
			u.EventsRead += 100
			q.User = &u
		}
		if q.Ring != nil && q.User != nil {
			r := *q.Ring
			r.Produced = (r.Produced + 100) % (r.Usable + 1)
			r.Occupied /= 2
			q.Ring = &r
		}
		if q.Events != nil {
			e := *q.Events
			e.Count += 100
			e.Wake.N += 100
			e.Wake.Total += 100 * 20 * time.Microsecond
			e.Wake.Max = 40 * time.Microsecond
			e.Wake.Log2[14] += 60 // 16 to 33 us
			e.Wake.Log2[15] += 40
			q.Events = &e
		}
		if q.Posts != nil {
			p := *q.Posts
			p.CQEs += 1000
			p.ByStatus[0] += 1000
			q.Posts = &p
		}
		w.tracer.cqs[id] = q
	}
	for i := range w.tracer.calls {
		w.tracer.calls[i].Count += 50
	}
}

// traced gives the world a tracer whose levels are all live.
func (w *world) traced() *world {
	errs := []uint64{0, 39, 0}
	w.tracer = &fakeTracer{
		cqs: map[trace.CQID]trace.CQ{
			{DeviceIndex: 0, ResID: 0}: {Entries: 1023, Driver: 14, Ring: &trace.Ring{Usable: 1023}, Errors: &errs[0]},
			{DeviceIndex: 0, ResID: 1}: {
				Entries: 127, Vector: 1, Driver: 14, User: &trace.UserCQ{Handle: 0x7f00, EventsRead: 1<<32 - 50, Pending: true},
				Ring: &trace.Ring{Occupied: 127, Usable: 127, Produced: 100, Armed: trace.ArmedNext}, Errors: &errs[1],
				Events: &trace.Events{Count: 7}, Posts: &trace.Posts{CQEs: 500, Dropped: 39, HighWater: 127, ByStatus: [32]uint64{0: 490, 5: 8, 31: 2}},
			},
			{DeviceIndex: 0, ResID: 2}: {Entries: 511, Driver: 14, User: &trace.UserCQ{Handle: 1}, Ring: &trace.Ring{Occupied: 80, Usable: 511}, Errors: &errs[0]},
			{DeviceIndex: 3, ResID: 1}: {Entries: 4095, Vector: 2, Driver: 1, User: &trace.UserCQ{Handle: 9}, Errors: &errs[2]},
		},
		calls: []trace.Syscall{
			{PID: 104, Comm: "ib_send_bw", Via: trace.Write, Command: 28, Name: "POST_SEND", Count: 1000, Total: 50 * time.Millisecond, Max: time.Millisecond},
			{PID: 107, Comm: evil, Via: trace.Ioctl, Object: 1, Method: 2, Name: "CQ_CREATE", Count: 2, Failed: 1, Total: 100 * time.Microsecond, Max: 70 * time.Microsecond},
		},
	}
	for _, l := range TraceLevels("") {
		w.tracer.levels = append(w.tracer.levels, trace.Level{Name: l.Name, Live: true, Why: "kprobe"})
	}
	return w
}

// collector looks at the world by its clock.
func (w *world) collector() *Collector {
	var t Tracer
	if w.tracer != nil {
		t = w.tracer
	}
	c := NewCollector(&w.netlink, Host{Proc: w.proc, Sys: w.sys}, t, TraceLevels("permission denied: run as root, or with CAP_BPF and CAP_PERFMON")...)
	c.now = func() time.Time { return w.time }
	return c
}

// twoLooks is the second of two looks, a second apart.
func (w *world) twoLooks(t *testing.T) *Look {
	t.Helper()
	c := w.collector()
	look(t, c)
	w.pass(time.Second)
	return look(t, c)
}

func look(t *testing.T, c *Collector) *Look {
	t.Helper()
	l, err := c.Look("")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
