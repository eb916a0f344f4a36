package top

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/goverbs/goverbs/cq"
)

// maxSeries is how many completion queues, processes and called methods get
// metrics of their own: readers keep what they have read for weeks. How many
// were left out is a metric too.
const maxSeries = 1000

// A Health is what an exporter says of itself.
type Health struct {
	// Up says that the look is of the last interval.
	Up bool
	// Failures counts looks that failed.
	Failures uint64
}

// WriteMetrics writes a look in the OpenMetrics text format. A look that is nil
// has health alone.
//
// Labels are those of cq.WriteOpenMetrics where they mean the same: device, cq
// (here the kernel's number), and further process, pid, port. Queue pairs have
// no metrics of their own, but numbers by process, type and state.
func WriteMetrics(w io.Writer, l *Look, h Health) error {
	var m metrics
	up := 0.0
	if h.Up {
		up = 1
	}
	m.gauge("up", "", "Whether the last look at the machine succeeded.", up)
	m.counter("look_failures", "", "Looks that failed.", float64(h.Failures))
	if l != nil {
		m.look(l)
	}
	return cq.WriteOpenMetrics(w, m)
}

// metrics are those of one look.
type metrics []cq.Metric

// Metrics returns them.
func (m metrics) Metrics() []cq.Metric { return m }

const prefix = "goverbs_top_"

func (m *metrics) add(x cq.Metric, name string, labels []cq.Label) {
	x.Name, x.Labels = prefix+name, labels
	*m = append(*m, x)
}

func (m *metrics) gauge(name, unit, help string, v float64, labels ...cq.Label) {
	m.add(cq.Metric{Type: cq.MetricGauge, Unit: unit, Help: help, Value: v}, name, labels)
}

func (m *metrics) counter(name, unit, help string, v float64, labels ...cq.Label) {
	m.add(cq.Metric{Type: cq.MetricCounter, Unit: unit, Help: help, Value: v}, name, labels)
}

// known adds a gauge or counter where there is a number.
func known[T uint8 | uint32 | uint64](add func(name, unit, help string, v float64, labels ...cq.Label), name, help string, v *T, labels ...cq.Label) {
	if v != nil {
		add(name, "", help, float64(*v), labels...)
	}
}

func label(name, value string) cq.Label { return cq.Label{Name: name, Value: value} }

// labels are those of an owner.
func (o Owner) labels() []cq.Label {
	name, pid := o.Process, ""
	switch {
	case o.Kernel != "":
		name = o.name()
	case o.PID != nil:
		pid = strconv.FormatUint(uint64(*o.PID), 10)
	}
	return []cq.Label{label("process", name), label("pid", pid)}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (m *metrics) look(l *Look) {
	m.gauge("look_timestamp_seconds", "seconds", "When the last look began, in Unix time.", float64(l.Time.UnixMilli())/1000)
	m.gauge("look_duration_seconds", "seconds", "How long the last look took.", l.Took)
	for _, v := range l.Levels {
		m.gauge("level_live", "", "Whether a source of this exporter is live.", oneIf(v.Live), label("level", v.Name))
	}
	leftOut := 0
	for _, d := range l.Devices {
		m.device(d)
		m.objects(d, &leftOut)
	}
	queues := gather(l, func(d *Device) []*CQ { return d.CQs }, func(a, b *CQ) int { return 0 })
	for _, q := range some(queues, &leftOut) {
		m.cq(q.Name, q.x)
	}
	m.calls(some(l.Calls, &leftOut))
	m.gauge("series_left_out", "", fmt.Sprintf("Completion queues, owners and methods without metrics, as there are more than %d of a kind.", maxSeries), float64(leftOut))
}

// some are those that get metrics.
func some[T any](all []T, leftOut *int) []T {
	if len(all) > maxSeries {
		*leftOut += len(all) - maxSeries
		all = all[:maxSeries]
	}
	return all
}

func (m *metrics) device(d *Device) {
	m.gauge("device_info", "", "An RDMA device; the value is 1.", 1, label("device", d.Name), label("protocol", d.Protocol), label("node_type", d.NodeType), label("fw_ver", d.Firmware))
	for _, p := range d.Ports {
		at := []cq.Label{label("device", d.Name), label("port", strconv.FormatUint(uint64(p.Port), 10))}
		m.gauge("port_state", "", "The state of a port as InfiniBand numbers it; 4 is active.", float64(p.number), at...)
		for _, c := range p.Counters {
			m.counter("port_counter", "", "A counter of a port, of the driver (hw) or of InfiniBand (port), in the unit that it has there.", float64(c.Value),
				append(slices.Clone(at), label("source", c.Source), label("counter", c.Name))...)
		}
	}
}

// objects counts those of a device by owner.
func (m *metrics) objects(d *Device, leftOut *int) {
	type kindOf struct{ name, pid, kind string }
	type qpOf struct{ name, pid, kind, state string }
	counts, qps, bytes := make(map[kindOf]float64), make(map[qpOf]float64), make(map[kindOf]float64)
	count := func(o Owner, kind string) kindOf {
		l := o.labels()
		k := kindOf{l[0].Value, l[1].Value, kind}
		counts[k]++
		return k
	}
	for _, x := range d.Contexts {
		count(x.Owner, "ctx")
	}
	for _, x := range d.PDs {
		count(x.Owner, "pd")
	}
	for _, x := range d.CQs {
		count(x.Owner, "cq")
	}
	for _, x := range d.QPs {
		k := count(x.Owner, "qp")
		qps[qpOf{k.name, k.pid, x.Type, x.State}]++
	}
	for _, x := range d.MRs {
		bytes[count(x.Owner, "mr")] += float64(x.Length)
	}
	for _, x := range d.SRQs {
		count(x.Owner, "srq")
	}
	for _, x := range d.CMIDs {
		count(x.Owner, "cm_id")
	}
	labels := func(name, pid string, more ...cq.Label) []cq.Label {
		return append([]cq.Label{label("device", d.Name), label("process", name), label("pid", pid)}, more...)
	}
	byKind := func(a, b kindOf) int {
		return cmpStrings(a.name, b.name, a.pid, b.pid, a.kind, b.kind)
	}
	for _, k := range some(slices.SortedFunc(maps.Keys(counts), byKind), leftOut) {
		m.gauge("objects", "", "Objects of a device by owner.", counts[k], labels(k.name, k.pid, label("kind", k.kind))...)
	}
	for _, k := range some(slices.SortedFunc(maps.Keys(qps), func(a, b qpOf) int {
		return cmpStrings(a.name, b.name, a.pid, b.pid, a.kind, b.kind, a.state, b.state)
	}), leftOut) {
		m.gauge("qps", "", "Queue pairs of a device by owner, type and state.", qps[k], labels(k.name, k.pid, label("type", k.kind), label("state", k.state))...)
	}
	for _, k := range some(slices.SortedFunc(maps.Keys(bytes), byKind), leftOut) {
		m.gauge("registered_bytes", "bytes", "The sum of the lengths of the memory regions of an owner.", bytes[k], labels(k.name, k.pid)...)
	}
}

// cmpStrings compares pairs, the first that differs.
func cmpStrings(pairs ...string) int {
	for i := 0; i+1 < len(pairs); i += 2 {
		switch a, b := pairs[i], pairs[i+1]; {
		case a < b:
			return -1
		case a > b:
			return 1
		}
	}
	return 0
}

func (m *metrics) cq(device string, q *CQ) {
	at := append([]cq.Label{label("device", device), label("cq", strconv.FormatUint(uint64(q.ID), 10))}, q.labels()...)
	m.gauge("cq_depth", "", "How many completions fit into a completion queue.", float64(q.Depth), at...)
	known(m.gauge, "cq_occupied", "Completions in a queue that nobody has polled.", q.Occupied, at...)
	known(m.gauge, "cq_high_water", "The most completions in a queue that were seen.", q.HighWater, at...)
	if q.Armed != nil {
		m.gauge("cq_armed", "", "Whether the next completion makes an event.", oneIf(*q.Armed != "no"), at...)
	}
	if q.Pending != nil {
		m.gauge("cq_event_pending", "", "Whether an event waits to be read.", oneIf(*q.Pending), at...)
	}
	known(m.counter, "cq_events_read", "Completion events that the owner has read.", q.EventsRead, at...)
	known(m.counter, "cq_async_events_read", "Asynchronous events of the queue that the owner has read.", q.AsyncRead, at...)
	known(m.counter, "cq_events", "Completion events made since the exporter came.", q.Events, at...)
	known(m.counter, "cq_errors", "Errors of the queue, as it overran, since the exporter came.", q.Errors, at...)
	known(m.counter, "cq_completions", "Completions that came since the exporter came.", q.CQEs, at...)
	known(m.counter, "cq_dropped", "Completions that found no room since the exporter came.", q.Dropped, at...)
	for _, status := range slices.Sorted(maps.Keys(q.Failed)) {
		m.counter("cq_failed", "", "Completions that were not a success since the exporter came.", float64(q.Failed[status]), append(slices.Clone(at), label("status", status))...)
	}
	if q.seen != nil && q.seen.Events != nil {
		w := q.seen.Events.Wake
		x := cq.Metric{Type: cq.MetricHistogram, Unit: "seconds", Help: "From a completion event to the return of the read that fetched it.", Sum: w.Total.Seconds()}
		n := uint64(0)
		for i, c := range w.Log2 {
			limit := math.Ldexp(1, i+1) / 1e9
			if i == len(w.Log2)-1 {
				limit = math.Inf(1)
			}
			n += c
			x.Buckets = append(x.Buckets, cq.Bucket{Limit: limit, Count: n})
		}
		m.add(x, "cq_wake_seconds", at)
	}
}

func (m *metrics) calls(all []*Call) {
	for _, c := range all {
		at := []cq.Label{label("process", c.Process), label("pid", strconv.FormatUint(uint64(c.PID), 10)), label("via", c.Via), label("method", c.Name)}
		m.counter("calls", "", "Calls to uverbs since the exporter came.", float64(c.Count), at...)
		m.counter("calls_failed", "", "Those that failed.", float64(c.Failed), at...)
		m.counter("call_time_seconds", "seconds", "The time that they took in all.", c.seconds, at...)
	}
}
