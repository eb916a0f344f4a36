package top

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/tools/verbs/internal/top/trace"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// Netlink is what a collector asks the kernel. [*nldev.Conn] is one.
type Netlink interface {
	Links() ([]nldev.Link, error)
	Ports(index uint32) ([]nldev.Port, error)
	Counters(index, port uint32) (nldev.Counters, error)
	Contexts(index uint32) ([]nldev.Context, error)
	PDs(index uint32) ([]nldev.PD, error)
	CQs(index uint32) ([]nldev.CQ, error)
	QPs(index uint32) ([]nldev.QP, error)
	MRs(index uint32) ([]nldev.MR, error)
	SRQs(index uint32) ([]nldev.SRQ, error)
	CMIDs(index uint32) ([]nldev.CMID, error)
}

// Tracer is what a collector asks of eBPF. [*trace.Tracer] is one.
type Tracer interface {
	Snapshot(dump func() error) (map[trace.CQID]trace.CQ, error)
	Syscalls() ([]trace.Syscall, error)
	Levels() []trace.Level
}

// A Collector makes looks. It remembers the last one for rates.
type Collector struct {
	netlink Netlink
	host    Host
	tracer  Tracer
	levels  []Level // without a tracer

	last *Look
	high map[trace.CQID]high

	now func() time.Time
}

// high is the most completions that looks saw in a queue.
type high struct {
	handle uint64
	most   uint32
}

// NewCollector makes a collector. Without a tracer, which is nil then, noTracer
// are the levels that it would have, with the reasons why it does not.
func NewCollector(n Netlink, h Host, t Tracer, noTracer ...Level) *Collector {
	return &Collector{netlink: n, host: h, tracer: t, levels: noTracer, high: make(map[trace.CQID]high), now: time.Now}
}

// TraceLevels are the levels of package trace, all of them not live for one
// reason.
func TraceLevels(why string) []Level {
	var all []Level
	for _, name := range trace.LevelNames() {
		all = append(all, Level{Name: name, Why: why})
	}
	return all
}

// A rawDevice is what was asked of a device.
type rawDevice struct {
	link     nldev.Link
	ports    []rawPort
	contexts []nldev.Context
	pds      []nldev.PD
	cqs      []nldev.CQ
	qps      []nldev.QP
	mrs      []nldev.MR
	srqs     []nldev.SRQ
	cmids    []nldev.CMID

	cqsAt, qpsAt time.Time
	failed       bool
	missing      []string
}

type rawPort struct {
	nldev.Port
	hw, port map[string]uint64
	at       time.Time
}

// A raw is everything that one look asked.
type raw struct {
	began   time.Time
	devices []*rawDevice
	cqs     map[trace.CQID]trace.CQ
	calls   []trace.Syscall
	levels  []Level
	notes   []string
}

// Look looks at all devices, or at the one of a name where that is not "". It
// fails where netlink does not even list the devices.
func (c *Collector) Look(device string) (*Look, error) {
	r := &raw{began: c.now()}
	links, err := c.netlink.Links()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		again := slices.ContainsFunc(r.devices, func(d *rawDevice) bool { return d.link.Index == l.Index || d.link.Name == l.Name })
		if !again && (device == "" || l.Name == device) {
			d := &rawDevice{link: l}
			c.ask(d)
			r.devices = append(r.devices, d)
		}
	}
	if len(r.devices) == 0 {
		r.notes = append(r.notes, noDevice(device, links))
	}
	c.askCQs(r)
	c.leaveGone(r)
	look := c.join(r)
	look.Took = c.now().Sub(r.began).Seconds()
	if c.last != nil {
		look.Seconds = look.Time.Sub(c.last.Time).Seconds()
		rates(look, c.last)
	}
	sumRates(look)
	c.last = look
	return look, nil
}

// noDevice says what there is instead.
func noDevice(name string, links []nldev.Link) string {
	if len(links) == 0 {
		return "there is no RDMA device here"
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	return fmt.Sprintf("there is no device %q: there are %s", printable.Escape(name), strings.Join(names, ", "))
}

// ask asks everything of a device but its completion queues.
func (c *Collector) ask(d *rawDevice) {
	index := d.link.Index
	ports, err := c.netlink.Ports(index)
	d.note("ports", "", err)
	for _, p := range ports {
		r := rawPort{Port: p, port: c.host.counters(d.link.Name, p.Index, "counters")}
		if hw, err := c.netlink.Counters(index, p.Index); err == nil {
			r.hw = hw
		} else {
			r.hw = c.host.counters(d.link.Name, p.Index, "hw_counters")
		}
		r.at = c.now()
		d.ports = append(d.ports, r)
	}
	d.contexts = list(d, "contexts", "5.14", c.netlink.Contexts)
	d.pds = list(d, "protection domains", "", c.netlink.PDs)
	d.qps = list(d, "queue pairs", "", c.netlink.QPs)
	d.qpsAt = c.now()
	d.mrs = list(d, "memory regions", "", c.netlink.MRs)
	d.srqs = list(d, "shared receive queues", "5.15", c.netlink.SRQs)
	d.cmids = list(d, "connections", "", c.netlink.CMIDs)
}

// list asks for the objects of a kind, which Linux lists since a version.
func list[T any](d *rawDevice, kind, since string, ask func(uint32) ([]T, error)) []T {
	all, err := ask(d.link.Index)
	d.note(kind, since, err)
	return all
}

// note remembers that a question had no answer.
func (d *rawDevice) note(kind, since string, err error) {
	switch {
	case err == nil:
	case since != "" && errors.Is(err, syscall.EINVAL):
		d.missing = append(d.missing, fmt.Sprintf("this kernel does not list %s: Linux does since %s", kind, since))
		// A device that is gone is refused in the same words.
		d.failed = true
	default:
		d.missing = append(d.missing, printable.Escape(fmt.Sprintf("%s: %v", kind, err)))
		d.failed = true
	}
}

// askCQs asks for the completion queues of all devices, so that the tracer, if
// there is one, sees the kernel visit each.
func (c *Collector) askCQs(r *raw) {
	dump := func() error {
		for _, d := range r.devices {
			d.cqs = list(d, "completion queues", "", c.netlink.CQs)
			d.cqsAt = c.now()
		}
		return nil // what failed stands at its device
	}
	r.levels = []Level{{Name: "netlink", Live: true, Why: "RDMA netlink"}}
	if c.tracer == nil {
		dump()
		r.levels = append(r.levels, c.levels...)
		return
	}
	dumped := false
	cqs, err := c.tracer.Snapshot(func() error { dumped = true; return dump() })
	if !dumped {
		dump()
	}
	for _, l := range c.tracer.Levels() {
		r.levels = append(r.levels, Level{Name: l.Name, Live: l.Live, Why: printable.Escape(l.Why)})
	}
	r.cqs = cqs
	if err != nil {
		r.cqs = nil
		r.dead(printable.Escape(err.Error()))
	} else if n := r.listed(); n > 0 && len(cqs) == 0 && r.live(trace.LevelPull) {
		r.dead(fmt.Sprintf("the kernel listed %d completion queues and the probe saw none of them: are kprobes switched off (/sys/kernel/debug/kprobes/enabled, sysctl kernel.ftrace_enabled)?", n))
	}
	if r.live(trace.LevelSyscalls) {
		if r.calls, err = c.tracer.Syscalls(); err != nil {
			r.fails(printable.Escape(err.Error()), trace.LevelSyscalls)
		}
	}
}

// listed counts the completion queues that netlink listed.
func (r *raw) listed() (n int) {
	for _, d := range r.devices {
		n += len(d.cqs)
	}
	return n
}

// dead says that nothing comes from the tracer for this look.
func (r *raw) dead(why string) {
	r.fails(why, trace.LevelPull, trace.LevelRing, trace.LevelErrors, trace.LevelEvents, trace.LevelSyscalls, trace.LevelEveryCQE)
}

// fails says of the levels that are live and named that they are not.
func (r *raw) fails(why string, names ...string) {
	for i := range r.levels {
		if l := &r.levels[i]; l.Live && slices.Contains(names, l.Name) {
			l.Live, l.Why = false, why
		}
	}
}

// live says whether a level is.
func (r *raw) live(name string) bool {
	return slices.ContainsFunc(r.levels, func(l Level) bool { return l.Name == name && l.Live })
}

// leaveGone leaves out devices that went away while they were asked.
func (c *Collector) leaveGone(r *raw) {
	if !slices.ContainsFunc(r.devices, func(d *rawDevice) bool { return d.failed }) {
		return
	}
	links, err := c.netlink.Links()
	if err != nil {
		return // what failed stands at the devices
	}
	r.devices = slices.DeleteFunc(r.devices, func(d *rawDevice) bool {
		gone := d.failed && !slices.ContainsFunc(links, func(l nldev.Link) bool { return l.Index == d.link.Index })
		if gone {
			r.notes = append(r.notes, d.link.Name+" went away during this look")
		}
		return gone
	})
}

// Redialer is a Netlink that opens its socket when it needs one: at the first list of
// devices, and at one after Close, or after one that could not be had. A socket of
// RDMA netlink holds the kernel's module ib_core, so whoever looks seldom closes it
// in between: drivers could not be restarted.
type Redialer struct {
	Dial func() (Conn, error)
	Netlink
	conn Conn
}

// Conn is a Netlink that can be closed.
type Conn interface {
	Netlink
	io.Closer
}

// Links lists the devices.
func (r *Redialer) Links() ([]nldev.Link, error) {
	if r.conn == nil {
		c, err := r.Dial()
		if err != nil {
			return nil, err
		}
		r.conn, r.Netlink = c, c
	}
	links, err := r.conn.Links()
	if err != nil {
		r.Close()
	}
	return links, err
}

// Close closes the socket, if there is one.
func (r *Redialer) Close() error {
	if r.conn == nil {
		return nil
	}
	err := r.conn.Close()
	r.conn = nil
	return err
}
