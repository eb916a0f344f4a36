package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/tools/verbs/internal/top/trace"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// join makes a look out of what was asked.
func (c *Collector) join(r *raw) *Look {
	look := &Look{
		Time: r.began, Levels: r.levels, Notes: append([]string{}, r.notes...),
		Devices: []*Device{}, Processes: []*Process{}, Calls: calls(r.calls),
	}
	threads := make(map[uint32]process)
	useless := c.host.useless()
	if useless != "" {
		look.Notes = append(look.Notes, useless+": there are no names of processes, and no numbers but those of threads")
	}
	for _, d := range r.devices {
		j := joiner{collector: c, raw: r, from: d, threads: threads, nameless: useless != ""}
		look.Devices = append(look.Devices, j.device())
	}
	look.Processes = processes(look.Devices)
	// Queues that are gone are forgotten, unless the tracer only did not answer.
	if r.cqs != nil {
		maps.DeleteFunc(c.high, func(id trace.CQID, _ high) bool { _, ok := r.cqs[id]; return !ok })
	}
	return look
}

// A joiner joins what is known of one device.
type joiner struct {
	collector *Collector
	raw       *raw
	from      *rawDevice
	threads   map[uint32]process // of all devices
	nameless  bool               // there is no /proc to find processes in
	contexts  map[uint32]process // whose a context is
	domains   map[uint32]uint32  // the context of a protection domain
}

func (j *joiner) device() *Device {
	l, from := j.from.link, j.from
	d := &Device{
		Name: l.Name, Index: l.Index, NodeType: l.NodeType.String(), Protocol: l.Protocol, Firmware: l.Firmware,
		Missing: append([]string{}, from.missing...), qpsAt: from.qpsAt,
	}
	j.findContexts()
	d.Ports = each(from.ports, port, func(p *Port) uint32 { return p.Port })
	d.Contexts = each(from.contexts, func(x nldev.Context) *Context {
		return &Context{x.ID, j.owner(x.Owner, &x.ID)}
	}, func(x *Context) uint32 { return x.ID })
	d.PDs = each(from.pds, func(x nldev.PD) *PD {
		ctx := users(x.Owner, x.Context)
		return &PD{x.ID, ctx, x.Users, j.owner(x.Owner, ctx)}
	}, func(x *PD) uint32 { return x.ID })
	d.CQs = each(from.cqs, j.cq, func(x *CQ) uint32 { return x.ID })
	// Each port has a queue pair 0 and a queue pair 1.
	d.QPs = each(from.qps, j.qp, func(x *QP) uint64 { return uint64(x.Num)<<32 | uint64(deref(x.Port)) })
	d.MRs = each(from.mrs, j.mr, func(x *MR) uint32 { return x.ID })
	d.SRQs = each(from.srqs, j.srq, func(x *SRQ) uint32 { return x.ID })
	d.CMIDs = each(from.cmids, j.cmid(d.QPs), func(x *CMID) uint32 { return x.ID })
	return d
}

// each makes something out of each, in the order of its number. The kernel may
// list one twice, at the end of a message and at the beginning of the next.
func each[F, T any, N cmp.Ordered](from []F, to func(F) *T, number func(*T) N) []*T {
	all := make([]*T, 0, len(from))
	for _, x := range from {
		all = append(all, to(x))
	}
	byNumber := func(a, b *T) int { return cmp.Compare(number(a), number(b)) }
	slices.SortStableFunc(all, byNumber)
	return slices.CompactFunc(all, func(a, b *T) bool { return number(a) == number(b) })
}

// users is the number of what an object belongs to, nil of the kernel's.
func users(o nldev.Owner, number uint32) *uint32 {
	if o.Kernel != "" {
		return nil
	}
	return &number
}

// findContexts finds out whose each context is. The thread that made it may be
// gone while others that made objects in it are there.
func (j *joiner) findContexts() {
	j.contexts, j.domains = make(map[uint32]process), make(map[uint32]uint32)
	belongs := func(o nldev.Owner, ctx uint32) {
		if o.Kernel == "" && o.TID != 0 && j.contexts[ctx].pid == 0 {
			j.contexts[ctx] = j.process(o.TID)
		}
	}
	for _, x := range j.from.contexts {
		belongs(x.Owner, x.ID)
	}
	for _, x := range j.from.pds {
		belongs(x.Owner, x.Context)
		if x.Kernel == "" {
			j.domains[x.ID] = x.Context
		}
	}
	for _, x := range j.from.cqs {
		belongs(x.Owner, x.Context)
	}
	inDomain := func(o nldev.Owner, pd uint32) {
		if ctx, ok := j.domains[pd]; ok {
			belongs(o, ctx)
		}
	}
	for _, x := range j.from.qps {
		inDomain(x.Owner, x.PD)
	}
	for _, x := range j.from.mrs {
		inDomain(x.Owner, x.PD)
	}
}

// process is that of a thread.
func (j *joiner) process(tid uint32) process {
	p, ok := j.threads[tid]
	if !ok && !j.nameless {
		p = j.collector.host.process(tid)
		j.threads[tid] = p
	}
	return p
}

// owner says whose an object is. One of an unknown thread is its context's.
func (j *joiner) owner(o nldev.Owner, ctx *uint32) Owner {
	w := Owner{Kernel: o.Kernel}
	if o.Kernel != "" {
		return w
	}
	var p process
	if o.TID != 0 {
		w.Thread = &o.TID
		p = j.process(o.TID)
	}
	if p.pid == 0 && ctx != nil {
		p = j.contexts[*ctx]
	}
	if p.pid != 0 {
		w.PID, w.Process = &p.pid, p.name
	}
	return w
}

// ofDomain is the owner of what is in a protection domain.
func (j *joiner) ofDomain(o nldev.Owner, pd uint32) Owner {
	if ctx, ok := j.domains[pd]; ok && o.Kernel == "" {
		return j.owner(o, &ctx)
	}
	return j.owner(o, nil)
}

func port(r rawPort) *Port {
	p := &Port{Port: r.Index, State: r.State.String(), PhysState: r.PhysState.String(), Netdev: r.Netdev, Counters: []*Counter{}, number: uint8(r.State), at: r.at}
	for _, s := range []struct {
		source string
		from   map[string]uint64
	}{{"hw", r.hw}, {"port", r.port}} {
		for _, name := range slices.Sorted(maps.Keys(s.from)) {
			p.Counters = append(p.Counters, &Counter{Name: name, Source: s.source, Value: s.from[name]})
		}
	}
	return p
}

func (j *joiner) qp(x nldev.QP) *QP {
	q := &QP{Num: x.Num, Type: x.Type.String(), Subtype: x.Subtype, State: x.State.String(), PD: users(x.Owner, x.PD), SendPSN: x.SendPSN, RecvPSN: x.RecvPSN, Owner: j.ofDomain(x.Owner, x.PD)}
	if x.Port != 0 {
		q.Port = &x.Port
	}
	if (x.Type == nldev.QPRC || x.Type == nldev.QPUC) && x.State >= nldev.QPRTR {
		q.Remote, q.connected = &x.Remote, true
	}
	return q
}

func (j *joiner) mr(x nldev.MR) *MR {
	m := &MR{ID: x.ID, Length: x.Length, PD: users(x.Owner, x.PD), Owner: j.ofDomain(x.Owner, x.PD)}
	if x.HasKeys {
		l, r := fmt.Sprintf("%#x", x.LKey), fmt.Sprintf("%#x", x.RKey)
		m.LKey, m.RKey = &l, &r
	}
	return m
}

func (j *joiner) srq(x nldev.SRQ) *SRQ {
	s := &SRQ{ID: x.ID, Type: x.Type.String(), PD: x.PD, QPs: append([][2]uint32{}, x.QPs...), Owner: j.ofDomain(x.Owner, x.PD)}
	if x.Type != nldev.SRQBasic {
		s.CQ = &x.CQ
	}
	return s
}

// cmid makes identifiers. One of an unknown thread is its queue pair's.
func (j *joiner) cmid(qps []*QP) func(nldev.CMID) *CMID {
	byNum := make(map[uint32]*QP, len(qps))
	for _, q := range qps {
		byNum[q.Num] = q
	}
	return func(x nldev.CMID) *CMID {
		c := &CMID{ID: x.ID, State: x.State.String(), PortSpace: x.PortSpace.String(), Owner: j.owner(x.Owner, nil)}
		if x.Local.IsValid() {
			c.Local = x.Local.String()
		}
		if x.Peer.IsValid() {
			c.Peer = x.Peer.String()
		}
		if x.Port != 0 {
			c.Port = &x.Port
		}
		if x.QP != 0 {
			c.QP = &x.QP
			if q := byNum[x.QP]; q != nil && c.PID == nil && c.Kernel == "" {
				c.PID, c.Process = q.PID, q.Process
			}
		}
		return c
	}
}

// processes sums up what each owner has, in the order of the process's number,
// then the kernel's modules, then what cannot be seen.
func processes(devices []*Device) []*Process {
	type key struct {
		pid    uint32
		kernel string
	}
	all := make(map[key]*Process)
	of := func(d *Device, o Owner) *Process {
		k := key{kernel: o.Kernel}
		if o.PID != nil {
			k.pid = *o.PID
		}
		p := all[k]
		if p == nil {
			p = &Process{PID: o.PID, Name: o.Process, Kernel: o.Kernel, Devices: []string{}}
			all[k] = p
		}
		if n := len(p.Devices); n == 0 || p.Devices[n-1] != d.Name {
			p.Devices = append(p.Devices, d.Name)
		}
		return p
	}
	for _, d := range devices {
		for _, x := range d.Contexts {
			of(d, x.Owner).Contexts++
		}
		for _, x := range d.PDs {
			of(d, x.Owner).PDs++
		}
		for _, x := range d.CQs {
			of(d, x.Owner).CQs++
		}
		for _, x := range d.QPs {
			of(d, x.Owner).QPs++
		}
		for _, x := range d.MRs {
			p := of(d, x.Owner)
			p.MRs++
			if p.Bytes += x.Length; p.Bytes < x.Length {
				p.Bytes = 1<<64 - 1
			}
		}
		for _, x := range d.SRQs {
			of(d, x.Owner).SRQs++
		}
		for _, x := range d.CMIDs {
			of(d, x.Owner).CMIDs++
		}
	}
	list := slices.Collect(maps.Values(all))
	slices.SortFunc(list, func(a, b *Process) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(deref(a.PID), deref(b.PID)), cmp.Compare(a.Kernel, b.Kernel))
	})
	if list == nil {
		list = []*Process{}
	}
	return list
}

// rank puts processes before modules, and those before the unseen.
func rank(p *Process) int {
	switch {
	case p.PID != nil:
		return 0
	case p.Kernel != "":
		return 1
	}
	return 2
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// callKey tells calls apart.
type callKey struct {
	pid  uint32
	via  trace.Via
	name string
}

// calls sums calls up by process and method. The tracer tells those to devices
// of different drivers apart, even where the method is the same.
func calls(from []trace.Syscall) []*Call {
	all := make([]*Call, 0, len(from))
	byKey := make(map[callKey]*Call, len(from))
	for _, s := range from {
		key := callKey{s.PID, s.Via, printable.Escape(s.Name)}
		c := byKey[key]
		if c == nil {
			c = &Call{PID: s.PID, Process: printable.Escape(s.Comm), Via: s.Via.String(), Name: key.name, key: key}
			byKey[key] = c
			all = append(all, c)
		}
		c.Count += s.Count
		c.Failed += s.Failed
		c.MaxUsec = max(c.MaxUsec, usec(s.Max))
		c.seconds += s.Total.Seconds()
		if c.Count > 0 {
			c.AvgUsec = c.seconds * 1e6 / float64(c.Count)
		}
	}
	slices.SortStableFunc(all, func(a, b *Call) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Via, b.Via), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func usec(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
